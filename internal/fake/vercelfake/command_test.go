package vercelfake_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/internal/fake/vercelfake"
	"github.com/sandglass-dev/sandglass/sandbox"
)

func TestACommandThatIsWaitedForIsAStreamOfLines(t *testing.T) {
	bubble(t, vercelfake.Options{}, func(w *world) {
		a := w.create("box", m{"env": m{"A": "1", "B": "1"}})
		r := w.ok("POST", on(a.Session.ID, "cmd"), "", m{
			"command": "sh", "args": []string{"-c", "echo out; sleep 2; echo err >&2; pwd; id -un; echo $A$B$HOME; exit 3"},
			"env": m{"B": "2"}, "wait": true, "logs": true,
		})
		assert.Equal(t, "application/x-ndjson", r.Header.Get("Content-Type"), "exactly")
		all := lines(t, r.Text)
		first, last := all[0].Command, all[len(all)-1].Command
		require.NotNil(t, first)
		assert.Nil(t, first.ExitCode)
		assert.Contains(t, r.Text, `"exitCode":null`)
		assert.Equal(t, "sh", first.Name)
		assert.Len(t, first.Args, 2)
		assert.Equal(t, "/vercel/sandbox", first.CWD)
		require.NotNil(t, last.ExitCode)
		assert.Equal(t, 3, *last.ExitCode)
		assert.EqualValues(t, 2000, *last.DurationMS)
		out, errs, _ := w.run(a.Session.ID, sh("echo out; echo err >&2; pwd; id -un; echo $A$B$HOME"))
		assert.Equal(t, "out\n/vercel/sandbox\nvercel-sandbox\n11/vercel/sandbox\n", out)
		assert.Equal(t, "err\n", errs)
		out, _, _ = w.run(a.Session.ID, m{"command": "sh", "args": []string{"-c", "id -un; pwd"}, "sudo": true, "cwd": "/tmp"})
		assert.Equal(t, "root\n/tmp\n", out)

		r = w.ok("POST", on(a.Session.ID, "cmd"), "", m{"command": "echo", "args": []string{"x"}, "wait": true})
		assert.Len(t, lines(t, r.Text), 2, "without logs there are two lines")
		w.fake.Change(func(q *vercelfake.Quirks) { q.StreamType = "application/x-ndjson; charset=utf-8" })
		r = w.ok("POST", on(a.Session.ID, "cmd"), "", m{"command": "true", "wait": true})
		assert.Equal(t, "application/x-ndjson; charset=utf-8", r.Header.Get("Content-Type"))
	})
}

func TestOutputIsText(t *testing.T) {
	bubble(t, vercelfake.Options{}, func(w *world) {
		a := w.create("box", nil)
		out, _, _ := w.run(a.Session.ID, sh(`printf 'a\377b'; printf '\303'; printf '\244'; printf '\342\202'`))
		assert.Equal(t, "a�b"+"ä�", out, "a character may come in pieces, and what is none is spoiled")
	})
}

func TestACommandThatIsNotWaitedForGoesOn(t *testing.T) {
	bubble(t, vercelfake.Options{}, func(w *world) {
		a := w.create("box", nil)
		start := time.Now()
		c := w.ok("POST", on(a.Session.ID, "cmd"), "", sh("echo a; sleep 5; echo b >&2; exit 4")).Command
		assert.Zero(t, since(start))
		assert.Nil(t, c.ExitCode)
		path := on(a.Session.ID, "cmd/"+c.ID)
		assert.Nil(t, w.ok("GET", path, "", nil).Command.ExitCode)
		logs := w.ok("GET", path+"/logs", "", nil)
		assert.Equal(t, 5*time.Second, since(start), "logs end with the command")
		assert.Equal(t, `{"stream":"stdout","data":"a\n"}`+"\n"+`{"stream":"stderr","data":"b\n"}`+"\n", logs.Text)
		assert.Equal(t, logs.Text, w.ok("GET", path+"/logs", "", nil).Text, "and are told from their beginning")
		assert.Equal(t, 4, *w.ok("GET", path, "wait=true", nil).Command.ExitCode)
		d := w.ok("POST", on(a.Session.ID, "cmd"), "", sh("sleep 3")).Command
		assert.Equal(t, 0, *w.ok("GET", on(a.Session.ID, "cmd/"+d.ID), "wait=true", nil).Command.ExitCode)
		assert.Equal(t, 8*time.Second, since(start))
		all := w.ok("GET", on(a.Session.ID, "cmd"), "", nil).Commands
		require.Len(t, all, 2)
		assert.Equal(t, d.ID, all[0].ID, "the newest first")
		w.refused(404, "not_found", "GET", on(a.Session.ID, "cmd/cmd_none"), "", nil)
	})
}

