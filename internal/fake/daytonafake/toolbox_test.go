package daytonafake_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/internal/fake/daytonafake"
	"github.com/sandglass-dev/sandglass/internal/fake/shell"
	"github.com/sandglass-dev/sandglass/sandbox"
)

func TestACommandRunsInAShellAndMergesItsOutput(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		id := w.create(object{"env": object{"A": "a", "B": "b"}})
		url := "/toolbox/" + id + "/process/execute"
		assert.Equal(w, object{"exitCode": 0., "result": "out\nerr\n"}, w.exec(id, "echo out; echo err >&2"))
		assert.Equal(w, object{"exitCode": 3., "result": ""}, w.exec(id, "exit 3"))
		assert.Equal(w, "daytona /home/daytona\n", w.exec(id, "echo $(whoami) $PWD")["result"])
		there := w.do("POST", url, object{"command": "echo $A $B $PWD", "cwd": "/tmp", "envs": object{"B": "c"}}).ok()
		assert.Equal(w, "a c /tmp\n", there["result"])
		assert.Equal(w, "", w.exec(id, "cat")["result"], "its standard input is its own text, of which nothing is left")
		assert.Equal(w, "\ufffd\n", w.exec(id, `printf '\377\n'`)["result"], "JSON holds text only")
		assert.Equal(w, -1., w.do("POST", url, object{"command": "true", "cwd": "/none"}).ok()["exitCode"])
		w.do("POST", url, object{"command": ""}).refused(400)
		w.do("POST", url, object{"command": 1}).refused(400)

		start := time.Now()
		said := w.do("POST", url, object{"command": "sleep 60", "timeout": 7}).refused(408)
		assert.Equal(w, []any{"PROCESS_EXECUTION_TIMEOUT", "DAYTONA_DAEMON"}, []any{said["code"], said["source"]})
		assert.WithinDuration(w, start.Add(7*time.Second), time.Now(), 20*time.Millisecond)
		assert.Equal(w, "daytona\n", w.do("POST", url, object{"command": "whoami", "timeout": 0}).ok()["result"])
	})
}

func TestACommandGoesOnWhenItsCallerHasGone(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		id := w.create(nil)
		w.api.Timeout = time.Second
		_, err := w.try("POST", "/toolbox/"+id+"/process/execute", object{"command": "sleep 10; echo late > /tmp/late"})
		require.Error(w, err)
		time.Sleep(10 * time.Second)
		assert.Equal(w, "late\n", w.exec(id, "cat /tmp/late")["result"])
	})
}

func TestWhatDoesNotRunTakesNoCommands(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		id := w.create(object{"ttlMinutes": 60})
		body := object{"command": "echo hi > /tmp/f; cat /tmp/f"}
		url := "/toolbox/" + id + "/process/execute"
		w.exec(id, "echo kept > /tmp/kept")
		w.stop(id)
		assert.Contains(w, w.do("POST", url, body).refused(400)["message"], "Is the Sandbox started?")
		w.do("POST", "/api/sandbox/"+id+"/start", nil).ok()
		assert.Equal(w, "kept\n", w.exec(id, "cat /tmp/kept")["result"], "a stop keeps the disk")

		ended := make(chan reply, 1)
		go func() { ended <- w.do("POST", url, object{"command": "sleep 3600"}) }()
		time.Sleep(time.Second)
		w.s.Service().Kill(daytonafake.MachineID(id))
		assert.Equal(w, 502, (<-ended).status, "a command ends with its sandbox")
		assert.Contains(w, w.do("POST", url, body).refused(400)["message"], "Is the Sandbox started?")
		w.do("POST", "/toolbox/none/process/execute", body).refused(401)
		w.do("POST", "/toolbox/"+id+"/none", body).refused(400)
	})
}

func TestDaytona14TheDaemonCanDieWhileTheSandboxIsShownAsStarted(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		id := w.create(nil)
		w.quirk(func(q *daytonafake.Quirks) { q.DaemonDead = true })
		w.do("POST", "/toolbox/"+id+"/process/execute", object{"command": "true"}).refused(502)
		assert.Equal(w, "started", w.state(id))
		w.do("DELETE", "/api/sandbox/"+id, nil).ok()
	})
}

func TestFaultsOfTheStateMachineReachCommandsAndCopies(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		id := w.create(nil)
		down := fake.Fault{Err: &sandbox.APIError{Status: 503, Message: "try later"}, After: true}
		w.s.Service().Fault(sandbox.OpExec, down, fake.Fault{Effect: fake.EffectNone})
		w.do("POST", "/toolbox/"+id+"/process/execute", object{"command": "echo x > /tmp/x"}).refused(503)
		assert.Equal(w, "", w.exec(id, "cat /tmp/x")["result"], "nothing is done")
		assert.Equal(w, "x\n", w.exec(id, "cat /tmp/x")["result"])
		w.s.Service().Fault(sandbox.OpDownload, down)
		w.do("GET", "/toolbox/"+id+"/files/download?path=/tmp/x", nil).refused(503)
	})
}

