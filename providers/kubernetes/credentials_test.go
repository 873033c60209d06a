package kubernetes_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/providers/kubernetes"
	"github.com/sandglass-dev/sandglass/sandbox"
)

type object = map[string]any

// pair is a certificate and its key.
func pair(t *testing.T) (cert, key []byte) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &k.PublicKey, k)
	require.NoError(t, err)
	kder, err := x509.MarshalECPrivateKey(k)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: kder})
}

// config is a kubeconfig with the fields of its user and cluster.
func config(user, cluster object, namespace string) object {
	c := object{"server": "https://kube.test:6443"}
	maps.Copy(c, cluster)
	return object{
		"kind": "Config", "apiVersion": "v1", "current-context": "mine",
		"contexts": []object{
			{"name": "other", "context": object{"cluster": "x", "user": "x"}},
			{"name": "mine", "context": object{"cluster": "c", "user": "u", "namespace": namespace}},
		},
		"clusters": []object{{"name": "x", "cluster": object{"server": "https://wrong"}}, {"name": "c", "cluster": c}},
		"users":    []object{{"name": "x", "user": object{"token": "wrong"}}, {"name": "u", "user": user}},
	}
}

func writeConfig(t *testing.T, dir string, c object) string {
	t.Helper()
	b, err := json.MarshalIndent(c, "", "  ")
	require.NoError(t, err)
	file := filepath.Join(dir, "kube.json")
	require.NoError(t, os.WriteFile(file, b, 0o600))
	return file
}

func TestAKubeconfigIsReadAsKubectlWritesIt(t *testing.T) {
	cert, key := pair(t)
	dir := t.TempDir()
	for name, text := range map[string][]byte{"ca.pem": cert, "cert.pem": cert, "key.pem": key, "token": []byte("from-a-file\n")} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	for name, c := range map[string]struct {
		user, cluster object
		namespace     string
		token         string
		cert          bool
	}{
		"a token":              {object{"token": "abc"}, object{"certificate-authority-data": cert}, "boxes", "abc", false},
		"a token's file":       {object{"tokenFile": "token"}, object{"certificate-authority": "ca.pem"}, "boxes", "from-a-file", false},
		"file and token":       {object{"tokenFile": filepath.Join(dir, "token"), "token": "abc"}, object{"certificate-authority-data": cert}, "", "from-a-file", false},
		"a certificate":        {object{"client-certificate-data": cert, "client-key-data": key}, object{"certificate-authority-data": cert}, "boxes", "", true},
		"a certificate's file": {object{"client-certificate": "cert.pem", "client-key": "key.pem"}, object{"certificate-authority-data": cert, "tls-server-name": "x"}, "boxes", "", true},
	} {
		got, err := kubernetes.FromKubeconfig(writeConfig(t, dir, config(c.user, c.cluster, c.namespace)))
		require.NoError(t, err, name)
		assert.Equal(t, "https://kube.test:6443", got.BaseURL, name)
		assert.Equal(t, cert, got.CA, name)
		if c.namespace == "" {
			c.namespace = "default"
		}
		assert.Equal(t, c.namespace, got.Namespace, name)
		if c.token != "" {
			token, err := got.Tokens(t.Context())
			require.NoError(t, err, name)
			assert.Equal(t, c.token, token, name)
		}
		if c.cert {
			assert.Equal(t, cert, got.Cert, name)
			assert.Equal(t, key, got.Key, name)
			assert.Nil(t, got.Tokens, name)
		}
		assert.Equal(t, c.cluster["tls-server-name"] == "x", got.ServerName == "x", name)
		p, err := kubernetes.New(got)
		require.NoError(t, err, name)
		assert.True(t, strings.HasPrefix(p.Name(), "kubernetes/"+c.namespace+"-"), p.Name())
	}
}

