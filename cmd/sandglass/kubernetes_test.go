package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/internal/kubecluster"
	"github.com/sandglass-dev/sandglass/providers/kubernetes"
	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/sweep"
)

// cluster is a control plane for all tests of this package. It ends with the test's process.
var cluster = sync.OnceValues(func() (*kubecluster.Cluster, error) {
	return kubecluster.Start(context.Background(), kubecluster.Config{})
})

// onCluster returns the cluster. Without one the test is skipped.
func onCluster(t *testing.T) *kubecluster.Cluster {
	t.Helper()
	c, err := cluster()
	if err != nil {
		kubecluster.Skip(t, err)
	}
	return c
}

// kubeconfig writes one, as kubectl does in JSON, and returns the variable that names it. replace changes its text.
func kubeconfig(t *testing.T, c *kubecluster.Cluster, token, namespace string, replace ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kube.json")
	text := strings.NewReplacer(replace...).Replace(string(c.Kubeconfig(token, namespace)))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return "KUBECONFIG=" + path
}

// runnersRights are those of the Role agent-runner.
func runnersRights() []kubecluster.Rule {
	return []kubecluster.Rule{
		kubecluster.May("batch", "jobs", "create", "get", "list", "patch", "delete"),
		kubecluster.May("", "pods", "get", "list", "delete"),
		kubecluster.May("", "pods/exec", "get", "create"),
	}
}

func TestDoctorNamesWhatIsWrongWithACluster(t *testing.T) {
	c := onCluster(t)
	ns := c.Namespace(t)
	good := c.User(t, ns, runnersRights()...)
	gone := c.User(t, ns, runnersRights()...)
	forget(t, c, ns, gone)
	over := expired(t, c, good)
	const file = "apply -f deploy/kubernetes/rbac.yaml"
	const anew = "kubectl config view --raw --minify --flatten -o json"
	for name, tt := range map[string]struct {
		env        string
		key, may   string
		want, hint string
	}{
		"nothing, with all rights": {kubeconfig(t, c, good, ns), "yes", "yes", "", ""},
		"a right is missing": {
			kubeconfig(t, c, c.User(t, ns, runnersRights()[:2]...), ns),
			"yes", "yes", "in namespace " + ns + " these rights are missing: get pods/exec, create pods/exec", file,
		},
		"the rights of a sweeper": {
			kubeconfig(t, c, c.User(t, ns, kubecluster.May("batch", "jobs", "get", "list", "delete"), kubecluster.May("", "pods", "get", "list", "delete")), ns),
			"yes", "yes", "these rights are missing: create jobs.batch, patch jobs.batch, get pods/exec, create pods/exec;", "sandglass-sweep is enough for sweep",
		},
		"a right to delete is missing": {
			kubeconfig(t, c, c.User(t, ns, kubecluster.May("batch", "jobs", "create", "get", "list", "patch"), kubecluster.May("", "pods", "get", "list")), ns),
			"yes", "no", "delete jobs.batch, delete pods", file,
		},
		"no right at all":               {kubeconfig(t, c, c.User(t, ns), ns), "yes", "no", "list jobs.batch", file},
		"rights in another namespace":   {kubeconfig(t, c, good, "default"), "yes", "no", "in namespace default these rights are missing", file},
		"a token that has expired":      {kubeconfig(t, c, over, ns), "no", "not knowable", "401", anew},
		"a token of a deleted account":  {kubeconfig(t, c, gone, ns), "no", "not knowable", "401", anew},
		"a token of somewhere else":     {kubeconfig(t, c, "eyJhbGciOiJub25lIn0.e30.x", ns), "no", "not knowable", "401", anew},
		"nobody answers at the address": {kubeconfig(t, c, good, ns, c.URL(), "https://127.0.0.1:1"), "not knowable", "not knowable", "connection refused", "server's address"},
		"a certificate of another cluster": {
			kubeconfig(t, c, good, ns, base64.StdEncoding.EncodeToString(c.CA()), base64.StdEncoding.EncodeToString(otherCA(t))),
			"not knowable", "not knowable", "certificate signed by unknown authority", anew,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, tt.env)
			r := b.run("doctor", "-p", "kubernetes", "--json")
			d := decode[diagnosis](t, r.stdout)
			require.Len(t, d.Accounts, 1)
			assert.Equal(t, tt.key, strings.Split(d.Accounts[0].Key, ":")[0])
			assert.Equal(t, tt.may, d.Accounts[0].MayDelete)
			faults := strings.Join(d.Accounts[0].Faults, "\n")
			assert.NotContains(t, r.stdout+r.stderr, good)
			assert.NotContains(t, r.stdout+r.stderr, gone)
			if tt.want == "" {
				assert.Equal(t, 0, r.code)
				assert.Empty(t, faults)
				return
			}
			assert.Equal(t, 1, r.code)
			assert.Contains(t, faults, tt.want)
			assert.Contains(t, faults, tt.hint, "what to do")
		})
	}
}

