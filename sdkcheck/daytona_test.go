package sdkcheck_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/internal/fake/daytonafake"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// A daytona is the SDK that talks to a fake of its own.
type daytona struct {
	*sdk
	wire   *wire
	server *daytonafake.Server
	svc    *fake.Service
}

// TestDaytona has the SDK look for new states, ten times a second.
func TestDaytona(t *testing.T) {
	t.Parallel()
	program := start(t, "daytona.mjs", "@daytonaio/sdk")
	for rule, hold := range map[string]func(*testing.T, daytona){
		"a life from create to destroyed":                             daytonaLife,
		"a taken name is a conflict and makes nothing":                daytonaTakenName,
		"commands run as the SDK asks":                                daytonaCommands,
		"a session streams, is fed and ends":                          daytonaSession,
		"files arrive and come back":                                  daytonaFiles,
		"a list by labels goes through all pages":                     daytonaList,
		"a stopped sandbox stays and starts again":                    daytonaStop,
		"the TTL destroys in any state":                               daytonaTTL,
		"an idle sandbox stops, and an ephemeral one is destroyed":    daytonaIdle,
		"a create that times out leaves a sandbox":                    daytonaCreateTimeout,
		"an errored sandbox is hidden by a delete, and not destroyed": daytonaErrored,
		"another organization finds nothing":                          daytonaForeignKey,
		"an error has the class that users catch":                     daytonaErrors,
	} {
		t.Run(rule, func(t *testing.T) {
			hold(t, newDaytona(t, program, options{"DAYTONA_USE_DEPRECATED_POLLING": "true"}))
		})
	}
}

// The SDK's default is to wait for events, of which the fake has none. It falls back, and that must do no harm.
func TestDaytonaWithEventsRefused(t *testing.T) {
	t.Parallel()
	program := start(t, "daytona.mjs", "@daytonaio/sdk")
	daytonaLife(t, newDaytona(t, program, options{}))
}

const foreignKey = "dtn_foreign"

func newDaytona(t *testing.T, program *sdk, env options) daytona {
	t.Helper()
	server := daytonafake.New(daytonafake.Options{Key: "dtn_sdkcheck", ForeignKey: foreignKey, Prompt: true})
	t.Cleanup(server.Close)
	w := serve(t, server)
	env = env.With("DAYTONA_API_KEY", "dtn_sdkcheck").With("DAYTONA_API_URL", w.URL+"/api").With("DAYTONA_TARGET", "us")
	s := program.In(t, env)
	return daytona{s, w, server, server.Service()}
}

// A daytonaInfo is what the SDK reports of a sandbox.
type daytonaInfo struct {
	ID, Name, State                      string
	Labels                               map[string]string
	AutoDestroyAt                        time.Time
	AutoStopInterval, AutoDeleteInterval int
	ErrorReason                          string
}

// A daytonaResult is what the SDK reports of a command.
type daytonaResult struct {
	ExitCode int
	Result   string
}

// truth returns what the fake knows of a sandbox.
func (d daytona) truth(id string) fake.Record {
	d.T.Helper()
	r, ok := d.svc.Lookup(daytonafake.MachineID(id))
	require.True(d.T, ok, "the fake knows no %q", id)
	return r
}

func (d daytona) create(params options) string {
	d.T.Helper()
	return ask[daytonaInfo](d.sdk, "create", params).ID
}

// gone holds that the SDK has it that there is no such sandbox.
func (d daytona) gone(id string) {
	d.T.Helper()
	d.Fails("DaytonaNotFoundError", "info", id)
	d.Fails("DaytonaNotFoundError", "get", id)
	d.Fails("DaytonaNotFoundError", "delete", id)
	for _, info := range ask[[]daytonaInfo](d.sdk, "list", options{}) {
		assert.NotEqual(d.T, id, info.ID)
	}
}

