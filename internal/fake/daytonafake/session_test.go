package daytonafake_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/internal/fake/daytonafake"
)

// sdk is the header by which the daemon tells what a client understands.
var sdk = []string{"X-Daytona-SDK-Version", "0.218.0"}

// open makes a sandbox with a session and returns the session's path.
func (w *world) open(body object) (id, path string) {
	w.Helper()
	id = w.create(body)
	path = "/toolbox/" + id + "/process/session"
	require.Equal(w, 201, w.do("POST", path, object{"sessionId": "s1"}).status)
	return id, path + "/s1"
}

// start runs a command in the background and returns its path.
func (w *world) start(session, command string) string {
	w.Helper()
	r := w.do("POST", session+"/exec", object{"command": command, "runAsync": true}, sdk...)
	require.Equalf(w, 202, r.status, "%s", r.body)
	return session + "/command/" + r.json()["cmdId"].(string)
}

func TestASessionIsOneShell(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		_, s := w.open(object{"env": object{"A": "a"}})
		run := func(command string) object { return w.do("POST", s+"/exec", object{"command": command}, sdk...).ok() }
		got := run("echo $PWD; echo err >&2; printf tail")
		assert.Equal(w, []any{0., "/home/daytona\ntail\n", "err\n"}, []any{got["exitCode"], got["stdout"], got["stderr"]})
		assert.Equal(w, 1., run("cd /tmp && export B=b; false")["exitCode"])
		assert.Equal(w, "a b /tmp\n", run("echo $A $B $PWD")["stdout"])
		assert.Equal(w, "", run("cat")["stdout"], "what is waited for has no standard input")
		assert.Equal(w, 2., run("if true")["exitCode"], "what cannot be parsed does no harm")
		assert.Equal(w, "still here\n", run("echo still here")["stdout"])
		assert.Equal(w, 4., run("(exit 4)")["exitCode"])
		w.do("POST", s+"/exec", object{}).refused(400)
		w.do("POST", strings.TrimSuffix(s, "/s1"), object{"sessionId": "s1"}).refused(409)
		w.do("POST", strings.TrimSuffix(s, "/s1"), object{"sessionId": "entrypoint"}).refused(400)
		w.do("GET", s+"/command/none", nil).refused(404)
		w.do("GET", strings.TrimSuffix(s, "s1")+"none", nil).refused(404)
	})
}

func TestCommandsOfASessionRunOneAfterAnother(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		_, s := w.open(nil)
		first, second := w.start(s, "sleep 5; echo 1; exit_code() { return 7; }; exit_code"), w.start(s, "date +%s")
		time.Sleep(time.Second)
		assert.NotContains(w, w.do("GET", first, nil).ok(), "exitCode", "it still runs")
		assert.NotContains(w, w.do("GET", second, nil).ok(), "exitCode")
		time.Sleep(5 * time.Second)
		assert.Equal(w, 7., w.do("GET", first, nil).ok()["exitCode"])
		assert.Equal(w, 0., w.do("GET", second, nil).ok()["exitCode"])
		assert.Len(w, w.do("GET", s, nil).ok()["commands"], 2)
	})
}

func TestACommandThatExitsTakesItsSessionWithItAndNobodyIsTold(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		_, s := w.open(object{"autoStopInterval": 0})
		cmd := w.start(s, "echo bye; exit 3")
		time.Sleep(time.Hour)
		assert.NotContains(w, w.do("GET", cmd, nil).ok(), "exitCode")
		w.do("POST", s+"/exec", object{"command": "true"}).refused(400)
		log := w.dial(cmd+"/logs?follow=true", sdk...)
		defer log.conn.Close()
		_, data, err := log.frame()
		require.NoError(w, err)
		assert.Equal(w, "\x01\x01\x01bye\n", string(data))
		deleted := make(chan int, 1)
		time.AfterFunc(time.Hour, func() { deleted <- w.do("DELETE", s, nil).status })
		start := time.Now()
		_, _, status := log.all()
		assert.Equal(w, 1000, status)
		assert.Equal(w, time.Hour, time.Since(start))
		assert.Equal(w, 204, <-deleted)
	})
}

func TestALogIsFollowedLineByLineBehindMarkers(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		_, s := w.open(nil)
		cmd := w.start(s, `echo one; echo two >&2; printf 'a\000b\nhal'; sleep 60; echo f; printf end >&2`)
		log := w.dial(cmd+"/logs?follow=true", sdk...)
		defer log.conn.Close()
		start := time.Now()
		var got []byte
		for range 3 {
			_, data, err := log.frame()
			require.NoError(w, err)
			if got = append(got, data...); len(got) >= len("111one\n222two\n111ab\n") {
				break
			}
		}
		assert.Less(w, time.Since(start), time.Second, "half a line is not sent")
		log.send(9, "are you there")
		op, pong, err := log.frame()
		require.NoError(w, err)
		assert.Equal(w, []any{byte(10), "are you there"}, []any{op, string(pong)})
		rest, _, status := log.all()
		want := "\x01\x01\x01one\n\x02\x02\x02two\n\x01\x01\x01ab\n\x01\x01\x01half\n\x02\x02\x02end\n"
		assert.Equal(w, want, string(got)+string(rest))
		assert.Equal(w, 1000, status)

		again := w.dial(cmd+"/logs?follow=true", sdk...)
		defer again.conn.Close()
		all, _, _ := again.all()
		assert.Equal(w, string(got)+string(rest), string(all), "a log is sent from its beginning")

		w.quirk(func(q *daytonafake.Quirks) { q.FrameSize = 1 })
		slow := w.dial(cmd+"/logs?follow=true", sdk...)
		defer slow.conn.Close()
		all, messages, _ := slow.all()
		assert.Equal(w, string(got)+string(rest), string(all))
		assert.Equal(w, len(all), messages, "markers are split over messages")
	})
}

