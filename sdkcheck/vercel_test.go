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
	"github.com/sandglass-dev/sandglass/internal/fake/vercelfake"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// A vercel is the SDK that talks to a fake of its own.
type vercel struct {
	*sdk
	wire   *wire
	server *vercelfake.Server
	svc    *fake.Service
}

func TestVercel(t *testing.T) {
	t.Parallel()
	program := start(t, "vercel.mjs", "@vercel/sandbox")
	for rule, hold := range map[string]func(*testing.T, vercel){
		"a create is one request and made as asked":                      vercelCreate,
		"without options a sandbox has five minutes and keeps its files": vercelDefaults,
		"a taken name is refused and makes nothing":                      vercelTakenName,
		"commands run as the SDK asks":                                   vercelCommands,
		"a detached command is followed, found again and killed":         vercelDetached,
		"files arrive and come back":                                     vercelFiles,
		"an extend adds, and nothing takes away":                         vercelExtend,
		"a list by tag goes through all pages":                           vercelList,
		"a get looks, and wakes only if it is to":                        vercelGet,
		"a stop keeps the record":                                        vercelStop,
		"the end of a block stops and deletes nothing":                   vercelDispose,
		"a resume of a name starts another session":                      vercelResume,
		"a sandbox that stops meanwhile is resumed by what comes next":   vercelRevival,
		"a snapshot outlives its sandbox unless deleted with it":         vercelSnapshot,
		"a fork has the tags of its source and a life of its own":        vercelFork,
		"only the first delete finds a sandbox":                          vercelDelete,
		"an expired session is over and its record stays":                vercelExpiry,
		"a command ends with its session":                                vercelDeath,
		"a create whose answer is lost leaves a sandbox":                 vercelLostCreate,
		"a create that is given up leaves a sandbox":                     vercelAbortedCreate,
		"an error has the status and code that users look at":            vercelErrors,
	} {
		t.Run(rule, func(t *testing.T) {
			hold(t, newVercel(t, program))
		})
	}
}

func newVercel(t *testing.T, program *sdk) vercel {
	t.Helper()
	server := vercelfake.New(vercelfake.Options{})
	t.Cleanup(server.Close)
	w := serve(t, server)
	return vercel{program.In(t, vercelAccess(w)), w, server, server.Service()}
}

func vercelAccess(w *wire) options {
	return options{
		"url": w.URL, "token": vercelfake.DefaultToken,
		"teamId": vercelfake.DefaultTeam().ID, "projectId": vercelfake.DefaultProject().ID,
	}
}

// A vercelInfo is what the SDK reports of a sandbox and its session.
type vercelInfo struct {
	Name, SessionID, Status string
	Persistent              bool
	Tags                    map[string]string
	Timeout, SessionTimeout int64 // of the next session and of this one, in ms
	CreatedAt, ExpiresAt    time.Time
	Image, Runtime          string
	VCPUs, Memory           int
	CurrentSnapshotID       string // that the next session begins with
	SourceSnapshotID        string // that this one began with
}

// A vercelRow is what the SDK reports of a sandbox in a list.
type vercelRow struct {
	Name, CurrentSessionID, Status string
	Persistent                     bool
	Tags                           map[string]string
	ExpiresAt                      int64
}

// truth returns what the fake knows of a sandbox by its name or of one's session.
func (v vercel) truth(ref string) vercelfake.Truth {
	v.T.Helper()
	truth, ok := v.server.Lookup(ref)
	require.True(v.T, ok, "the fake knows no %q", ref)
	return truth
}

// create makes a sandbox that keeps no files, and returns its name.
func (v vercel) create(params options) string {
	v.T.Helper()
	return ask[vercelInfo](v.sdk, "create", params.With("persistent", false)).Name
}

// same holds what the SDK reports against what the fake knows. The SDK keeps times in milliseconds.
func (v vercel) same(truth vercelfake.Truth, info vercelInfo) {
	v.T.Helper()
	assert.Equal(v.T, truth.Sandbox.Name, info.Name)
	assert.Equal(v.T, truth.Session.ID, info.SessionID)
	word := map[sandbox.State]string{sandbox.StateRunning: "running", sandbox.StateDormant: "stopped"}[truth.Record.State]
	assert.Equal(v.T, word, info.Status)
	assert.Equal(v.T, truth.Sandbox.Persistent, info.Persistent)
	assert.Equal(v.T, len(truth.Record.Tags), len(info.Tags))
	for key, value := range truth.Record.Tags {
		assert.Equal(v.T, value, info.Tags[key], key)
	}
	assert.Equal(v.T, truth.Record.Created.UTC().Truncate(time.Millisecond), info.CreatedAt)
	assert.Equal(v.T, truth.Sandbox.Timeout, info.Timeout)
	assert.Equal(v.T, *truth.Session.Timeout, info.SessionTimeout)
	assert.Equal(v.T, truth.Session.SourceSnapshotID, info.SourceSnapshotID)
	if truth.Record.State == sandbox.StateRunning {
		assert.Equal(v.T, truth.Record.Deadline.UTC().Truncate(time.Millisecond), info.ExpiresAt)
	} else {
		assert.Zero(v.T, info.ExpiresAt)
	}
	assert.Equal(v.T, truth.Sandbox.CurrentSnapshotID, info.CurrentSnapshotID)
}