// A life takes most of what a user does.
func daytonaLife(t *testing.T, d daytona) {
	d.svc.Behave(func(b *fake.Behaviour) { b.StartTime, b.DeleteTime = 300*time.Millisecond, time.Hour })
	var made daytonaInfo
	calls := d.wire.since(func() {
		made = ask[daytonaInfo](d.sdk, "create", options{
			"name": "n1", "labels": options{"run": "r1"}, "envVars": options{"FROM": "create"},
			"ephemeral": true, "autoStopInterval": 5, "ttlMinutes": 30,
		})
	})
	var creates int
	for _, line := range calls {
		if line == "POST /api/sandbox" {
			creates++
		}
	}
	assert.Equal(t, 1, creates)
	r := d.truth(made.ID)
	assert.Len(t, d.svc.All(), 1)
	assert.Equal(t, sandbox.StateRunning, r.State)
	assert.Equal(t, "started", made.State)
	assert.Equal(t, "n1", made.Name)
	assert.Equal(t, map[string]string{"run": "r1", "code-toolbox-language": "python"}, made.Labels)
	assert.Equal(t, made.Labels, r.Tags)
	assert.Equal(t, 5, made.AutoStopInterval)
	assert.Equal(t, 0, made.AutoDeleteInterval)
	assert.WithinDuration(t, r.Created.Add(30*time.Minute), made.AutoDestroyAt, time.Second)

	assert.Equal(t, daytonaResult{0, "/tmp create run\n"},
		ask[daytonaResult](d.sdk, "run", made.ID, "echo $PWD $FROM $MORE", "/tmp", options{"MORE": "run"}))

	before := d.svc.Now()
	d.Must("setTtl", made.ID, 15)
	d.Must("refreshActivity", made.ID)
	info := ask[daytonaInfo](d.sdk, "info", made.ID)
	assert.False(t, info.AutoDestroyAt.Before(before.Add(15*time.Minute).Truncate(time.Second)))
	assert.False(t, info.AutoDestroyAt.After(d.svc.Now().Add(15*time.Minute)))

	assert.Equal(t, made.ID, ask[daytonaInfo](d.sdk, "get", "n1").ID)
	d.Must("delete", made.ID, 60)
	assert.Equal(t, "destroying", ask[daytonaInfo](d.sdk, "known", made.ID).State)
	assert.Equal(t, sandbox.StateEnding, d.truth(made.ID).State)
	d.Fails("DaytonaNotFoundError", "get", "n1") // the name is free at once; only the id tells
	d.svc.Behave(func(b *fake.Behaviour) { b.DeleteTime = 300 * time.Millisecond })
	again := d.create(options{"name": "n1"})
	d.Must("delete", again, 60, true)
	assert.Equal(t, "destroyed", ask[daytonaInfo](d.sdk, "known", again).State)
	assert.Equal(t, sandbox.StateGone, d.truth(again).State)
	d.gone(again)
}

func daytonaTakenName(t *testing.T, d daytona) {
	id := d.create(options{"name": "n1"})
	d.Fails("DaytonaConflictError", "create", options{"name": "n1"})
	require.Len(t, d.svc.All(), 1)
	assert.Equal(t, id, daytonafake.WireID(d.svc.All()[0].ID))
}

func daytonaCommands(t *testing.T, d daytona) {
	id := d.create(options{})
	assert.Equal(t, daytonaResult{7, "out\nerr\n"}, ask[daytonaResult](d.sdk, "run", id, "echo out; echo err >&2; exit 7"))
	assert.Len(t, ask[daytonaResult](d.sdk, "run", id, "seq 100000").Result, 588_895)
	d.Fails("DaytonaProcessExecutionTimeoutError", "run", id, "sleep 600", nil, nil, 1)
}

func daytonaSession(t *testing.T, d daytona) {
	type command struct {
		CmdID, Output, Stdout, Stderr string
		ExitCode                      *int
	}
	zero, seven := 0, 7
	id := d.create(options{})
	d.Must("createSession", id, "s1")
	d.Fails("DaytonaConflictError", "createSession", id, "s1")

	done := ask[command](d.sdk, "runInSession", id, "s1", "cd /tmp; export A=b; echo out; echo err >&2", false)
	assert.Equal(t, &zero, done.ExitCode)
	assert.Equal(t, "out\n", done.Stdout)
	assert.Equal(t, "err\n", done.Stderr)
	next := ask[command](d.sdk, "runInSession", id, "s1", "echo $PWD $A", false)
	assert.Equal(t, "/tmp b\n", next.Stdout, "one shell runs them all")

	const script = "echo one; sleep 0.2; echo two >&2; sleep 0.2; echo drei: ß; (exit 7)"
	slow := ask[command](d.sdk, "runInSession", id, "s1", script, true)
	assert.Nil(t, slow.ExitCode)
	heard := ask[map[string]string](d.sdk, "follow", id, "s1", slow.CmdID)
	assert.Equal(t, map[string]string{"stdout": "one\ndrei: ß\n", "stderr": "two\n"}, heard)
	assert.Equal(t, &seven, ask[command](d.sdk, "command", id, "s1", slow.CmdID).ExitCode)
	logs := ask[command](d.sdk, "logs", id, "s1", slow.CmdID)
	assert.Equal(t, "one\ndrei: ß\n", logs.Stdout)
	assert.Equal(t, "two\n", logs.Stderr)

	fed := ask[command](d.sdk, "runInSession", id, "s1", "read line; echo got $line", true)
	d.Must("sendInput", id, "s1", fed.CmdID, "food\n")
	assert.Contains(t, ask[map[string]string](d.sdk, "follow", id, "s1", fed.CmdID)["stdout"], "got food\n")

	d.Must("deleteSession", id, "s1")
	_, failed := d.Do("session", id, "s1")
	require.NotNil(t, failed)
	assert.Equal(t, 404, failed.StatusCode)
}

