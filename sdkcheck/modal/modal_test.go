// Package modal_test has Modal's official JavaScript SDK live an ordinary life against modalfake, as package sdkcheck_test
// does with others. It is a module of its own since modalfake is.
package modal_test

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/internal/fake/modalfake"
	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sdkcheck/internal/drive"
)

type options = drive.Options

// A modal is the SDK that talks to a fake of its own.
type modal struct {
	*drive.SDK
	env    options
	server *modalfake.Server
	svc    *fake.Service
	v1     bool // by the older backend
}

func TestModal(t *testing.T) {
	for backend, env := range map[string]options{
		"by default":           {},
		"on the older backend": {"MODAL_SANDBOX_V2": "0"},
	} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			program := drive.Start(t, "..", "modal.mjs", "modal")
			for rule, hold := range map[string]func(*testing.T, modal){
				"a create is one request and made as asked":                      modalCreate,
				"without options a sandbox has five minutes":                     modalDefaults,
				"a name is taken until its sandbox ends":                         modalTakenName,
				"commands run as the SDK asks":                                   modalCommands,
				"a command's timeout ends it and not its sandbox":                modalTimedCommand,
				"files arrive and come back":                                     modalFiles,
				"a file's error has the class that users catch":                  modalFileErrors,
				"a list by tags goes through all pages and shows what runs":      modalList,
				"a list is of one app if asked, and else of all":                 modalApps,
				"a sandbox is found by its name and its id":                      modalFind,
				"tags are replaced as a whole":                                   modalTags,
				"an entrypoint is fed and heard, and its exit is the end":        modalEntrypoint,
				"a tunnel leads to each port":                                    modalTunnels,
				"a snapshot of files is an image for another sandbox":            modalSnapshot,
				"a terminate is waited for, and a second one finds what it left": modalTerminate,
				"a sandbox runs on until its terminate is done":                  modalSlowTerminate,
				"a timeout ends a sandbox whatever it does":                      modalTimeout,
				"an idle timeout spares what is busy":                            modalIdle,
				"a command ends with its sandbox":                                modalDeath,
				"a create whose answer is lost leaves a sandbox":                 modalLostCreate,
				"what is not there or not allowed is refused":                    modalErrors,
			} {
				t.Run(rule, func(t *testing.T) {
					hold(t, newModal(t, program, env))
				})
			}
		})
	}
}

func newModal(t *testing.T, program *drive.SDK, env options) modal {
	t.Helper()
	server := modalfake.New(modalfake.Options{Quirks: modalfake.Quirks{PageSize: 2}})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Close()
		assert.NoError(t, <-served)
		for _, r := range server.Requests() {
			assert.NotEqual(t, codes.Unimplemented, r.Code, "the fake does not have %s", r.Method)
		}
	})
	env = env.With("MODAL_SERVER_URL", "http://"+l.Addr().String()).
		With("MODAL_TOKEN_ID", modalfake.DefaultTokenID).With("MODAL_TOKEN_SECRET", modalfake.DefaultTokenSecret)
	_, v1 := env["MODAL_SANDBOX_V2"]
	return modal{program.In(t, env), env, server, server.Service(), v1}
}

// method returns the name of a call, which the newer backend's end with V2.
func (m modal) method(name string) string {
	if m.v1 {
		return name
	}
	return name + "V2"
}

// create makes a sandbox and returns its id.
func (m modal) create(params options) string {
	m.T.Helper()
	return drive.Ask[string](m.SDK, "create", params)
}

// truth returns what the fake knows of a sandbox.
func (m modal) truth(id string) modalfake.Truth {
	m.T.Helper()
	truth, ok := m.server.Lookup(id)
	require.True(m.T, ok, "the fake knows no %q", id)
	require.Equal(m.T, m.v1, truth.V1)
	return truth
}

// since runs f and returns the methods that were called meanwhile.
func (m modal) since(f func()) []string {
	before := m.server.Count("")
	f()
	var methods []string
	for _, r := range m.server.Requests()[before:] {
		methods = append(methods, r.Method)
	}
	return methods
}

func (m modal) list(params options) []string {
	m.T.Helper()
	return drive.Ask[[]string](m.SDK, "list", params)
}

// A finished is what the SDK reports of a command.
type finished struct {
	Stdout, Stderr string
	ExitCode       int
}

