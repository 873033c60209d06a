package boatfake_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/internal/fake/boatfake"
	"github.com/sandglass-dev/sandglass/sandbox"
)

func TestACommandIsALoginShellOfTheUser(t *testing.T) {
	in(t, boatfake.Quirks{}, func(w *world) {
		id := w.ready(object{"env": object{"A": "b c"}})
		r := w.exec(id, `echo "$A" $(id -un) $PWD $BOAT_ID; echo err >&2; exit 3`)
		assert.Equal(w, []any{"command.finished", false, 3., "b c user /home/user " + id + "\n", "err\n", false, false},
			[]any{r["type"], r["success"], r["exitCode"], r["stdout"], r["stderr"], r["timedOut"], r["stdoutTruncated"]})
		r = w.do("POST", "/sandboxes/"+id+"/commands", object{"command": "mkdir sub && cd sub && pwd"}).ok(200)
		assert.Equal(w, "/home/user/sub\n", r["stdout"])
		r = w.do("POST", "/sandboxes/"+id+"/commands", object{"command": "pwd", "cwd": "sub"}).ok(200)
		assert.Equal(w, "/home/user/sub\n", r["stdout"])
		assert.Equal(w, 137., w.exec(id, "kill -9 $$")["exitCode"])
		assert.Equal(w, "� \n", w.exec(id, `printf '\377 \n'`)["stdout"])
	})
}

func TestSudoAsksForNoPassword(t *testing.T) {
	in(t, boatfake.Quirks{}, func(w *world) {
		id := w.ready(nil)
		for command, want := range map[string]string{
			`sudo -n id -un`: "root\n",
			`sudo -n -u user -- sh -c 'id -un; echo $USER'`: "user\nuser\n",
			`sudo A=b sh -c 'echo $A $HOME'`:                "b /root\n",
			`A=b; export A; sudo sh -c 'echo "[$A]"'`:       "[]\n",
			`A=b; export A; sudo -E sh -c 'echo "[$A]"'`:    "[b]\n",
			`sudo -E sh -c 'echo $HOME'`:                    "/home/user\n",
			`sudo -E -H sh -c 'echo $HOME'`:                 "/root\n",
			`echo in | sudo -n cat`:                         "in\n",
		} {
			r := w.exec(id, command)
			assert.Equal(w, []any{0., want}, []any{r["exitCode"], r["stdout"]}, "%s: %s", command, r["stderr"])
		}
		for _, command := range []string{"sudo -u nobody-here true", "sudo", "sudo -z true"} {
			r := w.exec(id, command)
			assert.Equal(w, 1., r["exitCode"], command)
			assert.Contains(w, r["stderr"], "sudo: ", command)
		}
	})
}

func TestWhatACommandMayNotAskForIsRefused(t *testing.T) {
	in(t, boatfake.Quirks{}, func(w *world) {
		path := "/sandboxes/" + w.ready(nil) + "/commands"
		w.do("POST", path, object{}).no(400, "invalid_request")
		for _, n := range []int{0, 601, -1} {
			w.do("POST", path, object{"command": "true", "timeoutSeconds": n}).no(400, "invalid_timeout")
		}
		w.do("GET", path+"/0", nil).no(400, "invalid_request")
		w.do("GET", path+"/101?tailBytes=0", nil).no(400, "invalid_request")
		w.do("POST", "/sandboxes/bx_22222222/commands", object{"command": "true"}).no(404, "not_found")
	})
}

