package kubernetes

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// serviceAccount is where a pod finds its service account.
const serviceAccount = "/var/run/secrets/kubernetes.io/serviceaccount"

// convert is how people get the form of a kubeconfig that is read here.
const convert = "kubectl config view --raw --minify --flatten -o json"

// FromEnv returns a provider for what the environment names, as [ConfigFromEnv] says. It makes no request.
func FromEnv() (*Provider, error) {
	cfg, err := ConfigFromEnv()
	if err != nil {
		return nil, err
	}
	return New(cfg)
}

// ConfigFromEnv returns the configuration that the environment names: the current context of the kubeconfig in KUBECONFIG, as
// [FromKubeconfig] says; without that, inside a cluster, the pod's own cluster and namespace, as [InCluster] says.
//
// SANDGLASS_NAMESPACE goes before both's namespace. The pod that this process runs in becomes the owner of what it makes in
// its own cluster if the downward API tells its name and uid in POD_NAME and POD_UID (and its namespace in POD_NAMESPACE, if
// that is not the service account's); see [Config].Owner. It makes no request.
func ConfigFromEnv() (cfg Config, err error) {
	switch {
	case os.Getenv("KUBECONFIG") != "": // kubectl's order: who names a cluster means that one, in a pod as well
		cfg, err = FromKubeconfig(os.Getenv("KUBECONFIG"))
	case os.Getenv("KUBERNETES_SERVICE_HOST") != "":
		cfg, err = InCluster()
	default:
		err = fmt.Errorf("kubernetes: neither in a cluster (KUBERNETES_SERVICE_HOST), nor is there KUBECONFIG, made by %q: %w",
			convert, sandbox.ErrInvalid)
	}
	cfg.Namespace = cmp.Or(os.Getenv("SANDGLASS_NAMESPACE"), cfg.Namespace)
	return cfg, err
}

// InCluster returns the configuration of a process that runs in a pod with a service account: its namespace, the API
// server's address, and the account's token, whose file is read anew before each request, since it changes. It makes no
// request.
func InCluster() (Config, error) {
	host, portNumber := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || portNumber == "" {
		return Config{}, fmt.Errorf("kubernetes: KUBERNETES_SERVICE_HOST and _PORT are not set, so this is no pod: %w", sandbox.ErrInvalid)
	}
	return inCluster("https://"+net.JoinHostPort(host, portNumber), serviceAccount)
}

func inCluster(base, dir string) (Config, error) {
	ca, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	var ns []byte
	if err == nil {
		ns, err = os.ReadFile(filepath.Join(dir, "namespace"))
	}
	if err != nil {
		return Config{}, fmt.Errorf("kubernetes: the pod's service account: %w: %w", err, sandbox.ErrInvalid)
	}
	cfg := Config{
		BaseURL: base, CA: ca, Namespace: strings.TrimSpace(string(ns)), Tokens: tokenFile(filepath.Join(dir, "token")),
	}
	if pod, uid := os.Getenv("POD_NAME"), os.Getenv("POD_UID"); pod != "" && uid != "" {
		cfg.Owner = Owner{Namespace: os.Getenv("POD_NAMESPACE"), Pod: pod, UID: uid}
		if cfg.Owner.Namespace == "" {
			cfg.Owner.Namespace = cfg.Namespace
		}
	}
	return cfg, nil
}

// tokenFile reads a token each time it is asked for: the file is small, in memory, and changes.
func tokenFile(name string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) {
		b, err := os.ReadFile(name)
		return strings.TrimSpace(string(b)), err
	}
}

// kubeconfig is one, as far as it is read.
type kubeconfig struct {
	Current  string        `json:"current-context"`
	Contexts []kubeContext `json:"contexts"`
	Clusters []struct {
		Name    string `json:"name"`
		Cluster struct {
			Server     string `json:"server"`
			ServerName string `json:"tls-server-name"`
			Insecure   bool   `json:"insecure-skip-tls-verify"`
			CAFile     string `json:"certificate-authority"`
			CA         []byte `json:"certificate-authority-data"`
			Proxy      string `json:"proxy-url"`
		} `json:"cluster"`
	} `json:"clusters"`
	Users []struct {
		Name string                     `json:"name"`
		User map[string]json.RawMessage `json:"user"`
	} `json:"users"`
}

type kubeContext struct {
	Name    string `json:"name"`
	Context struct {
		Cluster   string `json:"cluster"`
		User      string `json:"user"`
		Namespace string `json:"namespace"`
	} `json:"context"`
}