func (m modal) exec(id string, command []string, params options) finished {
	m.T.Helper()
	if params == nil {
		params = options{}
	}
	return drive.Ask[finished](m.SDK, "exec", id, command, params)
}

func sh(script string) []string { return []string{"sh", "-c", script} }

// refuses holds that the SDK hands on the service's refusal.
func (m modal) refuses(code codes.Code, action string, args ...any) {
	m.T.Helper()
	failed := m.Fails("ClientError", action, args...)
	assert.Equal(m.T, strconv.Itoa(int(code)), failed.Code, "%s: %s", action, failed.Message)
}

// ended holds that the SDK and the fake agree on how a sandbox ended.
func (m modal) ended(id string, code int, status pb.GenericResult_GenericStatus) {
	m.T.Helper()
	assert.Equal(m.T, status, m.truth(id).Result.GetStatus())
	assert.Equal(m.T, &code, drive.Ask[*int](m.SDK, "poll", id))
	assert.Equal(m.T, code, drive.Ask[int](m.SDK, "wait", id))
	assert.NotContains(m.T, m.list(options{}), id)
}

// runs holds that the SDK and the fake agree on that a sandbox runs.
func (m modal) runs(id string) {
	m.T.Helper()
	assert.Equal(m.T, sandbox.StateRunning, m.truth(id).Record.State)
	assert.Nil(m.T, drive.Ask[*int](m.SDK, "poll", id))
	assert.Contains(m.T, m.list(options{}), id)
}

func modalCreate(t *testing.T, m modal) {
	tags := map[string]string{"owner": "sdkcheck", "run": "r1"}
	var id string
	calls := m.since(func() {
		id = m.create(options{
			"name": "n1", "tags": tags, "timeoutMs": 600_000, "idleTimeoutMs": 60_000, "env": options{"HELLO": "world"},
			"cpu": 0.5, "memoryMiB": 256, "workdir": "/tmp",
		})
	})
	creates := slices.DeleteFunc(slices.Clone(calls), func(name string) bool { return !strings.HasPrefix(name, "SandboxCreate") })
	assert.Equal(t, []string{m.method("SandboxCreate")}, creates, "of %v", calls)
	truth := m.truth(id)
	assert.Equal(t, "n1", truth.Name)
	assert.Equal(t, "sdkcheck", truth.AppName)
	assert.Equal(t, tags, truth.Record.Tags)
	assert.Equal(t, tags, drive.Ask[map[string]string](m.SDK, "getTags", id))
	assert.Equal(t, 10*time.Minute, truth.Timeout)
	assert.Equal(t, time.Minute, truth.Idle)
	assert.Equal(t, truth.Record.Created.Add(10*time.Minute), truth.HardEnd)
	assert.Equal(t, "world", truth.Env["HELLO"])
	assert.EqualValues(t, 500, truth.Definition.GetResources().GetMilliCpu())
	assert.EqualValues(t, 256, truth.Definition.GetResources().GetMemoryMb())
	assert.Equal(t, finished{Stdout: "world\n/tmp\n"}, m.exec(id, sh("echo $HELLO; pwd"), nil))
	assert.Len(t, m.server.All(), 1)
	m.runs(id)
	for _, r := range m.server.Requests() {
		if !r.Router {
			assert.Equal(t, []string{"8"}, r.Metadata.Get("x-modal-client-type"), r.Method)
			assert.Equal(t, []string{"modal-js/0.11.1"}, r.Metadata.Get("x-modal-libmodal-version"), r.Method)
		}
	}
}

func modalDefaults(t *testing.T, m modal) {
	truth := m.truth(m.create(options{}))
	assert.Equal(t, 5*time.Minute, truth.Timeout)
	assert.Zero(t, truth.Idle)
	assert.Empty(t, truth.Name)
	assert.Empty(t, truth.Record.Tags)
	assert.Equal(t, truth.HardEnd, truth.Deadline)
}

func modalTakenName(t *testing.T, m modal) {
	first := m.create(options{"name": "n1"})
	m.Fails("AlreadyExistsError", "create", options{"name": "n1"})
	assert.Len(t, m.server.All(), 1)
	elsewhere := m.create(options{"name": "n1", "app": "another"}) // a name is one app's
	assert.NotEqual(t, first, elsewhere)
	m.Must("terminate", first, options{"wait": true})
	second := m.create(options{"name": "n1"})
	assert.NotEqual(t, first, second)
	assert.Equal(t, second, drive.Ask[string](m.SDK, "fromName", "n1"))
}