func TestACommandWaitsForTheStartAndWakesNothing(t *testing.T) {
	in(t, boatfake.Quirks{}, func(w *world) {
		w.behave(func(b *fake.Behaviour) { b.StartTime = 50 * time.Second })
		id := w.create(nil)
		assert.Equal(w, "hi\n", w.exec(id, "echo hi")["stdout"])
		w.behave(func(b *fake.Behaviour) { b.StartTime = 2 * time.Minute })
		slow := w.create(nil)
		began := time.Now()
		d := w.do("POST", "/sandboxes/"+slow+"/commands", object{"command": "true"}).no(409, "boat_starting")
		assert.Equal(w, []any{true, time.Minute}, []any{d["retryable"], time.Since(began)})
		w.do("POST", "/sandboxes/"+id+"/stop", nil).ok(202)
		for _, want := range []string{"archiving", "archived"} {
			d = w.do("POST", "/sandboxes/"+id+"/commands", object{"command": "true"}).no(409, "sandbox_not_ready")
			assert.Equal(w, []any{false, want}, []any{d["retryable"], d["state"]})
			time.Sleep(5 * time.Second)
		}
		w.s.Change(func(q *boatfake.Quirks) { q.OldNotReady = true })
		w.do("POST", "/sandboxes/"+id+"/commands", object{"command": "true"}).no(409, "machine_not_running")
		assert.Equal(w, "archived", w.state(id))
		w.s.Change(func(q *boatfake.Quirks) { q.NoMachine = true })
		w.behave(func(b *fake.Behaviour) { b.StartTime = time.Second })
		w.do("POST", "/sandboxes/"+w.create(nil)+"/commands", object{"command": "true"}).no(404, "not_found")
	})
}

func TestBoat16ATimeoutEndsTheCallAndNotTheProcess(t *testing.T) {
	in(t, boatfake.Quirks{}, func(w *world) {
		id := w.ready(nil)
		body := object{"command": "echo lost; sleep 20; echo late >late", "timeoutSeconds": 5}
		began := time.Now()
		r := w.do("POST", "/sandboxes/"+id+"/commands", body).ok(200)
		assert.Equal(w, []any{true, 143., "", false}, []any{r["timedOut"], r["exitCode"], r["stdout"], r["success"]})
		assert.Equal(w, 5*time.Second, time.Since(began))
		assert.True(w, w.s.Processes(id)[0].Running)
		time.Sleep(16 * time.Second)
		assert.Equal(w, "late\n", w.exec(id, "cat late")["stdout"])
		assert.False(w, w.s.Processes(id)[0].Running)

		w.s.Change(func(q *boatfake.Quirks) { q.TimeoutKills = true })
		r = w.do("POST", "/sandboxes/"+id+"/commands", body).ok(200)
		assert.Equal(w, []any{true, 143., "lost\n"}, []any{r["timedOut"], r["exitCode"], r["stdout"]})
		assert.False(w, w.s.Processes(id)[2].Running)
	})
}

func TestAClientThatLeavesKillsNothing(t *testing.T) {
	in(t, boatfake.Quirks{}, func(w *world) {
		id := w.ready(nil)
		w.api.Timeout = time.Second
		_, err := w.try("POST", "/sandboxes/"+id+"/commands", object{"command": "sleep 10; echo done >done"})
		assert.Error(w, err)
		time.Sleep(10 * time.Second)
		assert.Equal(w, "done\n", w.exec(id, "cat done")["stdout"])
	})
}

func TestBoat17ACommandMayHaveRunThoughTheAnswerSaysItFailed(t *testing.T) {
	in(t, boatfake.Quirks{}, func(w *world) {
		id := w.ready(nil)
		w.s.Fault("command", boatfake.Fault{Status: 502, Code: "boat_direct_failed", After: true})
		w.do("POST", "/sandboxes/"+id+"/commands", object{"command": "echo x >>ran"}).no(502, "boat_direct_failed")
		assert.Equal(w, "x\n", w.exec(id, "cat ran")["stdout"])
		assert.Len(w, w.s.Processes(id), 2)
	})
}

func TestALongAnswerIsCut(t *testing.T) {
	in(t, boatfake.Quirks{OutputLimit: 4}, func(w *world) {
		id := w.ready(nil)
		r := w.exec(id, "echo 123456; echo 12 >&2")
		assert.Equal(w, []any{"1234", true, "12\n", false}, []any{r["stdout"], r["stdoutTruncated"], r["stderr"], r["stderrTruncated"]})
	})
}