func TestAKubeconfigThatCannotBeHonouredIsRefusedAndNotShown(t *testing.T) {
	dir := t.TempDir()
	const secret = "sesame-4711"
	user := object{"token": secret}
	odd := func(change func(object)) object {
		c := config(user, nil, "")
		change(c)
		return c
	}
	for name, c := range map[string]object{
		"a program for credentials": config(object{"exec": object{"command": secret}}, nil, ""),
		"a plug-in for credentials": config(object{"auth-provider": object{"name": secret}}, nil, ""),
		"a password":                config(object{"username": "x", "password": secret}, nil, ""),
		"acting as somebody":        config(object{"token": secret, "as": "admin"}, nil, ""),
		"no credentials":            config(object{}, nil, ""),
		"a token of a wrong kind":   config(object{"token": []string{secret}}, nil, ""),
		"an unchecked server":       config(user, object{"insecure-skip-tls-verify": true}, ""),
		"a proxy":                   config(user, object{"proxy-url": "http://" + secret + "@p"}, ""),
		"a CA that is not there":    config(user, object{"certificate-authority": "missing"}, ""),
		"no context":                odd(func(c object) { c["current-context"] = "none" }),
		"no current context":        odd(func(c object) { delete(c, "current-context") }),
		"no cluster":                odd(func(c object) { c["clusters"] = nil }),
		"no user":                   odd(func(c object) { c["users"] = nil }),
		"contexts that are none":    odd(func(c object) { c["contexts"] = secret }),
	} {
		_, err := kubernetes.FromKubeconfig(writeConfig(t, dir, c))
		require.ErrorIs(t, err, sandbox.ErrInvalid, name)
		assert.NotContains(t, err.Error(), secret, name)
	}
	file := filepath.Join(dir, "config")
	require.NoError(t, os.WriteFile(file, []byte("apiVersion: v1\nkind: Config\nusers:\n- user: {token: "+secret+"}\n"), 0o600))
	_, err := kubernetes.FromKubeconfig(file)
	require.ErrorIs(t, err, sandbox.ErrInvalid)
	assert.Contains(t, err.Error(), "kubectl config view --raw --minify --flatten -o json", "what to do")
	assert.NotContains(t, err.Error(), secret)
	_, err = kubernetes.FromKubeconfig(filepath.Join(dir, "none"))
	assert.ErrorIs(t, err, os.ErrNotExist)
}

func TestInAClusterTheTokenIsReadAnew(t *testing.T) {
	cert, _ := pair(t)
	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	t.Setenv("POD_NAME", "runner-1")
	t.Setenv("POD_UID", "0b5c")
	t.Setenv("POD_NAMESPACE", "")
	_, err := kubernetes.InClusterAt("https://10.0.0.1:443", dir)
	require.ErrorIs(t, err, sandbox.ErrInvalid)
	write("ca.crt", string(cert))
	write("namespace", "boxes\n")
	cfg, err := kubernetes.InClusterAt("https://10.0.0.1:443", dir)
	require.NoError(t, err)
	assert.Equal(t, "boxes", cfg.Namespace)
	assert.Equal(t, kubernetes.Owner{Namespace: "boxes", Pod: "runner-1", UID: "0b5c"}, cfg.Owner)
	for _, want := range []string{"first", "second"} {
		write("token", want+"\n")
		token, err := cfg.Tokens(t.Context())
		require.NoError(t, err)
		assert.Equal(t, want, token)
	}
	_, err = kubernetes.New(cfg)
	assert.NoError(t, err)
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	_, err = kubernetes.InCluster()
	assert.ErrorIs(t, err, sandbox.ErrInvalid)
	t.Setenv("KUBECONFIG", "")
	_, err = kubernetes.FromEnv()
	assert.ErrorIs(t, err, sandbox.ErrInvalid)
	t.Setenv("KUBECONFIG", writeConfig(t, dir, config(object{"token": "x"}, object{"certificate-authority-data": cert}, "there")))
	t.Setenv("SANDGLASS_NAMESPACE", "elsewhere")
	p, err := kubernetes.FromEnv()
	require.NoError(t, err)
	assert.Contains(t, p.Name(), "kubernetes/elsewhere-")
	t.Setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
	t.Setenv("KUBERNETES_SERVICE_PORT", "443")
	again, err := kubernetes.FromEnv()
	require.NoError(t, err, "who names a cluster means that one, in a pod as well")
	assert.Equal(t, p.Name(), again.Name())
}

