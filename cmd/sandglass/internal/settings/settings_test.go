package settings_test

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/cmd/sandglass/internal/settings"
	"github.com/sandglass-dev/sandglass/sandbox"
)

func load(t *testing.T, text string, env map[string]string) (*settings.Settings, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.json")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return settings.Load(path, func(name string) string { return env[name] })
}

// TestEveryProviderCanHaveASecondAccount opens one of each, with nothing of the default account's in it.
func TestEveryProviderCanHaveASecondAccount(t *testing.T) {
	env := map[string]string{
		"K_E2B": "e2b_5afe5afe5afe5afe5afe5afe5afe5afe5afe5afe", "K_DAYTONA": "dtn_5afe", "K_VERCEL": "5afe5afe", "K_TEAM": "team_1", "K_PROJECT": "prj_1",
		"K_BOAT": "boat_5afe", "K_KUBE": kubeconfig(t, "https://127.0.0.1:6443", nil), "K_DOCKER": "unix:///nowhere/docker.sock", "K_MODAL": "ak-5afe", "K_MODAL_SECRET": "as-5afe",
		"E2B_DOMAIN": "of.the.default.account",
	}
	s, err := load(t, `{"accounts": {
		"a-e2b":     {"provider": "e2b", "E2B_API_KEY": "K_E2B"},
		"a-daytona": {"provider": "daytona", "DAYTONA_API_KEY": "K_DAYTONA"},
		"a-vercel":  {"provider": "vercel", "VERCEL_TOKEN": "K_VERCEL", "VERCEL_TEAM_ID": "K_TEAM", "VERCEL_PROJECT_ID": "K_PROJECT"},
		"a-boat":    {"provider": "boat", "BOAT_API_KEY": "K_BOAT"},
		"a-docker":  {"provider": "docker", "DOCKER_HOST": "K_DOCKER"},
		"a-kubernetes": {"provider": "kubernetes", "KUBECONFIG": "K_KUBE"},
		"a-modal":   {"provider": "modal", "MODAL_TOKEN_ID": "K_MODAL", "MODAL_TOKEN_SECRET": "K_MODAL_SECRET"}
	}}`, env)
	require.NoError(t, err)
	for _, kind := range settings.Kinds() {
		a, err := s.Open("a-" + kind)
		require.NoError(t, err, kind)
		assert.Equal(t, kind+"/a-"+kind, a.Name(), "the journal's word for the account outlives its key")
		assert.Equal(t, kind, a.Kind)
		for _, v := range a.Env {
			name, _, _ := strings.Cut(v, "=")
			assert.Contains(t, settings.Variables(kind), name)
		}
		_, ok := sandbox.As[sandbox.Checker](a)
		assert.True(t, ok, "doctor asks it")
	}
	a, err := s.Open("a-e2b")
	require.NoError(t, err)
	assert.Equal(t, []string{"E2B_API_KEY=" + env["K_E2B"], "E2B_DOMAIN="}, a.Env)
	assert.Subset(t, s.Names(), []string{"a-boat", "a-daytona", "a-docker", "a-e2b", "a-modal", "a-vercel"})
}

func TestAnAccountOfAClusterHasTheNamespaceThatIsNamed(t *testing.T) {
	var asked []string
	api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path)
		w.WriteHeader(http.StatusForbidden)
	}))
	defer api.Close()
	env := map[string]string{"K_KUBE": kubeconfig(t, api.URL, api.Certificate()), "K_NAMESPACE": "agents", "SANDGLASS_NAMESPACE": "of-the-default-account"}
	s, err := load(t, `{"accounts": {
		"named": {"provider": "kubernetes", "KUBECONFIG": "K_KUBE", "SANDGLASS_NAMESPACE": "K_NAMESPACE"},
		"bare":  {"provider": "kubernetes", "KUBECONFIG": "K_KUBE"}
	}}`, env)
	require.NoError(t, err)
	for name, namespace := range map[string]string{"named": "agents", "bare": "default"} {
		a, err := s.Open(name)
		require.NoError(t, err)
		asked = nil
		for _, err := range a.List(t.Context(), sandbox.Filter{Fleet: "ci"}) {
			require.Error(t, err)
		}
		require.NotEmpty(t, asked)
		for _, path := range asked {
			assert.Contains(t, path, "/namespaces/"+namespace+"/", name)
		}
	}
}

// kubeconfig returns the name of a file that names a cluster, by its address and its certificate if that is not nil, and a user.
func kubeconfig(t *testing.T, server string, cert *x509.Certificate) string {
	t.Helper()
	ca := ""
	if cert != nil {
		ca = base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}))
	}
	name := filepath.Join(t.TempDir(), "kube.json")
	require.NoError(t, os.WriteFile(name, []byte(`{
		"clusters": [{"name": "c", "cluster": {"server": "`+server+`", "certificate-authority-data": "`+ca+`"}}],
		"users": [{"name": "u", "user": {"token": "5afe"}}],
		"contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
		"current-context": "x"
	}`), 0o600))
	return name
}

func TestEveryProviderSaysWhichKeyItLacks(t *testing.T) {
	for kind, want := range map[string]string{
		"e2b": "E2B_API_KEY", "daytona": "DAYTONA_API_KEY", "vercel": "VERCEL_TOKEN", "boat": "BOAT_API_KEY", "kubernetes": "KUBECONFIG",
	} {
		for _, v := range append(settings.Variables(kind), "VERCEL_OIDC_TOKEN", "BOX_API_KEY") {
			t.Setenv(v, "")
		}
		s, err := load(t, `{}`, nil)
		require.NoError(t, err)
		_, err = s.Open(kind)
		assert.ErrorIs(t, err, sandbox.ErrInvalid)
		assert.ErrorContains(t, err, want)
	}
}

func TestTheSameAccountTwiceIsOpenedOnce(t *testing.T) {
	t.Setenv("E2B_API_KEY", "e2b_5afe5afe5afe5afe5afe5afe5afe5afe5afe5afe")
	s, err := load(t, `{}`, map[string]string{"E2B_API_KEY": "set"})
	require.NoError(t, err)
	all, err := s.OpenAll([]string{"e2b", "e2b"})
	require.NoError(t, err)
	assert.Len(t, all, 1)
	assert.Equal(t, []string{"e2b"}, s.Names())
	_, err = s.OpenAll([]string{"nosuch", "e2b", "neither"})
	assert.ErrorContains(t, err, "nosuch")
	assert.ErrorContains(t, err, "neither", "all faults at once")
}

func TestWithoutAFileThereAreNoSettingsAndNoFault(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	s, err := settings.Load("", os.Getenv)
	require.NoError(t, err)
	assert.Empty(t, s.Path)
	assert.Empty(t, s.Fleet)
}

func TestOnlyWhatProvidersAndProgramsUseIsSaidOfTheSandbox(t *testing.T) {
	assert.Equal(t, []string{"E2B_SANDBOX_ID=i1"}, settings.SandboxEnv("e2b", "i1"))
	assert.Equal(t, []string{"VERCEL_SANDBOX_NAME=name", "VERCEL_SANDBOX_ID=sbx_1"}, settings.SandboxEnv("vercel", "name/sbx_1"))
	assert.Empty(t, settings.SandboxEnv("docker", "c1"))
}