func TestWhatAClientSeesOfALogDependsOnItsVersion(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		_, s := w.open(nil)
		cmd := w.start(s, "echo out; echo err >&2")
		time.Sleep(time.Second)
		for version, want := range map[string]string{
			"0.167.0": `{"output":"out\nerr\n","stderr":"err\n","stdout":"out\n"}`,
			"1.0.0":   `{"output":"out\nerr\n","stderr":"err\n","stdout":"out\n"}`,
			"0.166.9": "\x01\x01\x01out\n\x02\x02\x02err\n",
			"0.27.0":  "\x01\x01\x01out\n\x02\x02\x02err\n",
			"0.26.0":  "out\nerr\n",
			"":        "out\nerr\n",
			"x":       "out\nerr\n",
		} {
			assert.Equal(w, want, string(w.do("GET", cmd+"/logs", nil, "X-Daytona-SDK-Version", version).body), version)
		}
		marked := w.do("GET", cmd+"/logs", nil, "X-Daytona-Split-Output", "true")
		assert.Equal(w, "\x01\x01\x01out\n\x02\x02\x02err\n", string(marked.body))
		log := w.dial(cmd + "/logs?follow=true")
		defer log.conn.Close()
		all, _, _ := log.all()
		assert.Equal(w, "out\nerr\n", string(all))
	})
}

func TestOnlyBackgroundCommandsHaveAnInput(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		_, s := w.open(object{"autoStopInterval": 0})
		cmd := w.start(s, "read a; read b; echo $b $a")
		assert.Equal(w, 204, w.do("POST", cmd+"/input", object{"data": "one\ntw"}).status)
		time.Sleep(time.Hour)
		assert.Equal(w, 204, w.do("POST", cmd+"/input", object{"data": "o\n"}).status)
		time.Sleep(time.Second)
		assert.Equal(w, "two one\n", w.do("GET", cmd+"/logs", nil, sdk...).ok()["stdout"])
		said := w.do("POST", cmd+"/input", object{"data": "x"}).refused(410)
		assert.Equal(w, "COMMAND_ALREADY_COMPLETED", said["code"])
	})
}

func TestTheDeleteOfASessionKillsItsCommands(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		id, s := w.open(nil)
		cmd := w.start(s, "(while :; do date +%s > /tmp/beat; sleep 1; done) & sleep 3600")
		time.Sleep(10 * time.Second)
		log := w.dial(cmd+"/logs?follow=true", sdk...)
		defer log.conn.Close()
		start := time.Now()
		assert.Equal(w, 204, w.do("DELETE", s, nil).status)
		_, _, status := log.all()
		assert.Equal(w, 1000, status)
		assert.Less(w, time.Since(start), time.Second)
		w.do("DELETE", s, nil).refused(404)
		before := w.exec(id, "cat /tmp/beat")["result"]
		time.Sleep(10 * time.Second)
		assert.Equal(w, before, w.exec(id, "cat /tmp/beat")["result"])
	})
}

func TestASessionDoesNotOutliveItsRun(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		id, s := w.open(nil)
		w.stop(id)
		w.do("POST", "/api/sandbox/"+id+"/start", nil).ok()
		w.do("GET", s, nil).refused(404)
		assert.Equal(w, "[]", string(w.do("GET", strings.TrimSuffix(s, "/s1"), nil).body))
		require.Equal(w, 201, w.do("POST", strings.TrimSuffix(s, "/s1"), object{"sessionId": "s1"}).status)
	})
}

func TestDaytona23AFollowedLogStaysOpenWhenItsSandboxIsDeleted(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		for _, linger := range []time.Duration{0, 5 * time.Minute} {
			w.quirk(func(q *daytonafake.Quirks) { q.StreamLinger = linger })
			id, s := w.open(nil)
			log := w.dial(w.start(s, "echo hi; sleep 36000")+"/logs?follow=true", sdk...)
			_, _, err := log.frame()
			require.NoError(w, err)
			w.do("DELETE", "/api/sandbox/"+id, nil).ok()
			start := time.Now()
			data, _, status := log.all()
			assert.Empty(w, data)
			assert.Zero(w, status, "there is no farewell")
			assert.InDelta(w, (linger + 2*time.Second).Seconds(), time.Since(start).Seconds(), 2.1)
			log.conn.Close()
		}
	})
}

func TestFollowedLogsEndWithTheServerAndTheClient(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		w.quirk(func(q *daytonafake.Quirks) { q.StreamLinger = time.Hour })
		_, s := w.open(nil)
		cmd := w.start(s, "sleep 36000")
		left, stays := w.dial(cmd+"/logs?follow=true", sdk...), w.dial(cmd+"/logs?follow=true", sdk...)
		left.conn.Close()
		time.Sleep(time.Second)
		w.s.Close() // returns only when all goroutines have ended
		_, _, err := stays.frame()
		assert.Error(w, err)
		stays.conn.Close()
	})
}