func modalCommands(t *testing.T, m modal) {
	id := m.create(options{"env": options{"A": "1", "B": "1"}})
	assert.Equal(t, finished{"out\nhi\n", "err\n", 3}, m.exec(id, sh("echo out; cat; echo err >&2; exit 3"), options{
		"stdin": "hi\n", "timeoutMs": 20_000,
	}))
	elsewhere := options{"env": options{"B": "2"}, "workdir": "/usr"}
	assert.Equal(t, finished{Stdout: "1 2 /usr\n"}, m.exec(id, sh("echo $A $B $PWD"), elsewhere))
	assert.Equal(t, finished{}, m.exec(id, []string{"true"}, nil))
	assert.Equal(t, 137, m.exec(id, sh("kill -9 $$"), nil).ExitCode)
	assert.Equal(t, finished{ExitCode: 1}, m.exec(id, sh("echo out; exit 1"), options{"stdout": "ignore"}))
	assert.Equal(t, strings.Repeat("x", 200_000), m.exec(id, []string{"cat"}, options{"stdin": strings.Repeat("x", 200_000)}).Stdout)
	bytes := []int{0, 255, 10, 128, 0}
	assert.Equal(t, bytes, drive.Ask[[]int](m.SDK, "execBytes", id, []string{"cat"}, bytes))
	m.Fails("Error", "exec", id, []string{"true"}, options{"timeoutMs": 1_500})
	m.runs(id)
}

func modalTimedCommand(t *testing.T, m modal) {
	id := m.create(options{})
	n := drive.Ask[int](m.SDK, "start", id, []string{"sleep", "600"}, options{"timeoutMs": 1_000})
	assert.Equal(t, 137, drive.Ask[int](m.SDK, "exit", n))
	m.quiet(id)
	m.runs(id)
	assert.Equal(t, finished{Stdout: "on\n"}, m.exec(id, sh("echo on"), nil))
}

// quiet waits until no command runs in a sandbox: its caller is told of an end before all of it has ended.
func (m modal) quiet(id string) {
	m.T.Helper()
	assert.Eventually(m.T, func() bool { return m.truth(id).Running == 0 }, time.Minute, 10*time.Millisecond)
}

// A file is what the SDK reports of one.
type file struct {
	Name, Path, Type string
	Size             int
}

func modalFiles(t *testing.T, m modal) {
	id := m.create(options{})
	m.Must("makeDirectory", id, "/data/deep", options{"createParents": true})
	m.Must("writeText", id, "grüß\n", "/data/a.txt")
	assert.Equal(t, "grüß\n", drive.Ask[string](m.SDK, "readText", id, "/data/a.txt"))
	assert.Equal(t, "grüß\n", m.exec(id, sh("cat /data/a.txt"), nil).Stdout)
	bytes := []int{0, 255, 10, 128, 0}
	m.Must("writeBytes", id, bytes, "/data/deep/b.bin")
	assert.Equal(t, bytes, drive.Ask[[]int](m.SDK, "readBytes", id, "/data/deep/b.bin"))
	assert.ElementsMatch(t, []file{
		{"a.txt", "/data/a.txt", "file", 7}, {"deep", "/data/deep", "directory", drive.Ask[file](m.SDK, "stat", id, "/data/deep").Size},
	}, drive.Ask[[]file](m.SDK, "listFiles", id, "/data"))
	assert.Equal(t, file{"b.bin", "/data/deep/b.bin", "file", 5}, drive.Ask[file](m.SDK, "stat", id, "/data/deep/b.bin"))

	local := t.TempDir()
	large := strings.Repeat("0123456789abcdef", 20_000)
	require.NoError(t, os.WriteFile(filepath.Join(local, "up"), []byte(large), 0o600))
	m.Must("upload", id, filepath.Join(local, "up"), "/data/large")
	assert.Equal(t, "320000\n", m.exec(id, sh("cat /data/large | wc -c"), nil).Stdout)
	m.Must("download", id, "/data/large", filepath.Join(local, "down"))
	got, err := os.ReadFile(filepath.Join(local, "down"))
	require.NoError(t, err)
	assert.Equal(t, large, string(got))

	m.Must("remove", id, "/data/a.txt")
	m.Must("remove", id, "/data/deep", options{"recursive": true})
	assert.Equal(t, "large\n", m.exec(id, sh("ls /data"), nil).Stdout)
}