func daytonaFiles(t *testing.T, d daytona) {
	type file struct {
		Name  string
		IsDir bool
		Size  int
	}
	id := d.create(options{})
	d.Must("upload", id, "/tmp/new/a.txt", "content")
	assert.Equal(t, "content", ask[string](d.sdk, "download", id, "/tmp/new/a.txt"))
	shown := ask[map[string]any](d.sdk, "run", id, "cat /tmp/new/a.txt")["result"]
	assert.Equal(t, "content", shown, "commands and files see one disk")
	d.Must("uploadMany", id, []options{{"path": "/tmp/b c", "data": "1"}, {"path": "/tmp/empty", "data": ""}})
	d.Fails("DaytonaFileNotFoundError", "download", id, "/tmp/none")
	many := ask[[]map[string]any](d.sdk, "downloadMany", id, []string{"/tmp/b c", "/tmp/none", "/tmp/empty"})
	require.Len(t, many, 3)
	assert.Equal(t, "1", many[0]["data"])
	assert.NotEmpty(t, many[1]["error"])
	assert.Equal(t, "", many[2]["data"])

	assert.Equal(t, file{"a.txt", false, 7}, ask[file](d.sdk, "stat", id, "/tmp/new/a.txt"))
	d.Fails("DaytonaFileNotFoundError", "stat", id, "/tmp/none")
	d.Must("makeDir", id, "/tmp/dir", "755")
	d.Must("rename", id, "/tmp/b c", "/tmp/dir/b")
	assert.Equal(t, []file{{"b", false, 1}}, ask[[]file](d.sdk, "listDir", id, "/tmp/dir"))
	d.Must("remove", id, "/tmp/dir/b")
	assert.Empty(t, ask[[]file](d.sdk, "listDir", id, "/tmp/dir"))
	assert.NotEmpty(t, ask[string](d.sdk, "workDir", id))
	assert.NotEmpty(t, ask[string](d.sdk, "homeDir", id))
}