func TestProgramsThatASandboxDoesNotHaveAreTheTestsToAnswer(t *testing.T) {
	run := func(_ context.Context, c shell.Command) (int, bool) {
		if c.Args[0] != "python3" {
			return 0, false
		}
		_, _ = c.Stdout.Write([]byte("ran " + c.Args[2] + "\n"))
		return 5, true
	}
	in(t, daytonafake.Options{Exec: run}, func(w *world) {
		id := w.create(nil)
		assert.Equal(w, object{"exitCode": 5., "result": "ran print(1)\n"}, w.exec(id, "python3 -c 'print(1)'"))
		got := w.do("POST", "/toolbox/"+id+"/process/code-run", object{"code": "print(1)", "language": "python"}).ok()
		assert.Equal(w, []any{5., "ran print(1)\n"}, []any{got["exitCode"], got["result"]})
		assert.Equal(w, 127., w.exec(id, "ruby -v")["exitCode"])
	})
}

func TestTheDaemonsEnvironmentIsChangedForLaterProcesses(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		id := w.create(object{"env": object{"OLD": "1", "KEPT": "2"}})
		w.do("POST", "/toolbox/"+id+"/env", object{"set": object{"NEW": "3"}, "unset": []string{"OLD"}}).ok()
		assert.Equal(w, "- 2 3\n", w.exec(id, "echo ${OLD:--} $KEPT $NEW")["result"])
		assert.Equal(w, object{"dir": "/home/daytona"}, w.do("GET", "/toolbox/"+id+"/work-dir", nil).ok())
		assert.Equal(w, object{"dir": "/home/daytona"}, w.do("GET", "/toolbox/"+id+"/user-home-dir", nil).ok())
		assert.Contains(w, w.do("GET", "/toolbox/"+id+"/version", nil).ok(), "version")
	})
}

func TestASandboxBelongsToTheUserOfItsCreate(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		assert.Equal(w, "root /root\n", w.exec(w.create(object{"user": "root"}), "echo $(whoami) $HOME")["result"])
		coder := w.create(object{"user": "coder"})
		assert.Equal(w, "coder /home/coder\n", w.exec(coder, "cd; touch f && echo $(whoami) $PWD")["result"])
	})
}

func TestPreviewsNeedATokenThatChangesWithEachStart(t *testing.T) {
	served := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte("hello from " + r.URL.Path)) })
	in(t, daytonafake.Options{Preview: served}, func(w *world) {
		id := w.create(object{"autoStopInterval": 2})
		preview := w.do("GET", "/api/sandbox/"+id+"/ports/3000/preview-url", nil).ok()
		url, token := preview["url"].(string), preview["token"].(string)
		assert.Equal(w, "http://3000-"+id+".preview.test", url)
		w.key = ""
		w.do("GET", url+"/x", nil).refused(401)
		for range 5 {
			r := w.do("GET", url+"/x", nil, "X-Daytona-Preview-Token", token)
			assert.Equal(w, "hello from /x", string(r.body))
			time.Sleep(time.Minute) // it counts as activity
		}
		w.key = key
		assert.Equal(w, "started", w.state(id))
		signed := w.do("GET", "/api/sandbox/"+id+"/ports/3000/signed-preview-url?expiresInSeconds=120", nil).ok()
		w.do("GET", "/api/sandbox/"+id+"/ports/3000/signed-preview-url?expiresInSeconds=0", nil).refused(400)
		w.do("GET", "/api/sandbox/"+id+"/ports/0/preview-url", nil).refused(400)
		w.do("GET", "/api/sandbox/"+id+"/ports/65536/preview-url", nil).refused(400)
		w.key = ""
		assert.Equal(w, 200, w.do("GET", signed["url"].(string)+"/x", nil).status)
		time.Sleep(121 * time.Second)
		w.do("GET", signed["url"].(string)+"/x", nil).refused(401)
		w.key = key
		w.stop(id)
		w.do("GET", url, nil).refused(400)
		w.do("POST", "/api/sandbox/"+id+"/start", nil).ok()
		w.do("POST", "/api/sandbox/"+id+"/public/true", nil).ok()
		w.key = ""
		assert.Equal(w, 200, w.do("GET", url, nil).status, "a public one needs none")
		w.key = key
		w.do("POST", "/api/sandbox/"+id+"/public/false", nil).ok()
		w.key = ""
		w.do("GET", url, nil, "X-Daytona-Preview-Token", token).refused(401)
	})
}

func TestNothingListensUnlessTheTestSaysSo(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		id := w.create(nil)
		w.do("GET", "http://80-"+id+".preview.test/", nil).refused(502)
	})
}