// anonymous puts * for the names and ids in requests.
func anonymous(calls []string) []string {
	var all []string
	for _, line := range calls {
		line = regexp.MustCompile(`/(sbx|cmd|snap)_\w+`).ReplaceAllString(line, "/*")
		all = append(all, regexp.MustCompile(`/n\d\b`).ReplaceAllString(line, "/*"))
	}
	return all
}

func vercelCreate(t *testing.T, v vercel) {
	var info vercelInfo
	calls := v.wire.since(func() {
		info = ask[vercelInfo](v.sdk, "create", options{
			"name": "n1", "persistent": false, "timeout": 90_500, "tags": options{"run": "r:1", "k": "x y"},
			"ports": []int{3000}, "resources": options{"vcpus": 4}, "image": "vercel/sandbox/node:22",
		})
	})
	assert.Equal(t, []string{"POST /api/v3/sandboxes"}, calls)
	truth := v.truth("n1")
	assert.Len(t, v.server.All(), 1)
	assert.Equal(t, sandbox.StateRunning, truth.Record.State)
	assert.Equal(t, map[string]string{"run": "r:1", "k": "x y"}, truth.Record.Tags)
	assert.Equal(t, 90_500*time.Millisecond, truth.Record.Deadline.Sub(truth.Record.Created))
	assert.False(t, truth.Sandbox.Persistent)
	assert.Equal(t, "n1", info.Name)
	assert.Equal(t, 4, info.VCPUs)
	assert.Equal(t, 8192, info.Memory)
	assert.Equal(t, int64(90_500), info.Timeout)
	assert.Regexp(t, `^vercel/sandbox/node@sha256:[0-9a-f]{64}$`, info.Image)
	assert.Regexp(t, `^https://[^.]+\.vercel\.run$`, ask[string](v.sdk, "domain", "n1", 3000))
	v.same(truth, info)
	v.same(truth, ask[vercelInfo](v.sdk, "get", "n1"))
}

func vercelDefaults(t *testing.T, v vercel) {
	info := ask[vercelInfo](v.sdk, "create", options{})
	truth := v.truth(info.Name)
	assert.Equal(t, 5*time.Minute, truth.Record.Deadline.Sub(truth.Record.Created))
	assert.True(t, truth.Sandbox.Persistent)
	assert.Empty(t, truth.Record.Tags)
	v.same(truth, info)

	// With a runtime the SDK asks by another path.
	calls := v.wire.since(func() { info = ask[vercelInfo](v.sdk, "create", options{"runtime": "node24"}) })
	assert.Equal(t, []string{"POST /api/v2/sandboxes"}, calls)
	assert.Equal(t, "node24", info.Runtime)
	v.same(v.truth(info.Name), info)
}

func vercelTakenName(t *testing.T, v vercel) {
	v.create(options{"name": "n1"})
	v.refuses(400, "bad_request", "create", options{"name": "n1"})
	require.Len(t, v.server.All(), 1)
	v.Must("getOrCreate", options{"name": "n1"})
	require.Len(t, v.server.All(), 1)
	v.Must("getOrCreate", options{"name": "n2", "persistent": false})
	require.Len(t, v.server.All(), 2)
}

// refuses has the SDK do something that the service answers so.
func (v vercel) refuses(status int, code, action string, args ...any) {
	v.T.Helper()
	failed := v.Fails("APIError", action, args...)
	assert.Equal(v.T, status, failed.StatusCode, "%s: %s", action, failed.Message)
	assert.Equal(v.T, code, failed.Code, "%s: %s", action, failed.Message)
}

// sh returns a command that a shell runs.
func sh(script string) options { return options{"cmd": "sh", "args": []string{"-c", script}} }