// expired returns a token as the API server has made it, but for the time at which it ends: that is past.
func expired(t *testing.T, c *kubecluster.Cluster, token string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(c.Dir(), "pki", "service-accounts.key"))
	require.NoError(t, err)
	block, _ := pem.Decode(text)
	key, err := x509.ParseECPrivateKey(block.Bytes)
	require.NoError(t, err)
	parts := strings.Split(token, ".")
	require.Len(t, parts, 3)
	resign := func(change func(claims map[string]any)) string {
		body, err := base64.RawURLEncoding.DecodeString(parts[1])
		require.NoError(t, err)
		claims := map[string]any{}
		require.NoError(t, json.Unmarshal(body, &claims))
		change(claims)
		body, err = json.Marshal(claims)
		require.NoError(t, err)
		signed := parts[0] + "." + base64.RawURLEncoding.EncodeToString(body)
		sum := sha256.Sum256([]byte(signed))
		r, s, err := ecdsa.Sign(rand.Reader, key, sum[:])
		require.NoError(t, err)
		signature := make([]byte, 64)
		r.FillBytes(signature[:32])
		s.FillBytes(signature[32:])
		return signed + "." + base64.RawURLEncoding.EncodeToString(signature)
	}
	require.NotEmpty(t, userOf(t, c, resign(func(map[string]any) {})), "signed like this it counts")
	old := resign(func(claims map[string]any) {
		now := time.Now().Unix()
		claims["iat"], claims["nbf"], claims["exp"] = now-7200, now-7200, now-3600
	})
	require.Empty(t, userOf(t, c, old))
	return old
}

// userOf returns whose a token is by the API server's word; empty: nobody's.
func userOf(t *testing.T, c *kubecluster.Cluster, token string) string {
	t.Helper()
	var who struct {
		Status struct{ User struct{ Username string } }
	}
	require.NoError(t, c.Do(t.Context(), "POST", "/apis/authentication.k8s.io/v1/tokenreviews", map[string]any{"spec": map[string]any{"token": token}}, &who))
	return who.Status.User.Username
}

// forget deletes the service account of a token.
func forget(t *testing.T, c *kubecluster.Cluster, ns, token string) {
	t.Helper()
	_, name, _ := strings.Cut(userOf(t, c, token), ns+":")
	require.NotEmpty(t, name)
	require.NoError(t, c.Do(t.Context(), "DELETE", "/api/v1/namespaces/"+ns+"/serviceaccounts/"+name, nil, nil))
	for end := time.Now().Add(time.Minute); userOf(t, c, token) != ""; time.Sleep(200 * time.Millisecond) {
		require.True(t, time.Now().Before(end), "the API server still knows the account")
	}
}

