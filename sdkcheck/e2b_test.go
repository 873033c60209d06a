package sdkcheck_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/internal/fake/e2bfake"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// An e2bLine is a line of the SDK, by its name in package.json, and what is its own on the wire. Up to 2.50.0 the SDK
// speaks the first dialect of creating and connecting, from 2.51.0 on the second. All else is the same in both.
type e2bLine struct {
	name            string
	create, connect string // requests; * is the id
}

var e2bLines = []e2bLine{
	{name: "e2b-v1", create: "POST /sandboxes", connect: "POST /sandboxes/*/connect"},
	{name: "e2b-v2", create: "POST /v2/sandboxes", connect: "POST /v2/sandboxes/*/connect"},
}

// An e2b is one line of the SDK that talks to a fake of its own.
type e2b struct {
	*sdk
	e2bLine
	wire   *wire
	server *e2bfake.Server
	svc    *fake.Service
}

func TestE2B(t *testing.T) {
	for _, line := range e2bLines {
		t.Run(line.name, func(t *testing.T) {
			t.Parallel()
			program := start(t, "e2b.mjs", line.name)
			for rule, hold := range map[string]func(*testing.T, e2b){
				"a create is one request and made as asked":                        e2bCreate,
				"without a timeout a sandbox has five minutes":                     e2bDefaultTimeout,
				"commands run as the SDK asks":                                     e2bCommands,
				"a command in the background is fed, left, found again and killed": e2bBackground,
				"files arrive and come back":                                       e2bFiles,
				"setTimeout moves the end both ways":                               e2bSetTimeout,
				"a list by metadata goes through all pages":                        e2bList,
				"a paused sandbox stays and runs again on connect":                 e2bPause,
				"a connect to a running sandbox never shortens":                    e2bConnect,
				"only the first kill finds a sandbox":                              e2bKill,
				"an expired sandbox is gone":                                       e2bExpiry,
				"a sandbox that pauses at its end is still there":                  e2bPauseAtTheEnd,
				"a command ends with its sandbox":                                  e2bDeath,
				"a sandbox whose kill failed may run unseen":                       e2bOrphan,
				"an error has the class that users catch":                          e2bErrors,
			} {
				t.Run(rule, func(t *testing.T) {
					hold(t, newE2B(t, line, program, options{}))
				})
			}
		})
	}
}

func newE2B(t *testing.T, line e2bLine, program *sdk, env options) e2b {
	t.Helper()
	server := e2bfake.New(e2bfake.Options{Key: "e2b_sdkcheck"})
	t.Cleanup(server.Close)
	w := serve(t, server)
	s := program.In(t, env.With("E2B_API_KEY", "e2b_sdkcheck").With("E2B_API_URL", w.URL).With("E2B_SANDBOX_URL", w.URL))
	return e2b{s, line, w, server, server.Service()}
}

// Why no test of ours may run with that variable set.
func TestE2B20WithE2BDebugTheSDKClaimsWhatItNeverAskedFor(t *testing.T) {
	t.Parallel()
	line := e2bLines[1]
	e := newE2B(t, line, start(t, "e2b.mjs", line.name), options{"E2B_DEBUG": "true"})
	calls := e.wire.since(func() {
		id := ask[string](e.sdk, "create", "base", options{})
		assert.True(t, ask[bool](e.sdk, "kill", id))
	})
	assert.Empty(t, calls)
	assert.Empty(t, e.server.Sandboxes())
}

// metadata returns options that hold key and value pairs.
func metadata(pairs ...string) options {
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return options{"metadata": m}
}

// truth returns what the fake knows of a sandbox.
func (e e2b) truth(id string) fake.Record {
	e.T.Helper()
	r, ok := e.server.Sandbox(id)
	require.True(e.T, ok, "the fake knows no %q", id)
	return r
}

// generic puts * for the ids in requests.
func generic(calls []string) []string {
	var all []string
	for _, line := range calls {
		all = append(all, regexp.MustCompile(`/i[a-z0-9]{20}\b`).ReplaceAllString(line, "/*"))
	}
	return all
}

// An e2bInfo is what the SDK reports of a sandbox.
type e2bInfo struct {
	SandboxID, TemplateID, Name, State string
	Metadata                           map[string]string
	StartedAt, EndAt                   time.Time
	CPUCount, MemoryMB                 int
	EnvdVersion                        string
}