func TestACommandOutlivesItsClient(t *testing.T) {
	bubble(t, vercelfake.Options{}, func(w *world) {
		a := w.create("box", nil)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		body := sh("sleep 5; echo done >f")
		body["wait"] = true
		got, err := w.client.Do(w.request(ctx, "POST", on(a.Session.ID, "cmd"), "", body))
		require.NoError(t, err)
		_, err = io.ReadAll(got.Body)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, got.Body.Close())
		w.sleep(5 * time.Second)
		out, _, _ := w.run(a.Session.ID, sh("cat f"))
		assert.Equal(t, "done\n", out)
	})
}

func TestTimeoutsAndSignalsEndACommand(t *testing.T) {
	bubble(t, vercelfake.Options{}, func(w *world) {
		a := w.create("box", m{"timeout": 3_600_000})
		start := time.Now()
		body := sh("echo a; sleep 100; echo b")
		body["timeout"] = 2000
		out, _, c := w.run(a.Session.ID, body)
		assert.Equal(t, 2*time.Second, since(start))
		assert.Equal(t, "a\n", out)
		assert.Equal(t, 137, *c.ExitCode)

		for signal, exit := range map[int]int{9: 137, 15: 143, 2: 130} {
			c := w.ok("POST", on(a.Session.ID, "cmd"), "", sh("sleep 100")).Command
			k := w.ok("POST", on(a.Session.ID, "cmd/"+c.ID+"/kill"), "", m{"signal": signal}).Command
			assert.Equal(t, exit, *k.ExitCode)
			w.refused(400, "bad_request", "POST", on(a.Session.ID, "cmd/"+c.ID+"/kill"), "", m{"signal": signal})
		}
		w.fake.Change(func(q *vercelfake.Quirks) { q.KillEnded = 200 })
		w.ok("POST", on(a.Session.ID, "cmd/"+c.ID+"/kill"), "", m{"signal": 9})
		w.refused(400, "bad_request", "POST", on(a.Session.ID, "cmd/"+c.ID+"/kill"), "", m{"signal": 19})

		w.fake.Change(func(q *vercelfake.Quirks) { q.KillsLeader = true })
		d := w.ok("POST", on(a.Session.ID, "cmd"), "", sh("sleep 10; echo x >late")).Command
		w.ok("POST", on(a.Session.ID, "cmd/"+d.ID+"/kill"), "", m{"signal": 9})
		w.sleep(time.Second)
		all := w.fake.Processes(a.Session.ID)
		p := all[len(all)-1]
		assert.True(t, p.Ended && p.Running, "what it ran goes on")
		assert.Equal(t, 1, w.fake.KillProcesses(a.Session.ID, func(p vercelfake.Process) bool { return p.ID == d.ID }))
		w.sleep(10 * time.Second)
		_, errs, _ := w.run(a.Session.ID, sh("cat late"))
		assert.Contains(t, errs, "No such file")
	})
}

func TestCommandsThatAreNotValidAreRefused(t *testing.T) {
	bubble(t, vercelfake.Options{}, func(w *world) {
		a := w.create("box", nil)
		for _, body := range []string{
			`{}`, `{"command":"true","stdin":"x"}`, `{"command":"true","user":"root"}`, `{"command":"true","logs":true}`,
			`{"command":"true","timeout":99}`, `{"command":"true","timeout":18000001}`, `{"command":["true"]}`,
		} {
			w.refused(400, "bad_request", "POST", on(a.Session.ID, "cmd"), "", body)
		}
		w.refused(400, "executable_not_found", "POST", on(a.Session.ID, "cmd"), "", m{"command": "none", "wait": true})
		assert.Empty(t, w.fake.Processes(a.Session.ID))
		w.refused(404, "sandbox_not_found", "POST", on("sbx_none", "cmd"), "", m{"command": "true"})
	})
}

