package providertest_test

import (
	"context"
	"io"
	"iter"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/providers/providertest"
	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxtest"
)

// brokenEnv names the defect for a child process of [TestTheSuiteFindsEveryDefect].
const brokenEnv = "PROVIDERTEST_DEFECT"

// TestBroken runs the suite on an adapter with one defect, and is meant to fail. It does so in a child process only.
func TestBroken(t *testing.T) {
	name := os.Getenv(brokenEnv)
	if name == "" {
		t.Skip("for the child processes of TestTheSuiteFindsEveryDefect")
	}
	for _, d := range defects() {
		if d.name == name {
			providertest.Run(t, d.harness())
			return
		}
	}
	t.Fatalf("no defect %q", name)
}

func TestTheSuiteFindsEveryDefect(t *testing.T) {
	exe, err := os.Executable()
	require.NoError(t, err)
	for _, d := range defects() {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			topic, rule, _ := strings.Cut(d.rule, "/")
			rule = strings.ReplaceAll(rule, " ", "_")
			run := "^TestBroken$"
			if d.rule != "" {
				run += "/^" + regexp.QuoteMeta(topic) + "$/^" + regexp.QuoteMeta(rule) + "$"
			}
			cmd := exec.CommandContext(t.Context(), exe, "-test.run="+run, "-test.timeout=15m")
			cmd.Env = append(os.Environ(), brokenEnv+"="+d.name)
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if d.rule == "" {
				require.NoErrorf(t, err, "a sound adapter, tried in the same way, must pass:\n%s", out)
				return
			}
			require.ErrorAsf(t, err, &exit, "the suite finds nothing:\n%s", out)
			assert.Contains(t, string(out), "--- FAIL: TestBroken/"+topic+"/"+rule+" (", "the suite fails, but not with this rule")
		})
	}
}

// A defect is what is wrong with an otherwise good adapter, and the rule that must find it.
type defect struct {
	name   string
	rule   string                                    // topic/rule; empty: none, there is no defect
	facts  func(*sandbox.Capabilities)               // what the service can really do
	habits func(*sandboxtest.Behaviour)              // how it does that
	breaks func(p *sandboxtest.Provider, b *adapter) // what the adapter does to it
}

func (d defect) harness() providertest.Harness {
	facts := sandboxtest.Everything()
	if d.facts != nil {
		d.facts(&facts)
	}
	h := inMemory(func() *sandboxtest.Provider { return sandboxtest.New(facts) })
	h.Made = func(_ *testing.T, p sandbox.Provider, id string) sandbox.Spec {
		spec, _ := p.(*adapter).made.Load(id)
		s, _ := spec.(sandbox.Spec)
		return s
	}
	sound := h.New
	h.New = func(t *testing.T) sandbox.Provider {
		p := memory(sound(t))
		if d.habits != nil {
			p.Behave(d.habits)
		}
		b := &adapter{Provider: p, facts: facts}
		if d.breaks != nil {
			d.breaks(p, b)
		}
		return b
	}
	return h
}

// An adapter passes everything on but what is replaced.
type adapter struct {
	sandbox.Provider
	facts  sandbox.Capabilities
	create func(context.Context, sandbox.CreateRequest) (sandbox.Info, error)
	get    func(context.Context, string) (sandbox.Info, error)
	list   func(context.Context, sandbox.Filter) iter.Seq2[sandbox.Info, error]
	extend func(context.Context, sandbox.Info, time.Duration) (sandbox.Info, error)
	del    func(context.Context, string) error
	open   func(sandbox.Info) sandbox.Sandbox
	box    box
	made   sync.Map // ID to the Spec that the service was asked for
}

func (a *adapter) Unwrap() sandbox.Provider           { return a.Provider }
func (a *adapter) Capabilities() sandbox.Capabilities { return a.facts }

func (a *adapter) Create(ctx context.Context, req sandbox.CreateRequest) (sandbox.Info, error) {
	if a.create != nil {
		return a.create(ctx, req)
	}
	info, err := a.Provider.Create(ctx, req)
	a.made.Store(info.ID, req.Spec)
	return info, err
}

func (a *adapter) Get(ctx context.Context, id string) (sandbox.Info, error) {
	if a.get != nil {
		return a.get(ctx, id)
	}
	return a.Provider.Get(ctx, id)
}

func (a *adapter) List(ctx context.Context, f sandbox.Filter) iter.Seq2[sandbox.Info, error] {
	if a.list != nil {
		return a.list(ctx, f)
	}
	return a.Provider.List(ctx, f)
}

func (a *adapter) Extend(ctx context.Context, cur sandbox.Info, w time.Duration) (sandbox.Info, error) {
	if a.extend != nil {
		return a.extend(ctx, cur, w)
	}
	return a.Provider.Extend(ctx, cur, w)
}

func (a *adapter) Delete(ctx context.Context, id string) error {
	if a.del != nil {
		return a.del(ctx, id)
	}
	return a.Provider.Delete(ctx, id)
}

func (a *adapter) Open(info sandbox.Info) sandbox.Sandbox {
	if a.open != nil {
		return a.open(info)
	}
	b := a.box
	b.Sandbox = a.Provider.Open(info)
	return &b
}

// A box passes everything on but what is replaced; each replacement gets the sound one.
type box struct {
	sandbox.Sandbox
	exec     func(context.Context, sandbox.Sandbox, sandbox.Cmd) (sandbox.Result, error)
	upload   func(context.Context, sandbox.Sandbox, string, io.Reader) error
	download func(context.Context, sandbox.Sandbox, string, io.Writer) error
	endpoint func(context.Context, sandbox.Sandbox, int) (sandbox.Endpoint, error)
}

func (b *box) Unwrap() sandbox.Sandbox { return b.Sandbox }

func (b *box) Exec(ctx context.Context, cmd sandbox.Cmd) (sandbox.Result, error) {
	if b.exec != nil {
		return b.exec(ctx, b.Sandbox, cmd)
	}
	return b.Sandbox.Exec(ctx, cmd)
}

func (b *box) Upload(ctx context.Context, name string, r io.Reader) error {
	if b.upload != nil {
		return b.upload(ctx, b.Sandbox, name, r)
	}
	return b.Sandbox.Upload(ctx, name, r)
}

func (b *box) Download(ctx context.Context, name string, w io.Writer) error {
	if b.download != nil {
		return b.download(ctx, b.Sandbox, name, w)
	}
	return b.Sandbox.Download(ctx, name, w)
}

func (b *box) Endpoint(ctx context.Context, port int) (sandbox.Endpoint, error) {
	if b.endpoint != nil {
		return b.endpoint(ctx, b.Sandbox, port)
	}
	return b.Sandbox.Endpoint(ctx, port)
}