func TestAStreamTellsOfOutputAsItComesAndOfTheEndOnce(t *testing.T) {
	in(t, boatfake.Quirks{}, func(w *world) {
		id := w.ready(nil)
		frames, err := w.stream(id, `echo out; sleep 1; echo err >&2; printf 'caf\303'; sleep 1; printf '\251'; exit 3`, 30)
		require.NoError(w, err)
		assert.Equal(w, []object{
			{"type": "started"},
			{"type": "stdout", "data": "out\n"},
			{"type": "stderr", "data": "err\n"},
			{"type": "stdout", "data": "caf"},
			{"type": "stdout", "data": "é"},
			{"type": "exit", "exitCode": 3., "success": false, "timedOut": false},
		}, frames)
		began := time.Now()
		frames, err = w.stream(id, "echo a; sleep 100", 2)
		require.NoError(w, err)
		assert.Equal(w, 2*time.Second, time.Since(began))
		assert.Equal(w, object{"type": "exit", "exitCode": 143., "success": false, "timedOut": true}, frames[2])
		assert.True(w, w.s.Processes(id)[1].Running)
	})
}

func TestAStreamIsCutWhereAFaultWantsIt(t *testing.T) {
	in(t, boatfake.Quirks{}, func(w *world) {
		id := w.ready(nil)
		w.s.Fault("command", boatfake.Fault{Cut: len(`{"type":"started"}` + "\n" + `{"data"`)})
		r, err := w.try("POST", "/sandboxes/"+id+"/commands", object{"command": "echo a; sleep 1", "stream": true})
		assert.Error(w, err)
		assert.Equal(w, `{"type":"started"}`+"\n"+`{"data"`, string(r.body))
	})
}

func TestTheEndOfASandboxEndsItsStreams(t *testing.T) {
	for how, want := range map[boatfake.DeadStream]string{
		boatfake.StreamTells: "map[error:boat_direct_failed", boatfake.StreamCut: "map[data:a", boatfake.StreamEnds: "map[data:a",
		boatfake.StreamHangs: "map[data:a",
	} {
		t.Run(fmt.Sprint(how), func(t *testing.T) {
			in(t, boatfake.Quirks{DeadStreams: how}, func(w *world) {
				id := w.ready(nil)
				w.api.Timeout = time.Minute
				began := time.Now()
				time.AfterFunc(5*time.Second, func() { w.s.Service().Pause(boatfake.MachineID(id)) })
				frames, err := w.stream(id, "echo a; sleep 100", 300)
				assert.Contains(w, fmt.Sprint(frames[len(frames)-1]), want)
				assert.Equal(w, how == boatfake.StreamCut || how == boatfake.StreamHangs, err != nil)
				lasted := 5 * time.Second
				if how == boatfake.StreamHangs {
					lasted = time.Minute
				}
				assert.Equal(w, lasted, time.Since(began))
				synctest.Wait()
				assert.False(w, w.s.Processes(id)[0].Running)
			})
		})
	}
}

func TestTheEndOfASandboxLeavesTheOutcomeOpen(t *testing.T) {
	in(t, boatfake.Quirks{}, func(w *world) {
		id := w.ready(object{"ttlSeconds": 10})
		w.do("POST", "/sandboxes/"+id+"/commands", object{"command": "sleep 100", "timeoutSeconds": 60}).no(502, "boat_direct_failed")
		assert.Equal(w, "archiving", w.state(id))
	})
}