func daytonaList(t *testing.T, d daytona) {
	mark := options{"a.run": `a b&c=d/é+%2F,?#"\`, "k": "x"}
	want := map[string]bool{}
	for range 5 {
		want[d.create(options{"labels": mark})] = true
	}
	d.create(options{})
	d.create(options{"labels": options{"a.run": mark["a.run"]}})
	for id := range want {
		d.Must("stop", id)
		break
	}

	query := options{"labels": mark, "limit": 2, "sort": "createdAt", "order": "asc"}
	calls := d.wire.since(func() {
		for _, info := range ask[[]daytonaInfo](d.sdk, "list", query) {
			require.True(t, want[info.ID], "%v: found twice, or should not be", info)
			delete(want, info.ID)
			assert.Equal(t, d.truth(info.ID).Tags, info.Labels)
		}
	})
	assert.Empty(t, want, "missing")
	assert.Len(t, calls, 3)
	assert.Len(t, ask[[]daytonaInfo](d.sdk, "list", options{"labels": mark, "states": []string{"started"}}), 4)
	assert.Len(t, ask[[]daytonaInfo](d.sdk, "list", options{"labels": mark, "states": []string{"started", "stopped"}}), 5)
	assert.Len(t, ask[[]daytonaInfo](d.sdk, "list", options{}), len(d.svc.All()))
}

func daytonaStop(t *testing.T, d daytona) {
	id := d.create(options{"labels": options{"run": "r1"}})
	d.Must("upload", id, "/tmp/kept", "kept")
	d.Must("setLabels", id, options{"run": "r2"})
	assert.Equal(t, map[string]string{"run": "r2"}, d.truth(id).Tags, "labels are replaced, not merged")
	d.Must("stop", id)
	assert.Equal(t, sandbox.StateDormant, d.truth(id).State)
	assert.Equal(t, "stopped", ask[daytonaInfo](d.sdk, "info", id).State)
	_, failed := d.Do("run", id, "true")
	require.NotNil(t, failed, "it does not run")
	d.Must("start", id)
	assert.Equal(t, sandbox.StateRunning, d.truth(id).State)
	assert.Equal(t, "kept", ask[string](d.sdk, "download", id, "/tmp/kept"))
	d.Fails("DaytonaUnprocessableEntityError", "pause", id) // its class cannot
	d.Must("stop", id)
	d.Must("delete", id, 60, true)
	d.gone(id)
}

func daytonaTTL(t *testing.T, d daytona) {
	runs := d.create(options{"ttlMinutes": 10, "autoStopInterval": 0})
	stopped := d.create(options{"ttlMinutes": 10})
	free := d.create(options{"autoStopInterval": 0})
	d.Must("stop", stopped)
	d.server.Advance(9 * time.Minute)
	assert.Equal(t, "started", ask[daytonaInfo](d.sdk, "info", runs).State)
	assert.Equal(t, "stopped", ask[daytonaInfo](d.sdk, "info", stopped).State)
	d.server.Advance(2 * time.Minute)
	d.gone(runs)
	d.gone(stopped)
	assert.Equal(t, "started", ask[daytonaInfo](d.sdk, "info", free).State)
	assert.Zero(t, ask[daytonaInfo](d.sdk, "info", free).AutoDestroyAt)
}

func daytonaIdle(t *testing.T, d daytona) {
	kept := d.create(options{"autoStopInterval": 5})
	ephemeral := d.create(options{"autoStopInterval": 5, "ephemeral": true})
	d.server.Advance(4 * time.Minute)
	d.Must("run", kept, "true") // use, and so new time
	d.Must("run", ephemeral, "true")
	d.server.Advance(4 * time.Minute)
	assert.Equal(t, "started", ask[daytonaInfo](d.sdk, "info", ephemeral).State)
	d.server.Advance(4 * time.Minute)
	assert.Equal(t, "stopped", ask[daytonaInfo](d.sdk, "info", kept).State)
	d.gone(ephemeral)
}

func daytonaCreateTimeout(t *testing.T, d daytona) {
	d.svc.Behave(func(b *fake.Behaviour) { b.NeverReady = true })
	d.Fails("DaytonaTimeoutError", "create", options{"name": "late"}, options{"timeout": 2})
	require.Len(t, d.svc.All(), 1)
	assert.Equal(t, sandbox.StateStarting, d.svc.All()[0].State, "the SDK deletes nothing, and its user has no handle")
	id := ask[daytonaInfo](d.sdk, "get", "late").ID
	d.Fails("DaytonaConflictError", "delete", id, 60, true) // not while it starts
}

func daytonaErrored(t *testing.T, d daytona) {
	id := d.create(options{})
	require.True(t, d.svc.Fail(daytonafake.MachineID(id), "the runner lost it"))
	assert.Equal(t, "error", ask[daytonaInfo](d.sdk, "info", id).State)
	_, failed := d.Do("delete", id, 60, false)
	assert.Nil(t, failed)
	d.gone(id)
	assert.NotEqual(t, sandbox.StateGone, d.truth(id).State)
}

func daytonaErrors(t *testing.T, d daytona) {
	id := d.create(options{})
	for class, e := range map[string]*sandbox.APIError{
		"DaytonaRateLimitError":          {Status: 429, Kind: sandbox.ErrRateLimited},
		"DaytonaInternalServerError":     {Status: 500, Kind: sandbox.ErrUnavailable},
		"DaytonaServiceUnavailableError": {Status: 503, Kind: sandbox.ErrUnavailable},
	} {
		d.svc.Fault(sandbox.OpDelete, fake.Fault{Err: e})
		d.Fails(class, "delete", id)
	}
	d.svc.Behave(func(b *fake.Behaviour) { b.NoDelete = true })
	d.Fails("DaytonaAuthorizationError", "delete", id) // the key can make what it cannot delete
	d.server.Quirk(func(q *daytonafake.Quirks) { q.Denied = true })
	d.Fails("DaytonaAuthenticationError", "delete", id)
	d.Fails("DaytonaAuthenticationError", "create", options{})
	assert.Equal(t, sandbox.StateRunning, d.truth(id).State)
	assert.Len(t, d.svc.All(), 1)
}

// A key of another organization finds nothing, which is no proof that nothing is there.
func daytonaForeignKey(t *testing.T, d daytona) {
	id := d.create(options{"name": "n1"})
	d.Must("open", options{"DAYTONA_API_KEY": foreignKey})
	d.Fails("DaytonaNotFoundError", "get", id)
	d.Fails("DaytonaNotFoundError", "get", "n1")
	assert.Empty(t, ask[[]daytonaInfo](d.sdk, "list", options{}))
	assert.Equal(t, sandbox.StateRunning, d.truth(id).State)
}
