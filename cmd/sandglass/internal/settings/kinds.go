package settings

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/sandglass-dev/sandglass/providers/boat"
	"github.com/sandglass-dev/sandglass/providers/daytona"
	"github.com/sandglass-dev/sandglass/providers/docker"
	"github.com/sandglass-dev/sandglass/providers/e2b"
	"github.com/sandglass-dev/sandglass/providers/kubernetes"
	"github.com/sandglass-dev/sandglass/providers/modal"
	"github.com/sandglass-dev/sandglass/providers/vercel"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// VercelURL is a variable that no SDK reads: Vercel's has none for its address, and the emulator needs one.
const VercelURL = "SANDGLASS_VERCEL_URL"

// kubeNamespace is one that kubectl does not read: its contexts name a namespace, or mean the one called default.
const kubeNamespace = "SANDGLASS_NAMESPACE"

// A kind is a provider that the command knows.
type kind struct {
	name      string
	present   []string // if one of these is set, somebody means to use the provider
	variables []string // official names that an account of the file may set
	fromEnv   func(getenv func(string) string) (sandbox.Provider, error)
	named     func(name string, getenv func(string) string) (sandbox.Provider, error)
}

func kinds() []kind {
	return []kind{
		{
			name: "e2b", present: []string{"E2B_API_KEY"},
			variables: []string{"E2B_API_KEY", "E2B_DOMAIN", "E2B_API_URL", "E2B_SANDBOX_URL"},
			fromEnv:   func(func(string) string) (sandbox.Provider, error) { return provider(e2b.FromEnv()) },
			named: func(name string, getenv func(string) string) (sandbox.Provider, error) {
				return provider(e2b.New(e2b.Config{
					Name: name, APIKey: getenv("E2B_API_KEY"), Domain: getenv("E2B_DOMAIN"),
					APIURL: getenv("E2B_API_URL"), SandboxURL: getenv("E2B_SANDBOX_URL"),
				}))
			},
		},
		{
			name: "daytona", present: []string{"DAYTONA_API_KEY", "DAYTONA_JWT_TOKEN"},
			variables: []string{"DAYTONA_API_KEY", "DAYTONA_API_URL", "DAYTONA_TARGET", "DAYTONA_JWT_TOKEN", "DAYTONA_ORGANIZATION_ID"},
			fromEnv:   func(func(string) string) (sandbox.Provider, error) { return provider(daytona.FromEnv()) },
			named: func(name string, getenv func(string) string) (sandbox.Provider, error) {
				cfg := daytona.Config{
					Name: name, APIKey: getenv("DAYTONA_API_KEY"), BaseURL: getenv("DAYTONA_API_URL"), Target: getenv("DAYTONA_TARGET"),
				}
				if cfg.APIKey == "" {
					cfg.Token, cfg.Organization = getenv("DAYTONA_JWT_TOKEN"), getenv("DAYTONA_ORGANIZATION_ID")
				}
				return provider(daytona.New(cfg))
			},
		},
		{
			// A token of the platform's own (VERCEL_OIDC_TOKEN) says itself which account it is of: it is no matter for the file.
			name: "vercel", present: []string{"VERCEL_OIDC_TOKEN", "VERCEL_TOKEN"},
			variables: []string{"VERCEL_TOKEN", "VERCEL_TEAM_ID", "VERCEL_PROJECT_ID", VercelURL},
			fromEnv: func(getenv func(string) string) (sandbox.Provider, error) {
				if getenv(VercelURL) != "" {
					return vercelAt("", getenv)
				}
				return provider(vercel.FromEnv())
			},
			named: vercelAt,
		},
		{
			name: "boat", present: []string{"BOAT_API_KEY", "BOX_API_KEY"},
			variables: []string{"BOAT_API_KEY", "BOAT_BASE_URL"},
			fromEnv:   func(func(string) string) (sandbox.Provider, error) { return provider(boat.FromEnv()) },
			named: func(name string, getenv func(string) string) (sandbox.Provider, error) {
				return provider(boat.New(boat.Config{Name: name, APIKey: getenv("BOAT_API_KEY"), BaseURL: getenv("BOAT_BASE_URL")}))
			},
		},
		{
			name: "modal", present: []string{"MODAL_TOKEN_ID"},
			variables: []string{"MODAL_TOKEN_ID", "MODAL_TOKEN_SECRET", "MODAL_ENVIRONMENT", "MODAL_SERVER_URL"},
			fromEnv:   func(func(string) string) (sandbox.Provider, error) { return provider(modal.FromEnv()) },
			named: func(name string, getenv func(string) string) (sandbox.Provider, error) {
				return provider(modal.New(modal.Config{
					Name: name, TokenID: getenv("MODAL_TOKEN_ID"), TokenSecret: getenv("MODAL_TOKEN_SECRET"),
					Environment: getenv("MODAL_ENVIRONMENT"), ServerURL: getenv("MODAL_SERVER_URL"),
				}))
			},
		},
		{
			name: "docker", present: []string{"DOCKER_HOST"},
			variables: []string{"DOCKER_HOST"},
			fromEnv:   func(func(string) string) (sandbox.Provider, error) { return provider(docker.FromEnv()) },
			named: func(name string, getenv func(string) string) (sandbox.Provider, error) {
				return provider(docker.New(docker.Config{Name: name, Host: getenv("DOCKER_HOST")}))
			},
		},
		{
			// Whoever runs in a pod, or works on a cluster, need not want his sandboxes there: it has to be named.
			name: "kubernetes", variables: []string{"KUBECONFIG", kubeNamespace},
			fromEnv: func(func(string) string) (sandbox.Provider, error) { return provider(kubernetes.FromEnv()) },
			named: func(name string, getenv func(string) string) (sandbox.Provider, error) {
				cfg, err := kubernetes.InCluster()
				if file := getenv("KUBECONFIG"); file != "" {
					cfg, err = kubernetes.FromKubeconfig(file)
				}
				if err != nil {
					return nil, err
				}
				cfg.Name, cfg.Namespace = name, cmp.Or(getenv(kubeNamespace), cfg.Namespace)
				return provider(kubernetes.New(cfg))
			},
		},
	}
}