func TestCommandsShareOneMachine(t *testing.T) {
	bubble(t, vercelfake.Options{}, func(w *world) {
		a := w.create("box", nil)
		c := w.ok("POST", on(a.Session.ID, "cmd"), "", sh("sleep 1000 & sleep 1000; echo never")).Command
		w.sleep(time.Second)
		out, _, _ := w.run(a.Session.ID, sh("pgrep -x sleep | wc -l; kill -0 1 || echo not root; pkill -KILL -f never"))
		assert.Equal(t, "2\nnot root\n", out)
		w.sleep(time.Second)
		c = w.ok("GET", on(a.Session.ID, "cmd/"+c.ID), "", nil).Command
		assert.Equal(t, 137, *c.ExitCode)
		root := sh("kill -0 1")
		root["sudo"] = true
		_, _, c = w.run(a.Session.ID, root)
		assert.Zero(t, *c.ExitCode)
	})
}

func TestTheEndOfTheSessionEndsItsStreams(t *testing.T) {
	ends := map[vercelfake.DeadStream]string{
		vercelfake.StreamTells: "sandbox_stream_closed",
		vercelfake.StreamCut:   "", vercelfake.StreamEnds: "", vercelfake.StreamHangs: "",
	}
	for kind, want := range ends {
		bubble(t, vercelfake.Options{Quirks: vercelfake.Quirks{DeadStreams: kind}}, func(w *world) {
			a := w.create("box", nil)
			body := sh("echo a; sleep 3600")
			body["wait"], body["logs"] = true, true
			start := time.Now()
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
			defer cancel()
			got, err := w.client.Do(w.request(ctx, "POST", on(a.Session.ID, "cmd"), "", body))
			require.NoError(t, err)
			text, err := io.ReadAll(got.Body)
			require.NoError(t, got.Body.Close())
			switch kind {
			case vercelfake.StreamCut:
				require.ErrorIs(t, err, io.ErrUnexpectedEOF)
			case vercelfake.StreamHangs:
				require.ErrorIs(t, err, context.DeadlineExceeded)
				assert.Equal(t, 10*time.Minute, since(start))
				return
			default:
				require.NoError(t, err)
			}
			assert.Equal(t, time.Minute, since(start))
			assert.Contains(t, string(text), want)
			assert.NotContains(t, string(text), `"exitCode":0`)
		})
	}
}

func TestAWaitForACommandEndsWithItsSession(t *testing.T) {
	bubble(t, vercelfake.Options{}, func(w *world) {
		a := w.create("box", nil)
		c := w.ok("POST", on(a.Session.ID, "cmd"), "", sh("sleep 3600")).Command
		w.refused(410, "sandbox_stopped", "GET", on(a.Session.ID, "cmd/"+c.ID), "wait=true", nil)
		synctest.Wait()
		assert.False(t, w.fake.Processes(a.Session.ID)[0].Running)
	})
}

func TestAStreamIsSentAsItComesAndCanBeCut(t *testing.T) {
	bubble(t, vercelfake.Options{}, func(w *world) {
		a := w.create("box", nil)
		body := sh("echo a; sleep 1; echo b")
		body["wait"], body["logs"] = true, true
		start := time.Now()
		got, err := w.client.Do(w.request(context.Background(), "POST", on(a.Session.ID, "cmd"), "", body))
		require.NoError(t, err)
		r := bufio.NewReader(got.Body)
		for range 2 {
			_, err := r.ReadString('\n')
			require.NoError(t, err)
		}
		assert.Zero(t, since(start))
		_, err = io.ReadAll(r)
		require.NoError(t, err)
		require.NoError(t, got.Body.Close())

		w.fake.Fault("runCommand", vercelfake.Fault{Cut: 50})
		got, err = w.client.Do(w.request(context.Background(), "POST", on(a.Session.ID, "cmd"), "", body))
		require.NoError(t, err)
		text, err := io.ReadAll(got.Body)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		assert.Len(t, text, 50)
		require.NoError(t, got.Body.Close())

		w.fake.Fault("runCommand", vercelfake.Fault{Status: 500, After: true})
		w.refused(500, "internal_server_error", "POST", on(a.Session.ID, "cmd"), "", body)
		assert.Len(t, w.fake.Processes(a.Session.ID), 3, "it runs all the same")

		w.fake.Service().Fault(sandbox.OpExec, fake.Fault{Err: &sandbox.APIError{Status: 500}, After: true})
		got, err = w.client.Do(w.request(context.Background(), "POST", on(a.Session.ID, "cmd"), "", body))
		require.NoError(t, err)
		text, err = io.ReadAll(got.Body)
		require.Error(t, err)
		assert.Equal(t, 3, strings.Count(string(text), "\n"), "all but the last line")
		require.NoError(t, got.Body.Close())
	})
}