func vercelCommands(t *testing.T, v vercel) {
	name := v.create(options{"env": options{"FROM": "create"}})
	assert.Equal(t, result{Stdout: "hi\n"}, ask[result](v.sdk, "run", name, options{"cmd": "echo", "args": []string{"hi"}}))
	assert.Equal(t, result{7, "out\n", "err\n"}, ask[result](v.sdk, "run", name, sh("echo out; echo err >&2; exit 7")))
	assert.Equal(t, result{Stdout: "/tmp create run\n"},
		ask[result](v.sdk, "run", name, sh("echo $PWD $FROM $MORE").With("cwd", "/tmp").With("env", options{"MORE": "run"})))
	assert.Equal(t, "/vercel/sandbox\n", ask[result](v.sdk, "run", name, sh("pwd")).Stdout)
	assert.Equal(t, "vercel-sandbox\n", ask[result](v.sdk, "run", name, sh("id -un")).Stdout)
	assert.Equal(t, "root\n", ask[result](v.sdk, "run", name, sh("id -un").With("sudo", true)).Stdout)

	long := ask[result](v.sdk, "run", name, sh("seq 100000"))
	assert.Equal(t, 588_895, len(long.Stdout), "across many lines of the stream")
	assert.True(t, strings.HasSuffix(long.Stdout, "\n99999\n100000\n"))
	assert.Equal(t, 137, ask[result](v.sdk, "run", name, sh("sleep 600").With("timeoutMs", 300)).ExitCode)
	v.refuses(400, "executable_not_found", "run", name, options{"cmd": "no-such-program"})
}

func vercelDetached(t *testing.T, v vercel) {
	type command struct {
		ID       string
		ExitCode *int
	}
	seven := 7
	name := v.create(options{})
	const script = "until test -e /tmp/go; do sleep 0.05; done; echo one; sleep 0.2; echo two >&2; sleep 0.2; echo drei: ß; exit 7"
	slow := ask[command](v.sdk, "start", name, sh(script))
	assert.Nil(t, slow.ExitCode)
	v.Must("run", name, sh("touch /tmp/go"))
	heard := ask[[][2]string](v.sdk, "follow", slow.ID)
	assert.Equal(t, [][2]string{{"stdout", "one\n"}, {"stderr", "two\n"}, {"stdout", "drei: ß\n"}}, heard)
	assert.Equal(t, result{7, "one\ndrei: ß\n", "two\n"}, ask[result](v.sdk, "wait", slow.ID))
	assert.Equal(t, heard, ask[[][2]string](v.sdk, "follow", slow.ID), "from the beginning again")
	assert.Equal(t, &seven, ask[command](v.sdk, "find", name, slow.ID).ExitCode)

	for signal, exit := range map[string]int{"SIGKILL": 137, "SIGTERM": 143} {
		endless := ask[command](v.sdk, "start", name, sh("echo up; sleep 600"))
		assert.Nil(t, ask[command](v.sdk, "find", name, endless.ID).ExitCode)
		assert.True(t, v.runs(name, endless.ID))
		v.Must("kill", endless.ID, signal)
		assert.Equal(t, exit, ask[result](v.sdk, "wait", endless.ID).ExitCode)
		require.Eventually(t, func() bool { return !v.runs(name, endless.ID) }, time.Minute, 10*time.Millisecond)
		_, failed := v.Do("kill", endless.ID)
		require.NotNil(t, failed, "it is gone")
	}
	v.refuses(404, "not_found", "find", name, "cmd_0000000000000000000000000000")
}

// runs reports whether something of a command runs, as the fake knows it.
func (v vercel) runs(name, command string) bool {
	v.T.Helper()
	for _, p := range v.server.Processes(v.truth(name).Session.ID) {
		if p.ID == command {
			return p.Running
		}
	}
	require.Fail(v.T, "the fake knows no "+command)
	return false
}

func vercelFiles(t *testing.T, v vercel) {
	name := v.create(options{})
	v.Must("write", name, []options{
		{"path": "new/a.txt", "data": "content"},
		{"path": "/tmp/b c", "data": "ß"},
		{"path": "empty", "data": ""},
		{"path": "/tmp/run.sh", "data": "#!/bin/sh\necho ran $1\n", "mode": 0o755},
	})
	assert.Equal(t, "content", ask[string](v.sdk, "read", name, "new/a.txt"))
	assert.Equal(t, "content", ask[string](v.sdk, "read", name, "a.txt", "/vercel/sandbox/new"))
	assert.Equal(t, []int{0xc3, 0x9f}, ask[[]int](v.sdk, "readBytes", name, "/tmp/b c"))
	assert.Equal(t, "", ask[string](v.sdk, "read", name, "empty"))
	assert.Nil(t, ask[*string](v.sdk, "read", name, "none"))
	assert.Equal(t, "content", ask[result](v.sdk, "run", name, sh("cat /vercel/sandbox/new/a.txt")).Stdout, "one disk")
	assert.Equal(t, "ran 7\n", ask[result](v.sdk, "run", name, options{"cmd": "/tmp/run.sh", "args": []string{"7"}}).Stdout)

	// What follows the SDK has done by commands of its own.
	assert.True(t, ask[bool](v.sdk, "exists", name, "/tmp/b c"))
	assert.False(t, ask[bool](v.sdk, "exists", name, "/tmp/none"))
	assert.Equal(t, "ENOENT", v.Fails("Error", "readText", name, "/tmp/none").Code)
	v.Must("makeDir", name, "dir")
	v.Must("rename", name, "/tmp/b c", "dir/b")
	assert.Equal(t, []string{"b"}, ask[[]string](v.sdk, "listDir", name, "dir"))
	assert.Equal(t, "ß", ask[string](v.sdk, "readText", name, "dir/b"))
	v.Must("remove", name, "dir/b")
	assert.Empty(t, ask[[]string](v.sdk, "listDir", name, "dir"))
	assert.Equal(t, "ENOENT", v.Fails("Error", "remove", name, "dir/b").Code)
}