func TestAllFaultsOfAConfigurationAreTold(t *testing.T) {
	cert, key := pair(t)
	_, err := kubernetes.New(kubernetes.Config{
		BaseURL: "ftp://x", Namespace: "No Such", CA: []byte("none"), Cert: cert, Key: []byte("none"),
		Offline: map[string]string{"sandglass": "x"}, Owner: kubernetes.Owner{UID: "x"},
	})
	require.ErrorIs(t, err, sandbox.ErrInvalid)
	for _, want := range []string{"base URL", "namespace", "CA", "client certificate", "offline label", "owner"} {
		assert.ErrorContains(t, err, want)
	}
	good := kubernetes.Config{BaseURL: "https://kube.test", Namespace: "boxes", CA: cert, Cert: cert, Key: key}
	for name, change := range map[string]func(*kubernetes.Config){
		"certificates beside a transport": func(c *kubernetes.Config) { c.HTTP = &http.Client{} },
		"an owner elsewhere, by reference": func(c *kubernetes.Config) {
			c.Owner = kubernetes.Owner{Namespace: "x", Pod: "p", UID: "u", Reference: true}
		},
		"an owner with a Lease and a pod":     func(c *kubernetes.Config) { c.Owner = kubernetes.Owner{Pod: "p", UID: "u", Lease: time.Minute} },
		"an owner's Lease of a second":        func(c *kubernetes.Config) { c.Owner = kubernetes.Owner{Lease: time.Second} },
		"an owner whose pod has no uid":       func(c *kubernetes.Config) { c.Owner = kubernetes.Owner{Pod: "p"} },
		"a token that everybody can read":     func(c *kubernetes.Config) { c.BaseURL, c.Tokens = "http://kube.test", tokens("x") },
		"a namespace that would change paths": func(c *kubernetes.Config) { c.Namespace = "../x" },
	} {
		c := good
		change(&c)
		_, err := kubernetes.New(c)
		assert.ErrorIs(t, err, sandbox.ErrInvalid, name)
	}
	_, err = kubernetes.New(good)
	assert.NoError(t, err)
}

func TestNamesTellClustersAndNamespacesApart(t *testing.T) {
	one, _ := pair(t)
	two, _ := pair(t)
	seen := map[string]string{}
	for what, c := range map[string]kubernetes.Config{
		"one":               {BaseURL: "https://10.0.0.1:443", Namespace: "a", CA: one},
		"another namespace": {BaseURL: "https://10.0.0.1:443", Namespace: "b", CA: one},
		"another cluster":   {BaseURL: "https://10.0.0.1:443", Namespace: "a", CA: two},
		"another address":   {BaseURL: "https://10.0.0.2:443", Namespace: "a", CA: one},
	} {
		p, err := kubernetes.New(c)
		require.NoError(t, err)
		assert.Empty(t, seen[p.Name()], what)
		seen[p.Name()] = what
		c.Tokens = tokens("x")
		again, err := kubernetes.New(c)
		require.NoError(t, err)
		assert.Equal(t, p.Name(), again.Name(), "tokens change")
	}
}

func FuzzKubeconfig(f *testing.F) {
	for _, c := range []object{config(object{"token": "a"}, nil, "b"), config(object{"exec": 1}, object{"server": 2}, "")} {
		b, err := json.Marshal(c)
		require.NoError(f, err)
		f.Add(b)
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, b []byte) {
		cfg, err := kubernetes.Kubeconfig(b, dir)
		if err != nil {
			assert.Empty(t, cfg.BaseURL, "half a configuration")
			return
		}
		assert.NotEmpty(t, cfg.Namespace)
		assert.True(t, cfg.Tokens != nil || len(cfg.Cert) > 0, fmt.Sprint("no credentials: ", string(b)))
	})
}

func TestCheckMissesAnOwnersPodThatIsInAnotherCluster(t *testing.T) {
	for uid, there := range map[string]bool{"o-1": true, "o-2": false} {
		withStub(t, func(c *kubernetes.Config) { c.Owner = kubernetes.Owner{Pod: "runner-1", UID: "o-1"} }, func(_ int, r *http.Request) answer {
			if r.Method == http.MethodGet {
				return text(object{"metadata": object{"name": "runner-1", "uid": uid}, "status": object{"phase": "Running"}}, 0)
			}
			return text(object{"status": object{"allowed": true, "userInfo": object{"username": "ci"}}}, 0)
		}, func(t *testing.T, s *stub) {
			_, err := s.p.Check(t.Context())
			if there {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, sandbox.ErrInvalid)
			assert.ErrorContains(t, err, "runner-1")
		})
	}
}
