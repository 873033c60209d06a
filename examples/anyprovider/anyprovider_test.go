package main

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/examples/internal/exampletest"
	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/internal/fake/boatfake"
	"github.com/sandglass-dev/sandglass/internal/fake/daytonafake"
	"github.com/sandglass-dev/sandglass/internal/fake/e2bfake"
	"github.com/sandglass-dev/sandglass/internal/fake/modalfake"
	"github.com/sandglass-dev/sandglass/internal/fake/vercelfake"
	"github.com/sandglass-dev/sandglass/internal/kubecluster"
	"github.com/sandglass-dev/sandglass/providers/boat"
	"github.com/sandglass-dev/sandglass/providers/daytona"
	"github.com/sandglass-dev/sandglass/providers/e2b"
	"github.com/sandglass-dev/sandglass/providers/kubernetes"
	"github.com/sandglass-dev/sandglass/providers/modal"
	"github.com/sandglass-dev/sandglass/providers/vercel"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// outcome is what the task prints, wherever it runs.
const outcome = `sh test.sh       exit 3     got 41, want 42
sh mend.sh       exit 0     
sh test.sh       exit 0     ok
sh -c kill -9 $$ exit 137   
sleep 600        timed out  
no-such-program  exit 127   
the answer       is         42
`

// server is a fake of a hosted service.
type server interface {
	http.Handler
	Service() *fake.Service
	Close()
}

// serve has a fake answer on a loopback address, and checks at the end of the test, by the service's own state, that
// nothing was left.
func serve(t *testing.T, s server) (base string) {
	t.Helper()
	srv := httptest.NewServer(s)
	t.Cleanup(func() {
		assert.Empty(t, s.Service().All(), "left")
		srv.Close()
		s.Close()
	})
	return srv.URL
}

func TestTheSameTaskHasTheSameOutcomeOnEveryProvider(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) (sandbox.Provider, error){
		"boat": func(t *testing.T) (sandbox.Provider, error) {
			const key = "boat_test"
			base := serve(t, boatfake.New(boatfake.Options{Key: key, Prompt: true}))
			return boat.New(boat.Config{APIKey: key, BaseURL: base + "/api/v1"})
		},
		"daytona": func(t *testing.T) (sandbox.Provider, error) {
			const key = "dtn_test"
			base := serve(t, daytonafake.New(daytonafake.Options{Key: key, Prompt: true}))
			return daytona.New(daytona.Config{APIKey: key, BaseURL: base + "/api"})
		},
		"docker": func(t *testing.T) (sandbox.Provider, error) {
			return exampletest.Engine(t), nil
		},
		"e2b": func(t *testing.T) (sandbox.Provider, error) {
			base := serve(t, e2bfake.New(e2bfake.Options{}))
			return e2b.New(e2b.Config{APIKey: e2bfake.DefaultKey, APIURL: base, SandboxURL: base})
		},
		"kubernetes": func(t *testing.T) (sandbox.Provider, error) {
			c, err := kubecluster.Start(t.Context(), kubecluster.Config{Node: true})
			if err != nil {
				kubecluster.Skip(t, err)
			}
			t.Cleanup(func() { assert.NoError(t, c.Close()) })
			ns := c.Namespace(t)
			token := c.User(t, ns, kubecluster.May("batch", "jobs", "create", "get", "list", "patch", "delete"),
				kubecluster.May("", "pods", "get", "list", "delete"), kubecluster.May("", "pods/exec", "get", "create"))
			t.Cleanup(func() {
				left, err := c.Objects(context.Background(), ns, "")
				assert.NoError(t, err)
				assert.Empty(t, left, "left")
			})
			return kubernetes.New(kubernetes.Config{
				BaseURL: c.URL(), CA: c.CA(), Namespace: ns, Tokens: func(context.Context) (string, error) { return token, nil },
			})
		},
		"memory": nil,
		"modal": func(t *testing.T) (sandbox.Provider, error) {
			s := modalfake.New(modalfake.Options{})
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			served := make(chan error, 1)
			go func() { served <- s.Serve(l) }()
			p, err := modal.New(modal.Config{
				TokenID: modalfake.DefaultTokenID, TokenSecret: modalfake.DefaultTokenSecret, ServerURL: "http://" + l.Addr().String(),
			})
			t.Cleanup(func() {
				assert.Empty(t, s.Service().All(), "left")
				p.Close()
				s.Close()
				assert.NoError(t, <-served)
			})
			return p, err
		},
		"vercel": func(t *testing.T) (sandbox.Provider, error) {
			base := serve(t, vercelfake.New(vercelfake.Options{}))
			return vercel.New(vercel.Config{
				Token: vercelfake.DefaultToken, Team: vercelfake.DefaultTeam().ID, Project: vercelfake.DefaultProject().ID, BaseURL: base,
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, known := services()[name]
			require.True(t, known)
			if open == nil {
				open = func(*testing.T) (sandbox.Provider, error) { return s.open() }
			}
			p, err := open(t)
			require.NoError(t, err)
			s.open = func() (sandbox.Provider, error) { return p, nil }
			if name == "kubernetes" {
				s.image = kubecluster.Image // its node can pull none
			}
			var out strings.Builder
			require.NoError(t, run(t.Context(), s, filepath.Join(t.TempDir(), "journal"), &out))
			assert.Equal(t, outcome, out.String())
			assert.Empty(t, exampletest.Left(t, p, "anyprovider", os.Getpid()))
		})
	}
}