// same holds what the SDK reports against what the fake knows. The SDK keeps times in milliseconds.
func (e e2b) same(r fake.Record, info e2bInfo) {
	e.T.Helper()
	assert.Equal(e.T, r.ID, info.SandboxID)
	assert.Equal(e.T, map[sandbox.State]string{sandbox.StateRunning: "running", sandbox.StateDormant: "paused"}[r.State], info.State)
	assert.Equal(e.T, len(r.Tags), len(info.Metadata))
	for key, value := range r.Tags {
		assert.Equal(e.T, value, info.Metadata[key], key)
	}
	if r.State == sandbox.StateRunning {
		assert.Equal(e.T, r.Deadline.UTC().Truncate(time.Millisecond), info.EndAt)
	}
	assert.False(e.T, info.StartedAt.IsZero())
	assert.Positive(e.T, info.CPUCount)
	assert.Positive(e.T, info.MemoryMB)
	assert.NotEmpty(e.T, info.TemplateID)
}

func e2bCreate(t *testing.T, e e2b) {
	var id string
	calls := e.wire.since(func() {
		id = ask[string](e.sdk, "create", "base", metadata("run", "r1").With("timeoutMs", 90_500))
	})
	assert.Equal(t, []string{e.create}, calls)
	r := e.truth(id)
	assert.Equal(t, sandbox.StateRunning, r.State)
	assert.Equal(t, map[string]string{"run": "r1"}, r.Tags)
	assert.Equal(t, 91*time.Second, r.Deadline.Sub(r.Created), "whole seconds, rounded up")
	e.same(r, ask[e2bInfo](e.sdk, "info", id))
	e.same(r, ask[e2bInfo](e.sdk, "infoByID", id))
	assert.Len(t, e.server.Sandboxes(), 1)
}

func e2bDefaultTimeout(t *testing.T, e e2b) {
	r := e.truth(ask[string](e.sdk, "create", "base", options{}))
	assert.Equal(t, 5*time.Minute, r.Deadline.Sub(r.Created), "the first line sends it, the second leaves it to the service")
	assert.Empty(t, r.Tags)
}

// A result is what the SDK reports of a command.
type result struct {
	ExitCode       int
	Stdout, Stderr string
}

func e2bCommands(t *testing.T, e e2b) {
	id := ask[string](e.sdk, "create", "base", options{"envs": options{"FROM": "create"}})

	assert.Equal(t, result{Stdout: "hi\n"}, ask[result](e.sdk, "run", id, "echo hi"))
	assert.Equal(t, result{Stdout: "/tmp create run\n"},
		ask[result](e.sdk, "run", id, `echo $PWD $FROM $MORE`, options{"cwd": "/tmp", "envs": options{"MORE": "run"}}))
	assert.Equal(t, result{Stdout: "root\n"}, ask[result](e.sdk, "run", id, "id -un", options{"user": "root"}))
	assert.Equal(t, result{Stdout: "user\n"}, ask[result](e.sdk, "run", id, "id -un"))

	failed := e.Fails("CommandExitError", "run", id, "echo out; echo err >&2; exit 7")
	assert.Equal(t, 7, failed.ExitCode)
	assert.Equal(t, "out\n", failed.Stdout)
	assert.Equal(t, "err\n", failed.Stderr)

	heard := ask[[][2]string](e.sdk, "stream", id, "echo one; sleep 0.1; echo two >&2; sleep 0.1; echo drei: ß")
	assert.Equal(t, [][2]string{{"stdout", "one\n"}, {"stderr", "two\n"}, {"stdout", "drei: ß\n"}}, heard)

	long := ask[result](e.sdk, "run", id, "seq 100000")
	assert.Equal(t, 588_895, len(long.Stdout), "across many messages of the stream")
	assert.True(t, strings.HasSuffix(long.Stdout, "\n99999\n100000\n"))

	late := e.Fails("TimeoutError", "run", id, "sleep 600", options{"timeoutMs": 300})
	assert.Contains(t, late.Message, "deadline_exceeded")
}