// FromKubeconfig returns the configuration of the current context of a kubeconfig in JSON, which kubectl writes:
//
//	kubectl config view --raw --minify --flatten -o json >kube.json
//
// kubectl reads that form as well. A context without a namespace is that of the namespace "default", as for kubectl. What
// cannot be honoured is refused: credentials by a program (exec) or a plug-in, for which there is Config.Tokens, a password, acting as
// somebody else, a proxy, and servers whose certificate is not to be checked. A tokenFile is read anew before each request;
// certificates are read once, so that a process must not outlive a client certificate that is renewed. It makes no request.
func FromKubeconfig(file string) (Config, error) {
	fail := func(format string, args ...any) (Config, error) {
		return Config{}, fmt.Errorf("kubernetes: kubeconfig: "+format+": %w", append(args, sandbox.ErrInvalid)...)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return fail("%w", err)
	}
	if b = bytes.TrimSpace(b); len(b) == 0 || b[0] != '{' {
		return fail("it is not in JSON, which %q makes of it", convert)
	}
	return readKubeconfig(b, filepath.Dir(file), fail)
}

// readKubeconfig reads one whose relative paths begin in dir. Its errors show nothing of what is in it but names.
func readKubeconfig(b []byte, dir string, fail func(string, ...any) (Config, error)) (Config, error) {
	var k kubeconfig
	if json.Unmarshal(b, &k) != nil { // the decoder's error may hold a piece of a secret
		return fail("it cannot be read, or a field is of a wrong kind")
	}
	ci := slices.IndexFunc(k.Contexts, func(c kubeContext) bool { return c.Name == k.Current })
	if k.Current == "" || ci < 0 {
		return fail("the current context %.80q is not in it", k.Current)
	}
	chosen := k.Contexts[ci].Context
	var cfg Config
	if cfg.Namespace = chosen.Namespace; cfg.Namespace == "" {
		cfg.Namespace = "default"
	}
	found := false
	for _, c := range k.Clusters {
		if c.Name != chosen.Cluster || found {
			continue
		}
		found = true
		switch {
		case c.Cluster.Insecure:
			return fail("the server's certificate is not to be checked, so that anybody could take the token")
		case c.Cluster.Proxy != "":
			return fail("a proxy of its own (proxy-url): set HTTPS_PROXY, or Config.HTTP")
		}
		var err error
		if cfg.BaseURL, cfg.ServerName = c.Cluster.Server, c.Cluster.ServerName; len(c.Cluster.CA) > 0 {
			cfg.CA = c.Cluster.CA
		} else if cfg.CA, err = readRelative(dir, c.Cluster.CAFile); err != nil {
			return fail("%w", err)
		}
	}
	if !found {
		return fail("cluster %.80q is not in it", chosen.Cluster)
	}
	found = false
	for _, u := range k.Users {
		if u.Name != chosen.User || found {
			continue
		}
		found = true
		if err := cfg.user(u.User, dir); err != nil {
			return fail("user %.80q: %w", u.Name, err)
		}
	}
	if !found {
		return fail("user %.80q is not in it", chosen.User)
	}
	return cfg, nil
}

// user takes over a user's credentials.
func (c *Config) user(fields map[string]json.RawMessage, dir string) error {
	var u struct {
		Token     string `json:"token"`
		TokenFile string `json:"tokenFile"`
		Cert      []byte `json:"client-certificate-data"`
		Key       []byte `json:"client-key-data"`
		CertFile  string `json:"client-certificate"`
		KeyFile   string `json:"client-key"`
	}
	for name := range fields {
		switch name {
		case "token", "tokenFile", "client-certificate-data", "client-key-data", "client-certificate", "client-key", "extensions":
		case "exec", "auth-provider":
			return fmt.Errorf("credentials that a program makes (%s): call it in Config.Tokens", name)
		default:
			return fmt.Errorf("%.40q cannot be honoured", name)
		}
	}
	whole, err := json.Marshal(fields)
	if err == nil {
		err = json.Unmarshal(whole, &u)
	}
	if err != nil {
		return errors.New("a field is of a wrong kind")
	}
	if c.Cert = u.Cert; len(c.Cert) == 0 {
		if c.Cert, err = readRelative(dir, u.CertFile); err != nil {
			return err
		}
	}
	if c.Key = u.Key; len(c.Key) == 0 {
		if c.Key, err = readRelative(dir, u.KeyFile); err != nil {
			return err
		}
	}
	switch {
	case u.TokenFile != "": // goes before the token, as for kubectl
		c.Tokens = tokenFile(resolve(dir, u.TokenFile))
	case u.Token != "":
		c.Tokens = func(context.Context) (string, error) { return u.Token, nil }
	case len(c.Cert) == 0:
		return errors.New("no credentials")
	}
	return nil
}

func resolve(dir, name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(dir, name)
}

// readRelative reads a file whose name may be relative to dir; none if there is no name.
func readRelative(dir, name string) ([]byte, error) {
	if name == "" {
		return nil, nil
	}
	return os.ReadFile(resolve(dir, name))
}