func vercelExtend(t *testing.T, v vercel) {
	name := v.create(options{"name": "n1", "timeout": 60_000, "tags": options{"a": "1", "b": "2"}})
	end := v.truth(name).Record.Deadline
	calls := v.wire.since(func() { v.Must("extend", name, 30_000) })
	assert.Equal(t, []string{"POST /api/v2/sandboxes/sessions/*/extend-timeout"}, anonymous(calls))
	assert.Equal(t, 30*time.Second, v.truth(name).Record.Deadline.Sub(end), "to the end that was, not to now")
	info := ask[vercelInfo](v.sdk, "known", name)
	assert.Equal(t, int64(90_000), info.SessionTimeout)
	assert.Equal(t, int64(60_000), info.Timeout, "of the next session")
	v.same(v.truth(name), info)

	// A longer timeout the SDK gives the running session too, and a shorter one only the next.
	calls = v.wire.since(func() { v.Must("update", name, options{"timeout": 120_000, "tags": options{"a": "2"}}) })
	assert.Equal(t, []string{"PATCH /api/v2/sandboxes/*", "POST /api/v2/sandboxes/sessions/*/extend-timeout"}, anonymous(calls))
	v.Must("update", name, options{"timeout": 30_000})
	truth := v.truth(name)
	assert.Equal(t, time.Minute, truth.Record.Deadline.Sub(end))
	assert.Equal(t, map[string]string{"a": "2"}, truth.Record.Tags, "tags are replaced, not merged")
	v.same(truth, ask[vercelInfo](v.sdk, "known", name))

	v.refuses(400, "bad_request", "extend", name, 999)
	v.refuses(400, "bad_request", "extend", name, -30_000)
	v.refuses(400, "sandbox_timeout_invalid", "extend", name, 5*24*time.Hour.Milliseconds())
	assert.Equal(t, truth.Record.Deadline, v.truth(name).Record.Deadline)
}