func e2bBackground(t *testing.T, e e2b) {
	id := ask[string](e.sdk, "create", "base", options{})
	pid := ask[int](e.sdk, "start", id, "cat; echo end", options{"stdin": true})
	assert.Equal(t, []int{pid}, ask[[]int](e.sdk, "processes", id))
	e.Must("sendStdin", id, pid, "fed\n")
	e.Must("closeStdin", id, pid)
	assert.Equal(t, "fed\nend\n", ask[result](e.sdk, "wait", pid).Stdout)

	pid = ask[int](e.sdk, "start", id, "sleep 600", options{"timeoutMs": 0})
	e.Must("disconnect", pid)
	assert.Equal(t, []int{pid}, ask[[]int](e.sdk, "processes", id), "the command goes on without a listener")
	e.Must("reconnect", id, pid)
	assert.True(t, ask[bool](e.sdk, "killProcess", id, pid))
	assert.NotZero(t, e.Fails("CommandExitError", "wait", pid).ExitCode)
	assert.Empty(t, ask[[]int](e.sdk, "processes", id))
	assert.False(t, ask[bool](e.sdk, "killProcess", id, pid), "it is gone")
}

func e2bFiles(t *testing.T, e e2b) {
	type file struct {
		Name, Path, Type string
		Size             int
	}
	id := ask[string](e.sdk, "create", "base", options{})
	assert.Equal(t, file{"a.txt", "/tmp/new/a.txt", "file", 0}, ask[file](e.sdk, "write", id, "/tmp/new/a.txt", "content"))
	assert.Equal(t, "content", ask[string](e.sdk, "read", id, "/tmp/new/a.txt"))
	assert.Equal(t, []int{99, 111, 110}, ask[[]int](e.sdk, "readBytes", id, "/tmp/new/a.txt")[:3])
	assert.Equal(t, "content", ask[result](e.sdk, "run", id, "cat /tmp/new/a.txt").Stdout, "commands and files see one disk")
	two := []options{{"path": "/tmp/b c", "data": "1"}, {"path": "/tmp/d", "data": "22"}}
	assert.Len(t, ask[[]file](e.sdk, "writeMany", id, two), 2)
	assert.Equal(t, "22", ask[string](e.sdk, "read", id, "/tmp/d"))
	e.Must("writeStream", id, "/tmp/stream", "streamed")
	assert.Equal(t, "streamed", ask[string](e.sdk, "read", id, "/tmp/stream"))
	e.Must("write", id, "/tmp/empty", "")
	assert.Equal(t, "", ask[string](e.sdk, "read", id, "/tmp/empty"))

	assert.True(t, ask[bool](e.sdk, "exists", id, "/tmp/b c"))
	assert.False(t, ask[bool](e.sdk, "exists", id, "/tmp/none"))
	e.Fails("FileNotFoundError", "read", id, "/tmp/none")
	assert.Equal(t, file{"a.txt", "/tmp/new/a.txt", "file", 7}, ask[file](e.sdk, "stat", id, "/tmp/new/a.txt"))
	assert.True(t, ask[bool](e.sdk, "makeDir", id, "/tmp/dir"))
	assert.False(t, ask[bool](e.sdk, "makeDir", id, "/tmp/dir"), "it was there")
	e.Must("rename", id, "/tmp/d", "/tmp/dir/d")
	assert.Equal(t, []file{{"d", "/tmp/dir/d", "file", 2}}, ask[[]file](e.sdk, "listDir", id, "/tmp/dir"))
	e.Must("remove", id, "/tmp/dir/d")
	assert.Empty(t, ask[[]file](e.sdk, "listDir", id, "/tmp/dir"))
}

func e2bSetTimeout(t *testing.T, e e2b) {
	id := ask[string](e.sdk, "create", "base", options{"timeoutMs": 60_000})
	for _, ms := range []int{600_000, 30_000} {
		before := e.svc.Now()
		e.Must("setTimeout", id, ms)
		end := e.truth(id).Deadline.Add(-time.Duration(ms) * time.Millisecond)
		assert.False(t, end.Before(before) || end.After(e.svc.Now()), "counted from now")
		e.same(e.truth(id), ask[e2bInfo](e.sdk, "info", id))
	}
}