func modalFileErrors(t *testing.T, m modal) {
	id := m.create(options{})
	m.Must("makeDirectory", id, "/data")
	m.Must("writeText", id, "x", "/data/a")
	m.Fails("SandboxFilesystemNotFoundError", "readText", id, "/data/none")
	m.Fails("SandboxFilesystemNotFoundError", "stat", id, "/data/none")
	m.Fails("SandboxFilesystemNotFoundError", "remove", id, "/data/none")
	m.Fails("SandboxFilesystemIsADirectoryError", "readText", id, "/data")
	m.Fails("SandboxFilesystemNotADirectoryError", "listFiles", id, "/data/a")
	m.Fails("SandboxFilesystemDirectoryNotEmptyError", "remove", id, "/data")
	m.Fails("SandboxFilesystemPathAlreadyExistsError", "makeDirectory", id, "/data", options{"createParents": false})
	assert.Equal(t, "x", drive.Ask[string](m.SDK, "readText", id, "/data/a"))
	m.Must("terminate", id, options{"wait": true})
	m.Fails("NotFoundError", "readText", id, "/data/a")
}

func modalList(t *testing.T, m modal) {
	var all []string
	for _, of := range []string{"a", "b", "a", "a", "b", "a", "a"} {
		all = append(all, m.create(options{"tags": options{"run": "r1", "of": of}}))
	}
	other := m.create(options{"tags": options{"run": "r2", "of": "a"}})
	m.Must("terminate", all[2], options{"wait": true})
	var got []string
	calls := m.since(func() { got = m.list(options{"tags": options{"run": "r1"}}) })
	assert.Equal(t, []string{all[6], all[5], all[4], all[3], all[1], all[0]}, got, "the newest first")
	pages := slices.DeleteFunc(calls, func(name string) bool { return name != m.method("SandboxList") })
	assert.Len(t, pages, 4, "three of two each, and one that is empty")
	assert.Equal(t, []string{all[4], all[1]}, m.list(options{"tags": options{"run": "r1", "of": "b"}}), "all tags must match")
	assert.Equal(t, []string{other}, m.list(options{"tags": options{"run": "r2"}}))
	assert.Empty(t, m.list(options{"tags": options{"run": "r"}}))
	assert.Len(t, m.list(options{}), len(m.server.All()))
}

func modalApps(t *testing.T, m modal) {
	here, there := m.create(options{"tags": options{"run": "r1"}}), m.create(options{"app": "another", "tags": options{"run": "r1"}})
	assert.NotEqual(t, m.truth(here).App, m.truth(there).App)
	assert.Equal(t, []string{there}, m.list(options{"app": "another"}))
	assert.Equal(t, []string{here}, m.list(options{"app": "sdkcheck", "tags": options{"run": "r1"}}))
	assert.Equal(t, []string{there, here}, m.list(options{"tags": options{"run": "r1"}}))
}

func modalFind(t *testing.T, m modal) {
	id := m.create(options{"name": "n1"})
	assert.Equal(t, id, drive.Ask[string](m.SDK, "fromName", "n1"))
	assert.Equal(t, finished{Stdout: "found\n"}, m.exec(id, sh("echo found"), nil), "by what was found")
	assert.Equal(t, id, drive.Ask[string](m.SDK, "fromID", id))
	assert.Equal(t, finished{Stdout: "found\n"}, m.exec(id, sh("echo found"), nil))
	m.Fails("NotFoundError", "fromName", "none")
	m.Must("terminate", id, options{"wait": true})
	m.Fails("NotFoundError", "fromName", "n1")
	if !m.v1 { // the SDK has a name's past for the newer backend only
		assert.Equal(t, id, drive.Ask[string](m.SDK, "fromName", "n1", options{"includeTerminated": true}))
	}
	assert.Equal(t, id, drive.Ask[string](m.SDK, "fromID", id))
	m.ended(id, 137, pb.GenericResult_GENERIC_STATUS_TERMINATED)
}

func modalTags(t *testing.T, m modal) {
	id := m.create(options{"tags": options{"run": "r1", "of": "a"}})
	for _, tags := range []map[string]string{{"run": "r2", "new": "ü"}, {}, {"run": "r3"}} {
		m.Must("setTags", id, tags)
		got := m.truth(id).Record.Tags
		assert.Len(t, got, len(tags))
		for key, value := range tags {
			assert.Equal(t, value, got[key], key)
		}
		assert.Equal(t, tags, drive.Ask[map[string]string](m.SDK, "getTags", id))
	}
	assert.Equal(t, []string{id}, m.list(options{"tags": options{"run": "r3"}}))
	assert.Empty(t, m.list(options{"tags": options{"run": "r1"}}))
}