func TestFilesGoInAndOut(t *testing.T) {
	bubble(t, vercelfake.Options{}, func(w *world) {
		a := w.create("box", nil)
		id := a.Session.ID
		files := map[string]string{"vercel/sandbox/a/b.sh": "#!/bin/sh\necho hi\n", "opt/x": "\x00\xff"}
		assert.Equal(t, 200, w.write(id, 0o750, files).Status)
		out, _, _ := w.run(id, sh("a/b.sh; stat -c '%U %a %n' a a/b.sh /opt /opt/x"))
		own := "vercel-sandbox "
		assert.Equal(t, "hi\n"+own+"755 a\n"+own+"750 a/b.sh\n"+own+"755 /opt\n"+own+"750 /opt/x\n", out)
		r := w.ok("POST", on(id, "fs/read"), "", m{"path": "b.sh", "cwd": "a"})
		assert.Equal(t, "#!/bin/sh\necho hi\n", r.Text)
		assert.Equal(t, "application/octet-stream", r.Header.Get("Content-Type"))
		assert.Equal(t, "\x00\xff", w.ok("POST", on(id, "fs/read"), "", m{"path": "/opt/x"}).Text)

		w.refused(404, "not_found", "POST", on(id, "fs/read"), "", m{"path": "none"})
		w.fake.Change(func(q *vercelfake.Quirks) { q.NoFileCode = true })
		w.refused(404, "sandbox_not_found", "POST", on(id, "fs/read"), "", m{"path": "none"})
		w.refused(400, "bad_request", "POST", on(id, "fs/read"), "", m{"path": "/opt"})
		w.refused(400, "bad_request", "POST", on(id, "fs/write"), "", "x")

		w.ok("POST", on(id, "fs/mkdir"), "", m{"path": "p/q"})
		w.ok("POST", on(id, "fs/mkdir"), "", m{"path": "p/q"})
		w.fake.Change(func(q *vercelfake.Quirks) { q.StrictMkdir = true })
		w.refused(400, "bad_request", "POST", on(id, "fs/mkdir"), "", m{"path": "p/q"})
		w.refused(400, "bad_request", "POST", on(id, "fs/mkdir"), "", m{"path": "r/s"})
		w.ok("POST", on(id, "fs/mkdir"), "", m{"path": "r/s", "recursive": true})
		w.ok("POST", on(id, "fs/mkdir"), "", m{"path": "r/t"})
		w.refused(404, "sandbox_not_found", "POST", on("sbx_none", "fs/read"), "", m{"path": "f"})
		w.ok("POST", on(id, "stop"), "", nil)
		w.refused(410, "sandbox_stopped", "POST", on(id, "fs/read"), "", m{"path": "f"})
	})
}

func TestAPortIsReachedWhileItsSandboxRuns(t *testing.T) {
	bubble(t, vercelfake.Options{}, func(w *world) {
		w.fake.HandlePort(3000, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, "hello") }))
		a := w.create("box", m{"ports": []int{3000, 4000}})
		visit := func(i int) (int, string) {
			got, err := w.client.Get("http://" + a.Routes[i].Subdomain + ".vercel.run/")
			require.NoError(t, err)
			defer got.Body.Close()
			text, err := io.ReadAll(got.Body)
			require.NoError(t, err)
			return got.StatusCode, string(text)
		}
		status, text := visit(0)
		assert.Equal(t, "hello", text)
		assert.Equal(t, 200, status)
		status, _ = visit(1)
		assert.Equal(t, 502, status)
		w.ok("POST", on(a.Session.ID, "stop"), "", nil)
		status, _ = visit(0)
		assert.Equal(t, 410, status)
		w.ok("DELETE", "/v2/sandboxes/box", "", nil)
		status, _ = visit(0)
		assert.Equal(t, 404, status)
	})
}

func TestAFrozenSandboxTakesCommandsAndDoesNotAnswer(t *testing.T) {
	bubble(t, vercelfake.Options{}, func(w *world) {
		a := w.create("box", m{"timeout": 3_600_000})
		tr, _ := w.fake.Lookup("box")
		w.fake.Service().Freeze(tr.ServiceID)
		assert.Equal(t, "running", w.session(a.Session.ID).Session.Status)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		got, err := w.client.Do(w.request(ctx, "POST", on(a.Session.ID, "cmd"), "", m{"command": "true", "wait": true}))
		require.NoError(t, err)
		_, err = io.ReadAll(got.Body)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, got.Body.Close())
		w.fake.Service().Thaw(tr.ServiceID)
		_, _, c := w.run(a.Session.ID, m{"command": "true"})
		assert.Equal(t, 0, *c.ExitCode)
	})
}