func e2bList(t *testing.T, e e2b) {
	// What has a meaning in URLs must come through each of the three encodings.
	mark := metadata("a.run", "a b&c=d/é+%2F,?#", "k&=% +", "x")
	want := map[string]bool{}
	for range 5 {
		want[ask[string](e.sdk, "create", "base", mark)] = true
	}
	e.Must("create", "base", options{})
	e.Must("create", "base", metadata("a.run", "a b&c=d/é+%2F,?#"))
	e.Must("create", "base", metadata("a.run", "a b&c=d/é+%2F,?", "k&=% +", "x"))

	pages := ask[[][]e2bInfo](e.sdk, "pages", wrapped(mark.With("limit", 2)))
	var sizes []int
	for _, page := range pages {
		sizes = append(sizes, len(page))
		for _, info := range page {
			require.True(t, want[info.SandboxID], "%v: found twice, or should not be", info)
			delete(want, info.SandboxID)
			e.same(e.truth(info.SandboxID), info)
		}
	}
	assert.Empty(t, want, "missing")
	assert.Equal(t, []int{2, 2, 1}, sizes)

	all := slices.Concat(ask[[][]e2bInfo](e.sdk, "pages", options{})...)
	assert.Len(t, all, len(e.server.Sandboxes()))
}

// wrapped gives the filter of a list the form that the SDK wants.
func wrapped(o options) options {
	return options{"limit": o["limit"], "query": options{"metadata": o["metadata"], "state": o["state"]}}
}

func e2bPause(t *testing.T, e e2b) {
	id := ask[string](e.sdk, "create", "base", metadata("run", "r1"))
	e.Must("write", id, "/tmp/kept", "kept")
	assert.True(t, ask[bool](e.sdk, "isRunning", id))
	assert.True(t, ask[bool](e.sdk, "pause", id))
	assert.Equal(t, sandbox.StateDormant, e.truth(id).State)
	assert.False(t, ask[bool](e.sdk, "pause", id), "it was paused")
	assert.False(t, ask[bool](e.sdk, "isRunning", id))
	e.same(e.truth(id), ask[e2bInfo](e.sdk, "info", id))
	e.Fails("SandboxNotFoundError", "setTimeout", id, 60_000)
	assert.Equal(t, sandbox.StateDormant, e.truth(id).State, "that was no proof of its end")

	list := func(states ...string) int {
		return len(slices.Concat(ask[[][]e2bInfo](e.sdk, "pages", wrapped(metadata("run", "r1").With("state", states)))...))
	}
	assert.Equal(t, 0, list("running"))
	assert.Equal(t, 1, list("paused"))
	assert.Equal(t, 1, list("running", "paused"))

	before := e.svc.Now()
	calls := e.wire.since(func() { e.Must("connect", id, options{"timeoutMs": 120_000}) })
	assert.Equal(t, []string{e.connect}, generic(calls))
	r := e.truth(id)
	assert.Equal(t, sandbox.StateRunning, r.State)
	assert.False(t, r.Deadline.Before(before.Add(2*time.Minute)))
	assert.Equal(t, "kept", ask[string](e.sdk, "read", id, "/tmp/kept"))

	e.Must("pause", id)
	assert.True(t, ask[bool](e.sdk, "kill", id), "without running again")
	assert.Equal(t, sandbox.StateGone, e.truth(id).State)
}

func e2bConnect(t *testing.T, e e2b) {
	id := ask[string](e.sdk, "create", "base", options{"timeoutMs": 600_000})
	end := e.truth(id).Deadline
	e.Must("connect", id, options{"timeoutMs": 60_000})
	e.Must("connect", id)
	assert.Equal(t, end, e.truth(id).Deadline)
	e.Must("connect", id, options{"timeoutMs": 900_000})
	assert.True(t, e.truth(id).Deadline.After(end))
	e.Must("pause", id)
	e.Must("connect", id)
	r := e.truth(id)
	assert.WithinDuration(t, e.svc.Now().Add(5*time.Minute), r.Deadline, 30*time.Second, "the default of a connect")
}

func e2bKill(t *testing.T, e e2b) {
	id := ask[string](e.sdk, "create", "base", options{})
	calls := e.wire.since(func() { assert.True(t, ask[bool](e.sdk, "kill", id)) })
	assert.Equal(t, []string{"DELETE /sandboxes/*"}, generic(calls))
	assert.Equal(t, sandbox.StateGone, e.truth(id).State)
	e.gone(id)
}