func TestADetachedCommandGoesOnAndItsLogsAreFiles(t *testing.T) {
	in(t, boatfake.Quirks{}, func(w *world) {
		id := w.ready(nil)
		body := object{"command": "echo one; echo e >&2; sleep 700; echo two; exit 4", "detached": true, "stream": true}
		started := w.do("POST", "/sandboxes/"+id+"/commands", body).ok(200)
		assert.Equal(w, []any{"command.started", true, 101., "/home/user"},
			[]any{started["type"], started["success"], started["processId"], started["cwd"]})
		look := func(query string) object {
			return w.do("GET", "/sandboxes/"+id+"/commands/101"+query, nil).ok(200)
		}
		time.Sleep(time.Minute)
		r := look("")
		assert.Equal(w, []any{"running", true, nil, "one\n", "e\n", true},
			[]any{r["status"], r["running"], r["exitCode"], r["stdout"], r["stderr"], r["known"]})
		assert.Equal(w, "one\n", w.exec(id, "cat "+started["logPath"].(string))["stdout"])
		time.Sleep(11 * time.Minute)
		r = look("?tailBytes=4")
		assert.Equal(w, []any{"exited", false, 4., "two\n", true, "e\n", false},
			[]any{r["status"], r["running"], r["exitCode"], r["stdout"], r["stdoutTruncated"], r["stderr"], r["stderrTruncated"]})
		r = w.do("GET", "/sandboxes/"+id+"/commands/999", nil).ok(200)
		assert.Equal(w, []any{"lost", false, nil}, []any{r["status"], r["known"], r["exitCode"]})
		w.do("POST", "/sandboxes/"+id+"/commands", body).ok(200)
		w.do("POST", "/sandboxes/"+id+"/stop", nil).ok(202)
		time.Sleep(5 * time.Second)
		w.do("GET", "/sandboxes/"+id+"/commands/101", nil).no(409, "sandbox_not_ready")
		w.do("POST", "/sandboxes/"+id+"/resume", nil).ok(202)
		assert.Equal(w, "lost", w.do("GET", "/sandboxes/"+id+"/commands/103", nil).ok(200)["status"])
		assert.Equal(w, "lost", look("")["status"], "what has ended is not known any more either")
	})
}

func TestCommandsShareOneMachine(t *testing.T) {
	in(t, boatfake.Quirks{}, func(w *world) {
		id := w.ready(nil)
		for range 2 {
			w.do("POST", "/sandboxes/"+id+"/commands", object{"command": "sleep 1000", "detached": true}).ok(200)
		}
		w.do("POST", "/sandboxes/"+id+"/commands", object{"command": "sudo sleep 2000", "detached": true}).ok(200)
		time.Sleep(time.Second)
		r := w.exec(id, "pgrep -x sleep | wc -l; pkill -KILL -f '^sleep 1000'; pkill -KILL -f '^sleep 2000' || echo not root")
		assert.Equal(w, []any{0., "3\nnot root\n"}, []any{r["exitCode"], r["stdout"]})
		synctest.Wait() // until who was killed has ended
		status := w.do("GET", "/sandboxes/"+id+"/commands/101", nil).ok(200)
		assert.Equal(w, []any{"exited", 137.}, []any{status["status"], status["exitCode"]})
		assert.Equal(w, 0., w.exec(id, "sudo -n pkill -KILL -f '^sleep 2000'")["exitCode"])
		synctest.Wait()
		status = w.do("GET", "/sandboxes/"+id+"/commands/103", nil).ok(200)
		assert.Equal(w, []any{"exited", 137.}, []any{status["status"], status["exitCode"]})
	})
}

func TestACommandThatIsNeverRunSaysItWas(t *testing.T) {
	in(t, boatfake.Quirks{}, func(w *world) {
		id := w.ready(nil)
		w.s.Service().Fault(sandbox.OpExec, fake.Fault{Effect: fake.EffectNone})
		assert.Equal(w, 0., w.exec(id, "touch x")["exitCode"])
		assert.Empty(w, w.exec(id, "ls")["stdout"])
	})
}