// provider keeps the nil of a failed constructor from becoming an interface that is none.
func provider[P sandbox.Provider](p P, err error) (sandbox.Provider, error) {
	if err != nil {
		return nil, err
	}
	return p, nil
}

func vercelAt(name string, getenv func(string) string) (sandbox.Provider, error) {
	return provider(vercel.New(vercel.Config{
		Name: name, Token: getenv("VERCEL_TOKEN"), Team: getenv("VERCEL_TEAM_ID"), Project: getenv("VERCEL_PROJECT_ID"),
		BaseURL: getenv(VercelURL),
	}))
}

func kindOf(name string) (kind, bool) {
	for _, k := range kinds() {
		if k.name == name {
			return k, true
		}
	}
	return kind{}, false
}

// Kinds returns the names of the providers that the command knows.
func Kinds() []string {
	var names []string
	for _, k := range kinds() {
		names = append(names, k.name)
	}
	return names
}

// Found reports whether a provider is found by its environment variables; another has to be named.
func Found(kindName string) bool {
	k, _ := kindOf(kindName)
	return len(k.present) > 0
}

// Variables returns the official environment names of a provider.
func Variables(kindName string) []string {
	k, _ := kindOf(kindName)
	return k.variables
}

// SandboxEnv returns, as NAME=value, the id of a sandbox under the names that a provider's own sandboxes and the programs
// written for it use. No official SDK reads any of them by itself; E2B, Daytona and Modal set theirs inside of a sandbox.
func SandboxEnv(kindName, id string) []string {
	switch kindName {
	case "e2b":
		return []string{"E2B_SANDBOX_ID=" + id}
	case "daytona":
		return []string{"DAYTONA_SANDBOX_ID=" + id}
	case "modal":
		return []string{"MODAL_SANDBOX_ID=" + id}
	case "vercel":
		name, session, _ := strings.Cut(id, "/") // the SDK's get takes the name
		return []string{"VERCEL_SANDBOX_NAME=" + name, "VERCEL_SANDBOX_ID=" + cmp.Or(session, name)}
	case "boat":
		return []string{"BOAT_SANDBOX_ID=" + id}
	}
	return nil
}

// MayDelete says what a successful check of an account tells of whether its key may delete: "yes", or why it is not
// knowable.
func MayDelete(kindName string, account sandbox.Account) string {
	switch kindName {
	case "e2b":
		return "yes" // keys have no scopes
	case "kubernetes":
		return "yes" // the check fails if a right is missing, and names it
	case "docker":
		return "yes" // the engine gives all rights to whoever reaches it
	case "daytona":
		if account.ID != "" { // the permissions were read, and the check fails if one is missing
			return "yes"
		}
		return "not knowable: a token's permissions cannot be read"
	}
	return fmt.Sprintf("not knowable: %s tells no key's rights", kindName)
}

// Survivor says what a process that outlives its run could still do to the life of its sandbox, if it holds the key.
func Survivor(kindName string) string {
	switch kindName {
	case "e2b":
		return "set the timeout anew, pause the sandbox (which has no end then) or resume it; traffic alone prolongs nothing"
	case "daytona":
		return "set the TTL anew; traffic alone prolongs nothing where the service has TTLs"
	case "vercel":
		return "extend the session, or start a new one under the name of an ended one"
	case "boat":
		return "set the TTL anew, or resume an archived sandbox"
	case "docker":
		return "whatever the engine allows; root inside the container can prolong it to its hard end"
	case "kubernetes":
		return "set the Job's deadline anew, to the pod's hard end, or suspend the Job, which then starts no more"
	case "modal":
		return "prolong it by commands, to its hard timeout"
	}
	return "whatever its key allows"
}