// otherCA returns the certificate of an authority that nobody uses.
func otherCA(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// TestOneSourceThatSaysAliveKeepsAndOneProofIsEnough is the rule for several sources of liveness.
func TestOneSourceThatSaysAliveKeepsAndOneProofIsEnough(t *testing.T) {
	type word struct {
		life sweep.Life
		err  error
	}
	var (
		alive, dead, unknown = word{life: sweep.Alive}, word{life: sweep.Dead}, word{}
		blind                = word{err: errors.New("cannot be asked")}
	)
	for name, tt := range map[string]struct {
		words []word
		want  sweep.Life
		fails bool
	}{
		"none knows":                            {[]word{unknown, unknown}, sweep.Unknown, false},
		"one proves him dead":                   {[]word{unknown, dead}, sweep.Dead, false},
		"both prove him dead":                   {[]word{dead, dead}, sweep.Dead, false},
		"one says alive":                        {[]word{unknown, alive}, sweep.Alive, false},
		"one says alive, the other dead":        {[]word{dead, alive}, sweep.Alive, false},
		"one cannot be asked, the other: dead":  {[]word{blind, dead}, sweep.Unknown, true},
		"dead, and the other cannot be asked":   {[]word{dead, blind}, sweep.Unknown, true},
		"one cannot be asked, the other: alive": {[]word{blind, alive}, sweep.Alive, false},
		"one cannot be asked":                   {[]word{blind, unknown}, sweep.Unknown, true},
	} {
		t.Run(name, func(t *testing.T) {
			var sources []sweep.Liveness
			for _, w := range tt.words {
				sources = append(sources, func(context.Context, sandbox.Info) (sweep.Life, error) { return w.life, w.err })
			}
			got, err := anyOf(sources)(t.Context(), sandbox.Info{})
			assert.Equal(t, tt.want, got)
			assert.Equal(t, tt.fails, err != nil)
		})
	}
	assert.Nil(t, anyOf(nil), "and without a source there is none")
}

func TestAClusterHasNoWordOnSandboxesOfOtherAccounts(t *testing.T) {
	p, err := kubernetes.New(kubernetes.Config{BaseURL: "https://127.0.0.1:1", Namespace: "agents", Tokens: func(context.Context) (string, error) { return "t", nil }})
	require.NoError(t, err)
	life := clusterOwners(p)
	mark := sandbox.Mark{Fleet: "ci", Owner: "a.1", Nonce: strings.Repeat("a", 16)}
	for _, id := range []string{"i0sandbx3vhde01164k1x", mark.Name(), mark.Name() + "/sess_1", "sandglass-bbbbbbbbbbbbbbbb/0b1f2d64-9c5e-4a45-8a52-3c1f0e2d4b5a"} {
		is, err := life(t.Context(), sandbox.Info{ID: id, Mark: mark})
		assert.NoError(t, err, id)
		assert.Equal(t, sweep.Unknown, is)
	}
	_, err = life(t.Context(), sandbox.Info{ID: mark.Name() + "/0b1f2d64-9c5e-4a45-8a52-3c1f0e2d4b5a", Mark: mark})
	assert.ErrorIs(t, err, sandbox.ErrUnavailable, "while one of its own makes it ask")
}

func TestASweepOfAClusterNeedsNoRightToMakeAnything(t *testing.T) {
	c := onCluster(t)
	ns := c.Namespace(t)
	token := c.User(t, ns, kubecluster.May("batch", "jobs", "get", "list", "delete"), kubecluster.May("", "pods", "get", "list", "delete"),
		kubecluster.May("coordination.k8s.io", "leases", "get"))
	b := newBench(t, kubeconfig(t, c, token, ns))
	r := b.run("sweep", "-p", "kubernetes", "-f", "ci", "--end-dead")
	assert.Equal(t, 0, r.code)
	assert.Contains(t, r.stdout, "0 seen")
	poor := newBench(t, kubeconfig(t, c, c.User(t, ns), ns))
	r = poor.run("sweep", "-p", "kubernetes", "-f", "ci", "--end-dead")
	assert.Equal(t, 1, r.code)
	assert.Contains(t, r.stderr, "forbidden")
}
