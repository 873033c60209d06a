package providertest

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"strings"
	"sync"
	"time"

	"github.com/sandglass-dev/sandglass/sandbox"
)

func errorRules() []rule {
	return []rule{
		{"a call whose context is over returns its error at once", errorsOver},
		{"a call whose deadline has passed returns context.DeadlineExceeded", errorsDeadline},
		{"an error names provider, operation and sandbox", errorsNames},
		{"Name, Capabilities and Open make no request", errorsQuiet},
		{"all methods may be called concurrently", errorsConcurrent},
	}
}

// calls are all calls with a context, on the sandbox info.
func (t *trial) calls(p sandbox.Provider, info sandbox.Info, window time.Duration) map[string]func(context.Context) error {
	sb := p.Open(info)
	return map[string]func(context.Context) error{
		"Get": func(ctx context.Context) error {
			_, err := p.Get(ctx, info.ID)
			return err
		},
		"List": func(ctx context.Context) error {
			for _, err := range p.List(ctx, sandbox.Filter{Fleet: t.fleet}) {
				if err != nil {
					return err
				}
			}
			return nil
		},
		"Extend": func(ctx context.Context) error {
			_, err := p.Extend(ctx, info, window)
			return err
		},
		"Exec": func(ctx context.Context) error {
			_, err := sb.Exec(ctx, sandbox.Cmd{Args: []string{"sh", "-c", "echo x"}, Timeout: t.commandTime()})
			return err
		},
		"Upload": func(ctx context.Context) error {
			return sb.Upload(ctx, t.dir()+"/"+random(), strings.NewReader("x"))
		},
		"Download": func(ctx context.Context) error {
			return sb.Download(ctx, "/etc/providertest-missing", new(bytes.Buffer))
		},
	}
}

func errorsOver(t *trial) {
	info := t.running(t.make(t.request(t.long())))
	ctx, cancel := context.WithCancel(t.ctx)
	cancel()
	calls := t.calls(t.p, info, t.window)
	calls["Delete"] = func(ctx context.Context) error { return t.p.Delete(ctx, info.ID) }
	if t.caps.Endpoints {
		// An adapter that needs no request for it may answer, or find the port undeclared.
		calls["Endpoint"] = func(ctx context.Context) error {
			if _, err := t.p.Open(info).Endpoint(ctx, t.port()); err != nil && !errors.Is(err, sandbox.ErrInvalid) {
				return err
			}
			return context.Canceled
		}
	}
	for name, call := range calls {
		t.atOnce(name, func() {
			if err := call(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: error %v, want context.Canceled", name, err)
			}
		})
	}
	if s := t.state(info.ID); s != sandbox.StateRunning {
		t.Errorf("after calls that were over before they began the sandbox is %v", s)
	}
}

func errorsDeadline(t *trial) {
	info := t.any()
	ctx, cancel := context.WithDeadline(t.ctx, time.Now().Add(-time.Second))
	defer cancel()
	for name, call := range t.calls(t.p, info, t.window) {
		if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: error %v, want context.DeadlineExceeded", name, err)
		}
	}
}

func errorsNames(t *trial) {
	info := t.running(t.make(t.request(t.long())))
	at := time.Now()
	t.remove(info)
	_, err := t.p.Get(t.ctx, info.ID)
	if err != nil { // else the service keeps history, as StateGone
		if e := t.apiError(err, sandbox.OpGet, sandbox.ErrNotFound); e.ID != info.ID {
			t.Errorf("get: the error names %q, want %q", e.ID, info.ID)
		}
	}
	if e := t.apiError(t.p.Delete(t.ctx, info.ID), sandbox.OpDelete, sandbox.ErrNotFound); e.ID != info.ID {
		t.Errorf("delete: the error names %q, want %q", e.ID, info.ID)
	}
	if _, err := t.p.Extend(t.ctx, aged(info, at), t.window); err != nil {
		if e := t.extendError(err); e.ID != info.ID {
			t.Errorf("extend: the error names %q, want %q", e.ID, info.ID)
		}
	}
	sb := t.p.Open(info)
	_, err = sb.Exec(t.ctx, sandbox.Cmd{Args: []string{"pwd"}, Timeout: t.commandTime()})
	t.apiError(err, sandbox.OpExec)
	t.apiError(sb.Upload(t.ctx, "/tmp/x", strings.NewReader("x")), sandbox.OpUpload)
	err = sb.Download(t.ctx, "/tmp/x", new(bytes.Buffer))
	if t.apiError(err, sandbox.OpDownload); !errors.Is(err, sandbox.ErrNotFound) && errors.Is(err, fs.ErrNotExist) {
		t.Errorf("download from a sandbox that is gone: %v, which means that the file is missing", err)
	}
}

func errorsQuiet(t *trial) {
	if t.h.Requests == nil {
		t.Skipf("Harness.Requests is not set")
	}
	info := t.any()
	t.quietly("Name, Capabilities and Open", func() {
		t.p.Name()
		t.p.Capabilities()
		t.p.Open(info)
		t.p.Open(sandbox.Info{ID: info.ID}).ID()
		t.p.Open(sandbox.Info{ID: "no-such-sandbox"})
	})
}

func errorsConcurrent(t *trial) {
	info := t.running(t.make(t.request(t.long())))
	var wg sync.WaitGroup
	for name, call := range t.calls(t.p, info, t.long()) {
		wg.Go(func() { // each one after the other with itself: only one beat may be under way
			for range 3 {
				if err := call(t.ctx); err != nil && name != "Download" {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
	wg.Go(func() {
		other, err := t.try(t.request(t.long()))
		if err != nil {
			t.Errorf("Create: %v", err)
			return
		}
		if err := t.p.Delete(t.ctx, other.ID); err != nil && !errors.Is(err, sandbox.ErrConflict) {
			t.Errorf("Delete: %v", err)
		}
	})
	wg.Wait()
}