// gone holds that the SDK has it that there is no such sandbox.
func (e e2b) gone(id string) {
	e.T.Helper()
	assert.False(e.T, ask[bool](e.sdk, "kill", id))
	assert.False(e.T, ask[bool](e.sdk, "killByID", id))
	assert.False(e.T, ask[bool](e.sdk, "isRunning", id))
	e.Fails("SandboxNotFoundError", "info", id)
	e.Fails("SandboxNotFoundError", "setTimeout", id, 60_000)
	e.Fails("SandboxNotFoundError", "connect", id)
	e.Fails("SandboxNotFoundError", "run", id, "true")
	e.Fails("TimeoutError", "read", id, "/etc/passwd") // so the SDK calls the proxy's answer for what is not there
	for _, info := range slices.Concat(ask[[][]e2bInfo](e.sdk, "pages", options{})...) {
		assert.NotEqual(e.T, id, info.SandboxID)
	}
}

func e2bExpiry(t *testing.T, e e2b) {
	id := ask[string](e.sdk, "create", "base", options{"timeoutMs": 60_000, "lifecycle": options{"onTimeout": "kill"}})
	e.svc.Advance(30 * time.Second)
	assert.True(t, ask[bool](e.sdk, "isRunning", id))
	e.svc.Advance(31 * time.Second)
	assert.Equal(t, sandbox.StateGone, e.truth(id).State)
	e.gone(id)
}

func e2bPauseAtTheEnd(t *testing.T, e e2b) {
	id := ask[string](e.sdk, "create", "base", options{"timeoutMs": 1000, "lifecycle": options{"onTimeout": "pause"}})
	require.Eventually(t, func() bool { return e.truth(id).State == sandbox.StateDormant }, time.Minute, 50*time.Millisecond)
	e.svc.Advance(24 * time.Hour)
	assert.Equal(t, "paused", ask[e2bInfo](e.sdk, "info", id).State)
	assert.True(t, ask[bool](e.sdk, "kill", id))
	e.gone(id)
}

func e2bDeath(t *testing.T, e e2b) {
	id := ask[string](e.sdk, "create", "base", options{})
	pid := ask[int](e.sdk, "start", id, "sleep 600", options{"timeoutMs": 0})
	require.True(t, e.svc.Kill(e.server.ServiceID(id)))
	e.Fails("TimeoutError", "wait", pid)
	e.gone(id)
}

func e2bErrors(t *testing.T, e e2b) {
	e.Fails("SandboxNotFoundError", "infoByID", "i00000000000000000000")
	assert.False(t, ask[bool](e.sdk, "killByID", "i00000000000000000000"))
	e.Fails("SandboxError", "create", "no-such-template", options{})
	assert.Empty(t, e.server.Sandboxes())

	e.svc.Behave(func(b *fake.Behaviour) { b.MaxLive = 1 })
	id := ask[string](e.sdk, "create", "base", options{})
	e.Fails("RateLimitError", "create", "base", options{})
	assert.Len(t, e.server.Sandboxes(), 1)

	e.svc.Fault(sandbox.OpDelete, fake.Fault{Err: &sandbox.APIError{Status: 503, Kind: sandbox.ErrUnavailable}})
	e.Fails("ServiceBusyError", "kill", id)
	e.server.SetKey("e2b_another")
	e.Fails("AuthenticationError", "kill", id)
	e.Fails("AuthenticationError", "create", "base", options{})
	assert.Equal(t, sandbox.StateRunning, e.truth(id).State)
}

// The service forgets a sandbox of which its node said no. The SDK then has it that there is none, and it runs.
func e2bOrphan(t *testing.T, e e2b) {
	id := ask[string](e.sdk, "create", "base", options{})
	e.svc.Fault(sandbox.OpDelete, fake.Fault{
		Effect: fake.EffectOrphan, After: true, Err: &sandbox.APIError{Status: 500, Kind: sandbox.ErrUnavailable},
	})
	e.Fails("SandboxError", "kill", id)
	e.gone(id)
	assert.True(t, e.truth(id).Lost)
}