func vercelList(t *testing.T, v vercel) {
	const value = `a b&c=d:é+%2F,?#"\`
	want := map[string]bool{}
	for range 5 {
		want[v.create(options{"tags": options{"a.run": value, "k": "x"}})] = true
	}
	v.create(options{})
	v.create(options{"tags": options{"a.run": value + "!"}})
	v.create(options{"tags": options{"k": value}})
	for name := range want {
		v.Must("stop", name) // and is found all the same
		break
	}

	var sizes []int
	var pages [][]vercelRow
	query := options{"tags": options{"a.run": value}, "limit": 2}
	calls := v.wire.since(func() { pages = ask[[][]vercelRow](v.sdk, "pages", query) })
	for _, page := range pages {
		sizes = append(sizes, len(page))
		for _, row := range page {
			require.True(t, want[row.Name], "%v: found twice, or should not be", row)
			delete(want, row.Name)
			truth := v.truth(row.Name).Sandbox
			assert.Equal(t, truth.Tags, row.Tags)
			assert.Equal(t, vercelRow{truth.Name, truth.CurrentSessionID, truth.Status, false, row.Tags, truth.ExpiresAt}, row)
		}
	}
	assert.Empty(t, want, "missing")
	assert.Equal(t, []int{2, 2, 1}, sizes)
	assert.Equal(t, slices.Repeat([]string{"GET /api/v2/sandboxes"}, 3), calls)

	assert.Len(t, slices.Concat(ask[[][]vercelRow](v.sdk, "pages", options{})...), len(v.server.All()))
	assert.Empty(t, slices.Concat(ask[[][]vercelRow](v.sdk, "pages", options{"tags": options{"a.run": "a b&c=d"}})...))
	v.create(options{"name": "n2"})
	v.create(options{"name": "n1"})
	byName := options{"sortBy": "name", "sortOrder": "asc", "namePrefix": "n", "limit": 1}
	named := slices.Concat(ask[[][]vercelRow](v.sdk, "pages", byName)...)
	var names []string
	for _, row := range named {
		if row.Name == "n1" || row.Name == "n2" { // a name that the service made may begin so too
			names = append(names, row.Name)
		}
	}
	assert.Equal(t, []string{"n1", "n2"}, names)

	calls = v.wire.since(func() { v.Fails("Error", "pages", options{"tags": options{"a.run": value, "k": "x"}}) })
	assert.Empty(t, calls, "two tags the SDK refuses by itself")
}

func vercelGet(t *testing.T, v vercel) {
	v.create(options{"name": "n1"})
	v.Must("stop", "n1")
	calls := v.wire.since(func() {
		assert.Equal(t, "stopped", ask[vercelInfo](v.sdk, "get", "n1").Status)
		assert.Equal(t, "stopped", ask[vercelInfo](v.sdk, "get", "n1", options{"resume": false}).Status)
	})
	assert.Equal(t, slices.Repeat([]string{"GET /api/v2/sandboxes/*"}, 2), anonymous(calls))
	assert.Equal(t, sandbox.StateDormant, v.truth("n1").Record.State)
	assert.Len(t, v.truth("n1").Sessions, 1)

	v.same(v.truth("n1"), ask[vercelInfo](v.sdk, "get", "n1"))
	assert.Equal(t, "running", ask[vercelInfo](v.sdk, "get", "n1", options{"resume": true}).Status)
	assert.Equal(t, sandbox.StateRunning, v.truth("n1").Record.State)
	assert.Len(t, v.truth("n1").Sessions, 2)
	v.Must("get", "n1", options{"resume": true})
	assert.Len(t, v.truth("n1").Sessions, 2, "it runs")
}

// A vercelStopped is what the SDK reports of a stop.
type vercelStopped struct{ Session, Status, Snapshot string }

func vercelStop(t *testing.T, v vercel) {
	v.create(options{"name": "n1", "tags": options{"run": "r1"}})
	id := v.truth("n1").Session.ID
	var stopped vercelStopped
	calls := v.wire.since(func() { stopped = ask[vercelStopped](v.sdk, "stop", "n1") })
	assert.Equal(t, []string{"POST /api/v2/sandboxes/sessions/*/stop"}, anonymous(calls))
	assert.Equal(t, vercelStopped{id, "stopped", ""}, stopped, "without a snapshot, as it keeps no files")
	truth := v.truth("n1")
	assert.Equal(t, sandbox.StateDormant, truth.Record.State)
	assert.False(t, truth.Deleted)
	v.same(truth, ask[vercelInfo](v.sdk, "get", "n1"))
	rows := slices.Concat(ask[[][]vercelRow](v.sdk, "pages", options{"tags": options{"run": "r1"}})...)
	require.Len(t, rows, 1)
	assert.Equal(t, "stopped", rows[0].Status)
	assert.Equal(t, stopped, ask[vercelStopped](v.sdk, "stop", "n1"), "again")
	v.refuses(400, "bad_request", "create", options{"name": "n1"}) // the name is not free
	assert.Empty(t, v.server.Snapshots())

	v.server.Change(func(q *vercelfake.Quirks) { q.StopTime, q.SnapshotTime = 200*time.Millisecond, 200*time.Millisecond })
	v.Must("create", options{"name": "n2"})
	stopped = ask[vercelStopped](v.sdk, "stop", "n2")
	assert.Equal(t, "stopped", stopped.Status, "however long it takes")
	require.Len(t, v.server.Snapshots(), 1, "by default each stop leaves a snapshot")
	assert.Equal(t, v.server.Snapshots()[0].ID, stopped.Snapshot)
	assert.Equal(t, stopped.Snapshot, ask[vercelInfo](v.sdk, "known", "n2").CurrentSnapshotID)
}

func vercelDispose(t *testing.T, v vercel) {
	v.Must("create", options{"name": "n1"})
	v.Must("dispose", "n1")
	truth := v.truth("n1")
	assert.Equal(t, sandbox.StateDormant, truth.Record.State)
	assert.False(t, truth.Deleted)
	assert.Len(t, v.server.Snapshots(), 1)
}

func vercelResume(t *testing.T, v vercel) {
	for name, persistent := range map[string]bool{"n1": true, "n2": false} {
		first := ask[vercelInfo](v.sdk, "create", options{"name": name, "persistent": persistent, "timeout": 60_000})
		v.Must("write", name, []options{{"path": "kept", "data": "kept"}})
		stopped := ask[vercelStopped](v.sdk, "stop", name)
		before := v.svc.Now()
		again := ask[vercelInfo](v.sdk, "get", name, options{"resume": true})
		assert.NotEqual(t, first.SessionID, again.SessionID)
		assert.Equal(t, stopped.Snapshot, again.SourceSnapshotID)
		truth := v.truth(name)
		v.same(truth, again)
		assert.Equal(t, int64(60_000), again.SessionTimeout)
		assert.False(t, truth.Record.Deadline.Before(before.Add(time.Minute)), "the time of its sandbox, anew")
		assert.False(t, truth.Record.Deadline.After(v.svc.Now().Add(time.Minute)))
		require.Len(t, truth.Sessions, 2)
		assert.Equal(t, "stopped", truth.Sessions[0].Status)

		history := slices.Concat(ask[[][]vercelfake.Session](v.sdk, "sessions", name, options{"sortOrder": "asc", "limit": 1})...)
		require.Len(t, history, 2)
		assert.Equal(t, []string{first.SessionID, again.SessionID}, []string{history[0].ID, history[1].ID})

		kept := ask[*string](v.sdk, "read", name, "kept")
		assert.Equal(t, persistent, kept != nil, "a sandbox that keeps no files begins anew")
	}
}

// A handle of the SDK brings back what has ended. An adapter that extends like this would never let go.
func vercelRevival(t *testing.T, v vercel) {
	v.create(options{"name": "n1", "timeout": 60_000})
	first := v.truth("n1").Session.ID
	v.Must("stop", "n1")
	calls := v.wire.since(func() { v.Must("extend", "n1", 30_000) })
	assert.Equal(t, []string{
		"POST /api/v2/sandboxes/sessions/*/extend-timeout", "GET /api/v2/sandboxes/*",
		"POST /api/v2/sandboxes/sessions/*/extend-timeout",
	}, anonymous(calls))
	truth := v.truth("n1")
	assert.Equal(t, sandbox.StateRunning, truth.Record.State)
	assert.NotEqual(t, first, truth.Session.ID)
	v.same(truth, ask[vercelInfo](v.sdk, "known", "n1"))

	v.Must("stop", "n1")
	assert.Equal(t, "back\n", ask[result](v.sdk, "run", "n1", sh("echo back")).Stdout)
	assert.Len(t, v.truth("n1").Sessions, 3)

	// One that is still stopping answers otherwise and is brought back all the same.
	v.server.Change(func(q *vercelfake.Quirks) { q.StopEarly, q.StopTime = true, 500*time.Millisecond })
	assert.Equal(t, "stopping", ask[vercelStopped](v.sdk, "stop", "n1").Status)
	assert.Equal(t, "back\n", ask[result](v.sdk, "run", "n1", sh("echo back")).Stdout)
	assert.Len(t, v.truth("n1").Sessions, 4)
}

// A vercelSnap is what the SDK reports of a snapshot.
type vercelSnap struct {
	ID, Session, Status string
	ExpiresAt           time.Time
}

func vercelSnapshot(t *testing.T, v vercel) {
	listed := func(name string) int {
		return len(slices.Concat(ask[[][]vercelfake.Snapshot](v.sdk, "snapshots", options{"name": name})...))
	}
	for i, purge := range []bool{false, true} {
		name := []string{"n1", "n2"}[i]
		v.create(options{"name": name})
		v.Must("write", name, []options{{"path": "kept", "data": name}})
		snap := ask[vercelSnap](v.sdk, "snapshot", name, options{"expiration": 24 * time.Hour.Milliseconds()})
		assert.Equal(t, "created", snap.Status)
		assert.Equal(t, v.truth(name).Session.ID, snap.Session)
		assert.WithinDuration(t, v.svc.Now().Add(24*time.Hour), snap.ExpiresAt, time.Minute)
		assert.Equal(t, sandbox.StateDormant, v.truth(name).Record.State, "a snapshot ends its session")
		assert.Equal(t, "stopped", ask[vercelInfo](v.sdk, "known", name).Status)
		assert.Equal(t, 1, listed(name))

		v.Must("delete", name, options{"deleteOrphanSnapshots": purge})
		assert.True(t, v.truth(name).Deleted)
		if purge {
			assert.Len(t, v.server.Snapshots(), 1, "that of the other")
			v.refuses(404, "not_found", "getSnapshot", snap.ID)
			v.refuses(410, "snapshot_not_found", "create", options{"source": options{"type": "snapshot", "snapshotId": snap.ID}})
			continue
		}
		require.Len(t, v.server.Snapshots(), 1)
		assert.Equal(t, snap.ID, v.server.Snapshots()[0].ID)
		assert.Equal(t, snap, ask[vercelSnap](v.sdk, "getSnapshot", snap.ID))
	}

	left := v.server.Snapshots()[0].ID
	heir := v.create(options{"name": "n3", "source": options{"type": "snapshot", "snapshotId": left}})
	assert.Equal(t, "n1", ask[string](v.sdk, "read", heir, "kept"))
	assert.Equal(t, left, ask[vercelInfo](v.sdk, "known", heir).SourceSnapshotID)
	assert.Equal(t, "deleted", ask[string](v.sdk, "deleteSnapshot", left))
	assert.Empty(t, v.server.Snapshots())
	v.refuses(404, "not_found", "deleteSnapshot", left)
}

func vercelFork(t *testing.T, v vercel) {
	v.Must("create", options{"name": "n1", "tags": options{"run": "r1"}, "timeout": 120_000})
	v.Must("write", "n1", []options{{"path": "kept", "data": "kept"}})
	v.Must("stop", "n1")
	info := ask[vercelInfo](v.sdk, "fork", "n1", options{"name": "n2"})
	v.same(v.truth("n2"), info)
	assert.Equal(t, map[string]string{"run": "r1"}, info.Tags)
	assert.Equal(t, int64(120_000), info.Timeout)
	assert.Equal(t, "kept", ask[string](v.sdk, "read", "n2", "kept"))
	v.Must("delete", "n1", options{"deleteOrphanSnapshots": true})
	assert.Len(t, v.server.Snapshots(), 1, "the fork began with it")
	assert.Equal(t, sandbox.StateRunning, v.truth("n2").Record.State)
}

func vercelDelete(t *testing.T, v vercel) {
	v.create(options{"name": "n1"})
	calls := v.wire.since(func() { v.Must("delete", "n1") })
	assert.Equal(t, []string{"DELETE /api/v2/sandboxes/*"}, anonymous(calls), "without a stop before it")
	assert.Equal(t, sandbox.StateGone, v.truth("n1").Record.State)
	v.gone("n1")
	v.create(options{"name": "n1"}) // the name is free
	assert.Len(t, v.server.All(), 1)

	v.create(options{"name": "n2"})
	v.Must("stop", "n2")
	v.Must("delete", "n2")
	assert.Equal(t, sandbox.StateGone, v.truth("n2").Record.State)
	v.gone("n2")

	// A machine may take its time. Its name is gone at once.
	v.svc.Behave(func(b *fake.Behaviour) { b.DeleteTime = time.Hour })
	v.create(options{"name": "n3"})
	v.Must("delete", "n3")
	assert.Equal(t, sandbox.StateEnding, v.truth("n3").Record.State)
	v.refuses(404, "sandbox_not_found", "get", "n3")
	v.refuses(404, "sandbox_not_found", "run", "n3", sh("true")) // the SDK tries to resume it
	v.svc.Advance(time.Hour)
	assert.Equal(t, sandbox.StateGone, v.truth("n3").Record.State)
	v.gone("n3")
}

// gone holds that the SDK has it that there is no such sandbox.
func (v vercel) gone(name string) {
	v.T.Helper()
	for _, action := range []string{"get", "delete", "stop"} {
		v.refuses(404, "sandbox_not_found", action, name)
	}
	v.refuses(404, "sandbox_not_found", "get", name, options{"resume": true})
	v.refuses(404, "sandbox_not_found", "extend", name, 60_000)
	v.refuses(404, "sandbox_not_found", "run", name, sh("true"))
	v.refuses(404, "sandbox_not_found", "fork", name, options{})
	assert.Nil(v.T, ask[*string](v.sdk, "read", name, "/etc/passwd"), "the SDK takes every 404 for a missing file")
	for _, row := range slices.Concat(ask[[][]vercelRow](v.sdk, "pages", options{})...) {
		assert.NotEqual(v.T, name, row.Name)
	}
}

func vercelExpiry(t *testing.T, v vercel) {
	v.create(options{"name": "n1", "timeout": 60_000})
	first := v.truth("n1").Session.ID
	v.svc.Advance(30 * time.Second)
	assert.Equal(t, "running", ask[vercelInfo](v.sdk, "get", "n1").Status)
	v.svc.Advance(31 * time.Second)
	truth := v.truth("n1")
	assert.Equal(t, sandbox.StateDormant, truth.Record.State)
	v.same(truth, ask[vercelInfo](v.sdk, "get", "n1"))
	v.refuses(410, "sandbox_stopped", "extendSession", first, 60_000)
	v.refuses(410, "sandbox_stopped", "runInSession", first, sh("true"))
	assert.Len(t, slices.Concat(ask[[][]vercelRow](v.sdk, "pages", options{})...), 1)
	assert.Len(t, v.truth("n1").Sessions, 1, "sessions are not resumed")
	assert.Empty(t, v.server.Snapshots())

	v.Must("create", options{"name": "n2", "timeout": 60_000})
	v.svc.Advance(61 * time.Second)
	assert.Equal(t, "stopped", ask[vercelInfo](v.sdk, "get", "n2").Status)
	assert.Len(t, v.server.Snapshots(), 1, "the end of the time leaves a snapshot as a stop does")

	v.svc.Advance(15 * 24 * time.Hour)
	v.gone("n1") // a record that keeps no files is kept for two weeks
	assert.Equal(t, "stopped", ask[vercelInfo](v.sdk, "get", "n2").Status)
}

func vercelDeath(t *testing.T, v vercel) {
	v.create(options{"name": "n1"})
	id := ask[struct{ ID string }](v.sdk, "start", "n1", sh("sleep 600")).ID
	v.Must("stop", "n1")
	v.refuses(410, "sandbox_stopped", "wait", id)
	v.refuses(410, "sandbox_stopped", "follow", id)
	v.refuses(410, "sandbox_stopped", "kill", id)

	v.create(options{"name": "n2"})
	v.Must("begin", "n2", sh("echo up; sleep 600"))
	session := v.truth("n2").Session.ID
	require.Eventually(t, func() bool { return len(v.server.Processes(session)) == 1 }, time.Minute, 10*time.Millisecond)
	v.Must("stopSession", session)
	assert.Equal(t, "sandbox_stream_closed", v.Fails("StreamError", "end").Code)
	assert.Equal(t, sandbox.StateDormant, v.truth("n2").Record.State, "that resumes nothing")
}

func vercelLostCreate(t *testing.T, v vercel) {
	// The SDK asks again, and its user learns of a refusal while the first one runs.
	v.server.Fault("createSandbox", vercelfake.Fault{Status: 502, After: true})
	v.refuses(400, "bad_request", "create", options{"name": "n1", "persistent": false})
	assert.Equal(t, sandbox.StateRunning, v.truth("n1").Record.State)
	require.Len(t, v.server.All(), 1)

	// Without a name there are two then, one of which nobody knows.
	v.server.Fault("createSandbox", vercelfake.Fault{Drop: true, After: true})
	name := v.create(options{"tags": options{"run": "r1"}})
	assert.Equal(t, sandbox.StateRunning, v.truth(name).Record.State)
	rows := slices.Concat(ask[[][]vercelRow](v.sdk, "pages", options{"tags": options{"run": "r1"}})...)
	require.Len(t, rows, 2)
	for _, row := range rows {
		assert.Equal(t, sandbox.StateRunning, v.truth(row.Name).Record.State)
	}
}

func vercelAbortedCreate(t *testing.T, v vercel) {
	v.server.Fault("createSandbox", vercelfake.Fault{Hang: true, After: true})
	v.Must("beginCreate", options{"name": "n1", "persistent": false})
	require.Eventually(t, func() bool { return len(v.server.All()) == 1 }, time.Minute, 10*time.Millisecond)
	v.Must("abort")
	v.Fails("DOMException", "end")
	assert.Equal(t, sandbox.StateRunning, v.truth("n1").Record.State)
	assert.Equal(t, 1, v.server.Count("createSandbox"))
	v.Must("get", "n1")
	v.Must("delete", "n1")
	v.gone("n1")
}

func vercelErrors(t *testing.T, v vercel) {
	v.refuses(404, "sandbox_not_found", "get", "none")
	v.refuses(400, "bad_request", "create", options{"name": "not a name"})
	v.refuses(400, "bad_request", "create", options{"timeout": 999})
	v.refuses(400, "sandbox_timeout_invalid", "create", options{"timeout": 25 * time.Hour.Milliseconds()})
	assert.Empty(t, v.server.All())

	v.svc.Behave(func(b *fake.Behaviour) { b.MaxLive = 1 })
	v.create(options{"name": "n1"})
	calls := v.wire.since(func() { v.refuses(429, "rate_limited", "create", options{"name": "n2"}) })
	assert.Len(t, calls, 3, "the SDK tries three times")
	assert.Len(t, v.server.All(), 1)

	v.server.Fault("deleteSandbox", vercelfake.Fault{Status: 503, Times: 3})
	v.refuses(503, "service_unavailable", "delete", "n1")
	v.server.Fault("deleteSandbox", vercelfake.Fault{Status: 422, Code: "sandbox_stopping"})
	v.refuses(422, "sandbox_stopping", "delete", "n1")
	v.svc.Behave(func(b *fake.Behaviour) { b.NoDelete = true })
	v.refuses(403, "forbidden", "delete", "n1") // the token can make what it cannot delete

	v.Must("open", vercelAccess(v.wire).With("projectId", "prj_other"))
	v.refuses(404, "not_found", "get", "n1") // be it that it is there
	v.Must("open", vercelAccess(v.wire).With("teamId", "team_other"))
	v.refuses(403, "forbidden", "get", "n1")
	v.Must("open", vercelAccess(v.wire).With("token", "another"))
	v.refuses(403, "forbidden", "get", "n1")
	v.refuses(403, "forbidden", "create", options{})
	assert.Equal(t, sandbox.StateRunning, v.truth("n1").Record.State)
	assert.Len(t, v.server.All(), 1)
}