func modalEntrypoint(t *testing.T, m modal) {
	id := m.create(options{"command": sh("cat; echo err >&2; exit 3"), "timeoutMs": 60_000})
	m.runs(id)
	m.Must("feed", id, "hi\n")
	assert.Equal(t, 3, drive.Ask[int](m.SDK, "wait", id))
	assert.Equal(t, map[string]string{"stdout": "hi\n", "stderr": "err\n"}, drive.Ask[map[string]string](m.SDK, "output", id))
	m.ended(id, 3, pb.GenericResult_GENERIC_STATUS_FAILURE)

	id = m.create(options{"command": []string{"true"}})
	assert.Equal(t, 0, drive.Ask[int](m.SDK, "wait", id))
	m.ended(id, 0, pb.GenericResult_GENERIC_STATUS_SUCCESS)
}

func modalTunnels(t *testing.T, m modal) {
	id := m.create(options{"encryptedPorts": []int{8080}, "unencryptedPorts": []int{9090}})
	type tunnel struct {
		Port            int
		URL             string
		Host            string // that takes plain TCP, if any
		UnencryptedPort int
	}
	tunnels := drive.Ask[[]tunnel](m.SDK, "tunnels", id)
	require.Len(t, tunnels, 2)
	assert.Equal(t, 8080, tunnels[0].Port)
	assert.Regexp(t, `^https://\w+\.w\.modal\.host$`, tunnels[0].URL)
	assert.Empty(t, tunnels[0].Host)
	assert.Equal(t, 9090, tunnels[1].Port)
	assert.Regexp(t, `^https://\w+\.w\.modal\.host$`, tunnels[1].URL)
	assert.Regexp(t, `^\w+\.w\.modal\.host$`, tunnels[1].Host)
	assert.Positive(t, tunnels[1].UnencryptedPort)
	assert.Empty(t, drive.Ask[[]tunnel](m.SDK, "tunnels", m.create(options{})))
}

func modalSnapshot(t *testing.T, m modal) {
	id := m.create(options{})
	m.Must("writeText", id, "kept", "/kept")
	next := drive.Ask[string](m.SDK, "fromSnapshot", id, options{"tags": options{"run": "r2"}})
	assert.NotEqual(t, id, next)
	assert.Equal(t, "kept", drive.Ask[string](m.SDK, "readText", next, "/kept"))
	assert.Equal(t, map[string]string{"run": "r2"}, m.truth(next).Record.Tags)
	m.runs(id)
}

func modalTerminate(t *testing.T, m modal) {
	id := m.create(options{})
	assert.Equal(t, 137, drive.Ask[int](m.SDK, "terminate", id, options{"wait": true}))
	assert.Equal(t, sandbox.StateGone, m.truth(id).Record.State)
	m.ended(id, 137, pb.GenericResult_GENERIC_STATUS_TERMINATED)
	m.Must("terminate", id)
	assert.Equal(t, 137, drive.Ask[int](m.SDK, "terminate", id, options{"wait": true}))
	assert.Equal(t, 3, m.server.Count(m.method("SandboxTerminate")))
	assert.Empty(t, m.server.All())

	id = m.create(options{"command": sh("exit 4")})
	assert.Equal(t, 4, drive.Ask[int](m.SDK, "wait", id))
	assert.Equal(t, 4, drive.Ask[int](m.SDK, "terminate", id, options{"wait": true}), "what ended by itself stays as it ended")
}

func modalSlowTerminate(t *testing.T, m modal) {
	m.svc.Behave(func(b *fake.Behaviour) { b.DeleteTime = 2 * time.Minute })
	id := m.create(options{"name": "n1"})
	m.Must("terminate", id)
	assert.Equal(t, sandbox.StateEnding, m.truth(id).Record.State)
	assert.Nil(t, drive.Ask[*int](m.SDK, "poll", id), "a terminate does not wait")
	m.Must("terminate", id)
	m.svc.Advance(2 * time.Minute)
	assert.Equal(t, sandbox.StateGone, m.truth(id).Record.State)
	m.ended(id, 137, pb.GenericResult_GENERIC_STATUS_TERMINATED)
	m.create(options{"name": "n1"}) // the name is free
}