func TestFilesAreTextOrBase64AndLieBelowTwoFolders(t *testing.T) {
	in(t, boatfake.Quirks{}, func(w *world) {
		path := "/sandboxes/" + w.ready(nil) + "/files"
		binary := string([]byte{0, 1, 0xff})
		encoded := base64.StdEncoding.EncodeToString([]byte(binary))
		r := w.do("PUT", path, object{"path": "a.bin", "content": encoded, "encoding": "base64"}).ok(200)
		assert.Equal(w, []any{"file.written", "/home/user/a.bin", 3., "base64"}, []any{r["type"], r["path"], r["size"], r["encoding"]})
		r = w.do("GET", path+"?path=/home/user/a.bin&encoding=base64", nil).ok(200)
		assert.Equal(w, []any{"file.read", "AAH/", 3.}, []any{r["type"], r["content"], r["size"]})
		assert.Equal(w, "\x00\x01�", w.do("GET", path+"?path=a.bin", nil).ok(200)["content"])
		raw := w.do("GET", strings.TrimSuffix(path, "files")+"artifacts?path=a.bin", nil)
		assert.Equal(w, []any{200, binary}, []any{raw.status, string(raw.body)})
		w.do("PUT", path, object{"path": "/tmp/t", "content": "text"}).ok(200)
		for _, bad := range []string{"/etc/passwd", "/home/user/../../etc/passwd", "../other", "/tmp", ""} {
			w.do("PUT", path, object{"path": bad, "content": "x"}).no(400, "invalid_path")
			w.do("GET", path+"?path="+url.QueryEscape(bad), nil).no(400, "invalid_path")
		}
		w.do("GET", path+"?path=none", nil).no(404, "not_found")
		assert.Equal(w, 404, w.do("PUT", path, object{"path": "no/folder", "content": ""}).status, "folders are not made")
		w.do("PUT", path, object{"path": "x"}).no(400, "invalid_request")
		w.do("PUT", path, object{"path": "x", "content": "!", "encoding": "base64"}).no(400, "invalid_request")
		w.do("GET", path+"?path=/tmp/t&encoding=latin1", nil).no(400, "invalid_request")
		w.do("GET", "/sandboxes/bx_22222222/files?path=x", nil).no(404, "not_found")
	})
}

func TestAHostedPortAsksForATokenUnlessItIsPublic(t *testing.T) {
	in(t, boatfake.Quirks{}, func(w *world) {
		id := w.ready(nil)
		w.s.HandlePort(3000, http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(out, "hi "+r.URL.Path)
		}))
		host := func(body object) object { return w.do("POST", "/sandboxes/"+id+"/host", body).ok(200) }
		private := host(object{"port": 3000})
		assert.Equal(w, []any{"port.hosted", true, "private"}, []any{private["type"], private["isProtected"], private["access"]})
		at := strings.Replace(private["url"].(string), "https:", "http:", 1)
		bare, _, _ := strings.Cut(at, "?")
		assert.Regexp(w, `^http://[a-z0-9-]+-3000\.on\.boat\.dev/$`, bare)
		assert.Equal(w, 401, w.do("GET", bare, nil).status)
		assert.Equal(w, 401, w.do("GET", bare+"?_token=wrong", nil).status)
		first := w.do("GET", at, nil)
		assert.Equal(w, "hi /", string(first.body))
		cookie, _, _ := strings.Cut(first.header.Get("Set-Cookie"), ";")
		assert.Equal(w, 200, w.do("GET", bare, nil, "Cookie", cookie).status)
		assert.Equal(w, false, host(object{"port": 3000, "public": true})["isProtected"])
		assert.Equal(w, "hi /x", string(w.do("GET", bare+"x", nil).body))
		dead := strings.Replace(host(object{"port": 4000, "public": true})["url"].(string), "https:", "http:", 1)
		assert.Equal(w, 502, w.do("GET", dead, nil).status)
		assert.Equal(w, 404, w.do("GET", strings.Replace(dead, "-4000.", "-4001.", 1), nil).status)
		w.do("POST", "/sandboxes/"+id+"/host", object{"port": 0}).no(400, "invalid_request")
		w.do("POST", "/sandboxes/"+id+"/stop", nil).ok(202)
		assert.Equal(w, 502, w.do("GET", bare, nil).status)
		w.do("POST", "/sandboxes/"+id+"/host", object{"port": 3000}).no(409, "sandbox_not_ready")
	})
}

func TestBoat18ALookMayNeverBeAnswered(t *testing.T) {
	in(t, boatfake.Quirks{}, func(w *world) {
		id := w.ready(nil)
		w.s.Fault("get", boatfake.Fault{Hang: true})
		w.api.Timeout = 24 * time.Hour
		_, err := w.try("GET", "/sandboxes/"+id, nil)
		assert.ErrorIs(w, err, context.DeadlineExceeded)
		assert.Equal(w, "archived", w.state(id))
	})
}
