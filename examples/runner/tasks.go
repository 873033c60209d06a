package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/sandglass-dev/sandglass/sandbox"
)

const maxScript = 1 << 20 // bytes

// A runner runs tasks, each in a sandbox of its own.
type runner struct {
	m       *sandbox.Manager
	slots   chan struct{} // one element a task
	overdue time.Duration // after which a task should long have come back, whatever has happened

	mu    sync.Mutex
	began map[*http.Request]time.Time // of the tasks under way
}

func newRunner(m *sandbox.Manager, tasks int, overdue time.Duration) *runner {
	return &runner{m: m, slots: make(chan struct{}, tasks), overdue: overdue, began: map[*http.Request]time.Time{}}
}

// overdue returns how long a task of the given limit can take, all of its sandbox's life included, and a minute more. An
// answer that never came is looked for as well.
func overdue(limit time.Duration) time.Duration {
	return limit + 2*createTimeout + readyTimeout + taskGrace + cleanupTimeout + time.Minute
}

// routes returns what is served until stopping is closed, and what is said from then on.
func (r *runner) routes(stopping <-chan struct{}) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /tasks", r.task)
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		if n := r.stuck(); n > 0 {
			http.Error(w, fmt.Sprintf("%d tasks are past their limit", n), http.StatusInternalServerError)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		select {
		case <-stopping:
			http.Error(w, "shutting down", http.StatusServiceUnavailable)
		default:
			fmt.Fprintln(w, "ok")
		}
	})
	return mux
}

// stuck returns how many tasks should long have ended. That is this program's fault, and a new process is the cure: every
// call has a limit of its own. An API server that does not answer is no reason, since no new process would help. What
// makes a process not answer at all, the probe's own timeout finds.
func (r *runner) stuck() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, began := range r.began {
		if time.Since(began) > r.overdue {
			n++
		}
	}
	return n
}

// An answer is what became of a task.
type answer struct {
	Sandbox  string `json:"sandbox,omitempty"`
	ExitCode int    `json:"exit_code"` // -1: it has none
	Stdout   string `json:"stdout,omitempty"`
	Stderr   string `json:"stderr,omitempty"`
	Error    string `json:"error,omitempty"` // why there is no exit code, or what may be left
}

// task runs the request's body as a shell's script. The sandbox ends with the task, or with the request if that goes first.
func (r *runner) task(w http.ResponseWriter, req *http.Request) {
	select { // before the script is read: no more of them are held than there are slots
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	default:
		w.Header().Set("Retry-After", "1")
		reply(w, http.StatusTooManyRequests, answer{ExitCode: -1, Error: "all slots are taken"})
		return
	}
	script, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxScript))
	if err != nil || len(script) == 0 {
		reply(w, http.StatusBadRequest, answer{ExitCode: -1, Error: "the body is to be a script of up to 1 MiB, and to be there within " + readTimeout.String()})
		return
	}
	r.note(req, time.Now())
	defer r.note(req, time.Time{})

	a := answer{ExitCode: -1}
	err = r.m.WithSandbox(req.Context(), func(ctx context.Context, sb sandbox.Sandbox) error {
		a.Sandbox = sb.ID()
		res, err := sb.Exec(ctx, sandbox.Shell(string(script)))
		if err == nil {
			a.ExitCode, a.Stdout, a.Stderr = res.ExitCode, string(res.Stdout), string(res.Stderr)
		}
		if err == nil && res.TimedOut {
			err = fmt.Errorf("%w: the command was killed", sandbox.ErrMaxLifetime)
		}
		return err
	}, func(s *sandbox.Scope) { s.Spec.Offline = req.URL.Query().Has("offline") })
	code := http.StatusOK
	if err != nil {
		a.Error = err.Error()
		switch {
		case errors.Is(err, sandbox.ErrShutdown):
			code = http.StatusServiceUnavailable
		case errors.Is(err, sandbox.ErrMaxLifetime):
			code = http.StatusGatewayTimeout
		default:
			code = http.StatusBadGateway
		}
	}
	reply(w, code, a)
}

// note keeps when a task began; zero: it has ended.
func (r *runner) note(req *http.Request, began time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if began.IsZero() {
		delete(r.began, req)
	} else {
		r.began[req] = began
	}
}

func reply(w http.ResponseWriter, code int, a answer) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(a) // who has left does not read it
}