func modalTimeout(t *testing.T, m modal) {
	id := m.create(options{"timeoutMs": 600_000})
	m.Must("start", id, []string{"sleep", "600"})
	m.svc.Advance(9 * time.Minute)
	m.runs(id)
	m.exec(id, []string{"true"}, nil)
	m.svc.Advance(61 * time.Second)
	m.ended(id, 124, pb.GenericResult_GENERIC_STATUS_TIMEOUT)
	assert.Empty(t, m.server.All())
}

func modalIdle(t *testing.T, m modal) {
	id := m.create(options{"timeoutMs": 3_600_000, "idleTimeoutMs": 180_000})
	m.svc.Advance(2 * time.Minute)
	m.exec(id, []string{"true"}, options{"timeoutMs": 60_000}) // the nearest thing to an extend
	truth := m.truth(id)
	assert.WithinRange(t, truth.Deadline, truth.Record.Created.Add(5*time.Minute), m.svc.Now().Add(3*time.Minute))
	m.svc.Advance(2 * time.Minute)
	m.runs(id)
	m.svc.Advance(3*time.Minute + time.Second)
	truth = m.truth(id)
	require.NotNil(t, truth.Result)
	m.ended(id, drive.Ask[int](m.SDK, "wait", id), truth.Result.GetStatus())
	assert.Equal(t, sandbox.StateGone, truth.Record.State)
}

func modalDeath(t *testing.T, m modal) {
	id := m.create(options{})
	m.Must("begin", id, sh("echo up; touch /tmp/up; sleep 600"))
	m.exec(id, sh("until test -e /tmp/up; do sleep 0.05; done"), nil)
	assert.Equal(t, 137, drive.Ask[int](m.SDK, "terminate", id, options{"wait": true}))
	assert.Equal(t, finished{Stdout: "up\n", ExitCode: 137}, drive.Ask[finished](m.SDK, "end"))
	m.quiet(id)
	m.refuses(codes.NotFound, "exec", id, []string{"true"}, options{})
}

func modalLostCreate(t *testing.T, m modal) {
	// The SDK asks again, and its user learns of a refusal while the first one runs.
	m.server.Fault(m.method("SandboxCreate"), modalfake.Fault{Code: codes.Unavailable, After: true})
	m.Fails("AlreadyExistsError", "create", options{"name": "n1"})
	require.Len(t, m.server.All(), 1)
	id := drive.Ask[string](m.SDK, "fromName", "n1")
	assert.Equal(t, sandbox.StateRunning, m.truth(id).Record.State)

	// Without a name there are two then, one of which nobody knows.
	m.server.Fault(m.method("SandboxCreate"), modalfake.Fault{Code: codes.Unavailable, After: true})
	id = m.create(options{"tags": options{"run": "r1"}})
	got := m.list(options{"tags": options{"run": "r1"}})
	require.Len(t, got, 2)
	assert.Contains(t, got, id)
	for _, id := range got {
		m.runs(id)
	}
}

func modalErrors(t *testing.T, m modal) {
	unknown := map[bool]string{true: "sb-0123456789abcdefABCDEF", false: "sb-01K0000000000000000000000Z"}[m.v1]
	m.Must("fromID", unknown) // which asks nobody
	for _, action := range []string{"poll", "wait", "terminate", "getTags"} {
		m.refuses(codes.NotFound, action, unknown)
	}
	m.refuses(codes.InvalidArgument, "create", options{"timeoutMs": 25 * time.Hour.Milliseconds()})
	m.Fails("Error", "create", options{"timeoutMs": 1_500})
	m.Fails("InvalidError", "create", options{"name": "not a name"})
	assert.Empty(t, m.server.All())

	id := m.create(options{})
	m.Must("detach", id) // which ends nothing
	m.Fails("ClientClosedError", "poll", id)
	m.Must("fromID", id)
	m.runs(id)

	m.Must("open", m.env.With("MODAL_TOKEN_SECRET", "as-another"))
	m.Must("fromID", id)
	m.refuses(codes.Unauthenticated, "poll", id)
	m.refuses(codes.Unauthenticated, "create", options{})
	assert.Equal(t, sandbox.StateRunning, m.truth(id).Record.State)
	assert.Len(t, m.server.All(), 1)
}
