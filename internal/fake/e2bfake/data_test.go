package e2bfake_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/internal/fake/e2bfake"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// box runs f with a running sandbox.
func box(t *testing.T, name string, f func(t *testing.T, w *world, id, token string)) {
	t.Helper()
	bubble(t, name, e2bfake.Options{}, func(t *testing.T, w *world) {
		t.Helper()
		id, token := w.create(`{"templateID":"base","timeout":3600,"envVars":{"SET":"by create"}}`)
		f(t, w, id, token)
	})
}

func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

func data(stream, text string) string {
	return `{"event":{"data":{"` + stream + `":"` + b64(text) + `"}}}`
}

func TestACommandIsAStreamOfEvents(t *testing.T) {
	box(t, "output, then the end without the zero exit code", func(t *testing.T, w *world, id, token string) {
		got := w.open(id, token, start, sh(`echo out; echo "$SET $USER $HOME $PWD"; echo err >&2`)).rest()
		assert.Equal(t, []string{
			`{"event":{"start":{"pid":301}}}`, data("stdout", "out\n"), data("stdout", "by create user /home/user /home/user\n"), data("stderr", "err\n"),
			`{"event":{"end":{"exited":true,"status":"exit status 0"}}}`, "end {}",
		}, got)
	})
	for name, tt := range map[string]struct{ script, want string }{
		"another exit code": {"exit 7", `{"event":{"end":{"exitCode":7,"exited":true,"status":"exit status 7","error":"exit status 7"}}}`},
		"a signal":          {"kill -KILL $$; sleep 1", `{"event":{"end":{"exitCode":-1,"status":"signal: killed","error":"signal: killed"}}}`},
	} {
		box(t, name, func(t *testing.T, w *world, id, token string) {
			got := w.open(id, token, start, sh(tt.script)).rest()
			require.Len(t, got, 3)
			assert.Equal(t, tt.want, got[1])
		})
	}
	box(t, "a program that is not there ends with 127", func(t *testing.T, w *world, id, token string) {
		got := w.open(id, token, start, `{"process":{"cmd":"nothing"},"stdin":false}`).rest()
		assert.Contains(t, got[len(got)-2], `"exitCode":127`)
	})
	box(t, "as another user, elsewhere, with variables", func(t *testing.T, w *world, id, token string) {
		got := w.open(id, token, start, `{"process":{"cmd":"sh","args":["-c","id -un; pwd; echo $A $SET"],"envs":{"A":"1","SET":"by start"},"cwd":"/tmp"}}`,
			header("Authorization", "Basic "+b64("root:"))).rest()
		assert.Equal(t, []string{data("stdout", "root\n"), data("stdout", "/tmp\n"), data("stdout", "1 by start\n")}, got[1:4])
	})
	box(t, "silence is told", func(t *testing.T, w *world, id, token string) {
		began := time.Now()
		got := w.open(id, token, start, sh("sleep 30; echo x; sleep 19; echo y; sleep 25"), header("Keepalive-Ping-Interval", "20")).rest()
		keepalive := `{"event":{"keepalive":{}}}`
		assert.Equal(t, []string{keepalive, data("stdout", "x\n"), data("stdout", "y\n"), keepalive}, got[1:5])
		assert.Equal(t, 74*time.Second, time.Since(began))
		w.s.Change(func(q *e2bfake.Quirks) { q.NoKeepalive = true })
		assert.Len(t, w.open(id, token, start, sh("sleep 1000")).rest(), 3)
	})
	box(t, "large output arrives in chunks of 32 KiB, whole", func(t *testing.T, w *world, id, token string) {
		got := w.open(id, token, start, sh("head -c 100000 /dev/zero")).rest()
		var all []byte
		for _, m := range got[1 : len(got)-2] {
			_, rest, _ := strings.Cut(m, `"stdout":"`)
			text, _, _ := strings.Cut(rest, `"`)
			b, err := base64.StdEncoding.DecodeString(text)
			require.NoError(t, err)
			assert.LessOrEqual(t, len(b), 32<<10)
			all = append(all, b...)
		}
		assert.Equal(t, make([]byte, 100000), all)
	})
	for name, tt := range map[string]struct {
		body string
		set  func(*http.Request)
		code string
	}{
		"a folder that is not there": {`{"process":{"cmd":"ls","cwd":"/nowhere"}}`, nil, "invalid_argument"},
		"a user who is not there":    {sh("id"), header("Authorization", "Basic "+b64("nobody-here:")), "unauthenticated"},
		"no command":                 {`{}`, nil, "invalid_argument"},
		"no JSON":                    {`{`, nil, "invalid_argument"},
		"a bad limit":                {sh("id"), header("Connect-Timeout-Ms", "soon"), "invalid_argument"},
		"a terminal":                 {`{"process":{"cmd":"sh"},"pty":{"size":{"cols":80,"rows":24}}}`, nil, "unimplemented"},
	} {
		box(t, "an error is in the last envelope: "+name, func(t *testing.T, w *world, id, token string) {
			var set []func(*http.Request)
			if tt.set != nil {
				set = append(set, tt.set)
			}
			got := w.open(id, token, start, tt.body, set...).rest()
			require.Len(t, got, 1)
			assert.Contains(t, got[0], `end {"error":{"code":"`+tt.code+`"`)
		})
	}
}

func TestE2B10ATimeoutEndsTheLeaderOnly(t *testing.T) {
	const ticking = "while :; do echo x >>/tmp/ticks; echo noise; sleep 1; done"
	ticks := func(w *world, id, token string) int {
		return len(send(w.c, w.envd(id, token, "GET", "/files?path=/tmp/ticks", "", nil)).body)
	}
	end := map[string]func(t *testing.T, w *world, id, token string){
		"by its limit": func(t *testing.T, w *world, id, token string) {
			got := w.open(id, token, start, sh(ticking), header("Connect-Timeout-Ms", "5000")).rest()
			assert.Contains(t, got[len(got)-1], `end {"error":{"code":"deadline_exceeded"`)
		},
		"by a signal": func(t *testing.T, w *world, id, token string) {
			s := w.open(id, token, start, sh(ticking))
			time.Sleep(5 * time.Second)
			kill := `{"process":{"pid":301},"signal":"SIGNAL_SIGKILL"}`
			assert.Equal(t, 200, w.rpc(id, token, "/process.Process/SendSignal", kill).status)
			killed := `{"event":{"end":{"exitCode":-1,"status":"signal: killed","error":"signal: killed"}}}`
			got := s.rest()
			assert.Equal(t, killed, got[len(got)-2])
			for range 20 {
				got = w.open(id, token, "/process.Process/Connect", `{"process":{"pid":301}}`).rest()
				assert.Equal(t, []string{`{"event":{"start":{"pid":301}}}`, killed, "end {}"}, got, "nothing is heard of it any more")
			}
			r := w.rpc(id, token, "/process.Process/SendSignal", kill)
			assert.Equal(t, 404, r.status)
			assert.Equal(t, "not_found", r.json("code"))
			r = w.rpc(id, token, "/process.Process/SendSignal", `{"process":{"pid":301},"signal":"SIGNAL_SIGINT"}`)
			assert.Equal(t, 404, r.status)
		},
	}
	for name, f := range end {
		box(t, name, func(t *testing.T, w *world, id, token string) {
			f(t, w, id, token)
			time.Sleep(500 * time.Millisecond)
			n := ticks(w, id, token)
			time.Sleep(10 * time.Second)
			assert.Equal(t, n+20, ticks(w, id, token), "what it ran goes on")
			assert.JSONEq(t, `{}`, string(w.rpc(id, token, "/process.Process/List", `{}`).body), "though nobody lists it")
			all := w.s.Processes(id)
			require.Len(t, all, 1)
			assert.True(t, all[0].Ended && all[0].Running)

			none := w.s.KillProcesses(id, func(p e2bfake.Process) bool { return p.Env["NO"] != "" })
			assert.Zero(t, none)
			killed := w.s.KillProcesses(id, func(p e2bfake.Process) bool { return p.Env["SET"] == "by create" })
			assert.Equal(t, 1, killed)
			n = ticks(w, id, token)
			time.Sleep(10 * time.Second)
			assert.Equal(t, n, ticks(w, id, token))
		})
		box(t, name+", or of all where that is asked for", func(t *testing.T, w *world, id, token string) {
			w.s.Change(func(q *e2bfake.Quirks) { q.KillsChildren = true })
			f(t, w, id, token)
			synctest.Wait()
			n := ticks(w, id, token)
			time.Sleep(10 * time.Second)
			assert.Equal(t, n, ticks(w, id, token))
		})
		box(t, name+", and the end of the sandbox is the end of all", func(t *testing.T, w *world, id, token string) {
			f(t, w, id, token)
			require.Equal(t, 204, w.call("DELETE", "/sandboxes/"+id, "").status)
			synctest.Wait()
			assert.False(t, w.s.Processes(id)[0].Running)
		})
	}
}

func TestACommandOutlivesItsConnection(t *testing.T) {
	box(t, "", func(t *testing.T, w *world, id, token string) {
		s := w.open(id, token, start, sh("sleep 10; echo unheard; sleep 10; echo heard; exit 3"))
		_, m, err := s.next()
		require.NoError(t, err)
		assert.Contains(t, m, `"pid":301`)
		s.close()
		time.Sleep(15 * time.Second)
		assert.Contains(t, string(w.rpc(id, token, "/process.Process/List", `{}`).body), `"pid":301`)
		got := w.open(id, token, "/process.Process/Connect", `{"process":{"pid":301}}`).rest()
		assert.Equal(t, []string{`{"event":{"start":{"pid":301}}}`, data("stdout", "heard\n")}, got[:2])
		assert.Contains(t, got[2], `"exitCode":3`)
		time.Sleep(29 * time.Second)
		got = w.open(id, token, "/process.Process/Connect", `{"process":{"pid":301}}`).rest()
		assert.Contains(t, got[1], `"exitCode":3`, "its end is remembered for a while")
		time.Sleep(time.Second)
		got = w.open(id, token, "/process.Process/Connect", `{"process":{"pid":301}}`).rest()
		assert.Contains(t, got[0], `"not_found"`)
	})
	box(t, "found by its tag", func(t *testing.T, w *world, id, token string) {
		w.open(id, token, start, `{"process":{"cmd":"sleep","args":["5"]},"tag":"mine"}`).close()
		got := w.open(id, token, "/process.Process/Connect", `{"process":{"tag":"mine"}}`).rest()
		assert.Contains(t, got[1], `"exit status 0"`)
	})
}

func TestStandardInput(t *testing.T) {
	box(t, "is sent in pieces and closed", func(t *testing.T, w *world, id, token string) {
		s := w.open(id, token, start, `{"process":{"cmd":"sh","args":["-c","cat; echo end"]},"stdin":true}`)
		send := func(text string) int {
			return w.rpc(id, token, "/process.Process/SendInput", `{"process":{"pid":301},"input":{"stdin":"`+b64(text)+`"}}`).status
		}
		assert.Equal(t, 200, send("one\n"))
		assert.Equal(t, 200, send("two\n"))
		assert.Equal(t, 200, w.rpc(id, token, "/process.Process/CloseStdin", `{"process":{"pid":301}}`).status)
		got := s.rest()
		assert.Equal(t, "one\ntwo\nend\n", stdout(got))
		assert.Equal(t, 404, send("three"))
	})
	box(t, "waits while nobody reads it", func(t *testing.T, w *world, id, token string) {
		s := w.open(id, token, start, `{"process":{"cmd":"sh","args":["-c","sleep 10; wc -c"]}}`)
		began := time.Now()
		piece := `{"process":{"pid":301},"input":{"stdin":"` + b64(strings.Repeat("x", 64<<10)) + `"}}`
		assert.Equal(t, 200, w.rpc(id, token, "/process.Process/SendInput", piece).status)
		assert.Zero(t, time.Since(began))
		assert.Equal(t, 200, w.rpc(id, token, "/process.Process/SendInput", piece).status)
		assert.Equal(t, 10*time.Second, time.Since(began))
		w.rpc(id, token, "/process.Process/CloseStdin", `{"process":{"pid":301}}`)
		assert.Equal(t, "131072\n", stdout(s.rest()))
	})
	box(t, "is not there unless it was asked for", func(t *testing.T, w *world, id, token string) {
		s := w.open(id, token, start, sh("sleep 1; cat"))
		r := w.rpc(id, token, "/process.Process/SendInput", `{"process":{"pid":301},"input":{"stdin":"eA=="}}`)
		assert.Equal(t, 500, r.status)
		assert.Equal(t, 400, w.rpc(id, token, "/process.Process/SendInput", `{"process":{"pid":301},"input":{"stdin":"%"}}`).status)
		assert.Empty(t, stdout(s.rest()))
	})
}

// stdout puts together what a stream has told.
func stdout(messages []string) string {
	var all strings.Builder
	for _, m := range messages {
		if _, rest, ok := strings.Cut(m, `"stdout":"`); ok {
			text, _, _ := strings.Cut(rest, `"`)
			b, _ := base64.StdEncoding.DecodeString(text)
			all.Write(b)
		}
	}
	return all.String()
}

func TestOutputComesInPiecesOfLimitedSize(t *testing.T) {
	box(t, "", func(t *testing.T, w *world, id, token string) {
		got := w.open(id, token, start, sh("x=$(head -c 100000 /dev/zero | tr '\\0' x); echo out; echo $x >&2; exit 4")).rest()
		assert.Equal(t, "out\n", stdout(got))
		assert.Len(t, got, 8, "start, output, four pieces of 32 KiB at most, end, and the stream's end")
		assert.Contains(t, got[6], `"exitCode":4`)
	})
}

// A sandbox that has died ends its streams by breaking them off, or never.
func TestE2B11TheStreamOfADeadSandboxBreaksOrHangs(t *testing.T) {
	box(t, "breaks", func(t *testing.T, w *world, id, token string) {
		s := w.open(id, token, start, sh("echo x; sleep 1000"))
		time.AfterFunc(10*time.Second, func() { w.s.Service().Kill(w.s.ServiceID(id)) })
		began := time.Now()
		got := s.rest()
		assert.Equal(t, "broken", got[len(got)-1])
		assert.Equal(t, 10*time.Second, time.Since(began))
		r := send(w.c, w.envd(id, token, "GET", "/health", "", nil))
		assert.Equal(t, 502, r.status)
		assert.EqualValues(t, 502, r.json("code"))
		assert.Equal(t, id, r.json("sandboxId"))
	})
	box(t, "hangs", func(t *testing.T, w *world, id, token string) {
		w.s.Change(func(q *e2bfake.Quirks) { q.DeadStreamsHang = true })
		s := w.open(id, token, start, sh("sleep 1000"), header("Keepalive-Ping-Interval", "1"))
		w.s.Service().Kill(w.s.ServiceID(id))
		time.AfterFunc(time.Hour, s.close)
		began := time.Now()
		assert.Equal(t, "broken", s.rest()[1])
		assert.Equal(t, time.Hour, time.Since(began), "until its client gives up")
	})
	box(t, "and so does one whose answer is lost", func(t *testing.T, w *world, id, token string) {
		w.s.Service().Fault(sandbox.OpExec, fake.Fault{Err: io.ErrUnexpectedEOF, After: true}, fake.Fault{Err: &sandbox.APIError{Status: 503}})
		got := w.open(id, token, start, sh("echo x")).rest()
		assert.Equal(t, []string{data("stdout", "x\n"), "broken"}, got[1:])
		r := send(w.c, w.envd(id, token, "POST", start, "application/connect+json", bytes.NewReader(envelope(sh("echo x")))))
		assert.Equal(t, 503, r.status)
	})
}

func TestAPausedSandboxTakesNoCommand(t *testing.T) {
	health := func(w *world, id string) int { return send(w.c, w.envd(id, "", "GET", "/health", "", nil)).status }
	bubble(t, "unless traffic wakes it", e2bfake.Options{}, func(t *testing.T, w *world) {
		for _, body := range []string{
			`{"templateID":"base","timeout":60,"autoPause":true}`,
			`{"templateID":"base","timeout":60,"autoPause":true,"autoResume":{"enabled":true}}`,
		} {
			wakes := strings.Contains(body, "autoResume")
			id, _ := w.create(body)
			assert.Equal(t, 204, health(w, id))
			time.Sleep(time.Minute)
			assert.Equal(t, map[bool]int{false: 502, true: 204}[wakes], health(w, id))
			r := w.call("GET", "/sandboxes/"+id, "")
			assert.Equal(t, map[bool]string{false: "paused", true: "running"}[wakes], r.json("state"))
			if wakes {
				assert.Equal(t, 5*time.Minute, w.left(id), "for longer than it was made for")
			}
		}
	})
	box(t, "and has its files afterwards", func(t *testing.T, w *world, id, token string) {
		s := w.open(id, token, start, sh("echo kept >f; sleep 1000"))
		time.Sleep(time.Second)
		w.call("POST", "/sandboxes/"+id+"/pause", "")
		assert.Equal(t, "broken", s.rest()[1])
		require.Equal(t, 201, w.call("POST", "/v2/sandboxes/"+id+"/connect", "").status)
		assert.Equal(t, "kept\n", stdout(w.open(id, token, start, sh("cat f")).rest()))
	})
}

func TestOnlyTheTokenOpensASecuredSandbox(t *testing.T) {
	box(t, "", func(t *testing.T, w *world, id, token string) {
		for _, wrong := range []string{"", "x"} {
			r := w.rpc(id, wrong, "/process.Process/List", `{}`)
			assert.Equal(t, 401, r.status)
			assert.EqualValues(t, 401, r.json("code"))
			assert.Equal(t, 401, send(w.c, w.envd(id, wrong, "GET", "/files?path=/etc/passwd", "", nil)).status)
			assert.Equal(t, 204, send(w.c, w.envd(id, wrong, "GET", "/health", "", nil)).status)
		}
		assert.Equal(t, 200, w.rpc(id, token, "/process.Process/List", `{}`).status)
		sign := func(text string) string {
			sum := sha256.Sum256([]byte(text + ":" + token))
			return "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
		}
		get := func(query url.Values) int {
			return send(w.c, w.envd(id, "", "GET", "/files?"+query.Encode(), "", nil)).status
		}
		query := url.Values{"path": {"/etc/passwd"}, "signature": {sign("/etc/passwd:read:")}}
		assert.Equal(t, 200, get(query))
		query.Set("path", "/etc/group")
		assert.Equal(t, 401, get(query))
	})
	bubble(t, "one that is not secured is open", e2bfake.Options{}, func(t *testing.T, w *world) {
		id := w.call("POST", "/sandboxes", `{"templateID":"base","timeout":60}`).json("sandboxID").(string)
		assert.Equal(t, 200, w.rpc(id, "", "/process.Process/List", `{}`).status)
	})
}

func TestPorts(t *testing.T) {
	bubble(t, "", e2bfake.Options{}, func(t *testing.T, w *world) {
		get := func(host, token string) reply {
			r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+host+".e2b.test/p", nil)
			require.NoError(t, err)
			r.Header.Set("E2b-Traffic-Access-Token", token)
			return send(w.c, r)
		}
		w.s.HandlePort(8080, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello "+r.URL.Path) }))
		open, _ := w.create(`{"templateID":"base"}`)
		r := w.call("POST", "/v2/sandboxes", `{"templateID":"base","network":{"allowPublicTraffic":false}}`)
		private, token := r.json("sandboxID").(string), r.json("trafficAccessToken").(string)
		assert.Equal(t, "hello /p", string(get("8080-"+open, "").body))
		shut := get("8081-"+open, "")
		assert.Equal(t, 502, shut.status)
		assert.EqualValues(t, 8081, shut.json("port"))
		assert.Equal(t, 403, get("8080-"+private, "").status)
		assert.Equal(t, 200, get("8080-"+private, token).status)
		assert.Equal(t, 502, get("8080-inothing", "").status)
		assert.Equal(t, 400, w.call("POST", "/sandboxes", `{"templateID":"base","network":{"allowPublicTraffic":false}}`).status)
	})
}

func TestFiles(t *testing.T) {
	form := func(paths ...string) (body *bytes.Buffer, kind string) {
		body = &bytes.Buffer{}
		m := multipart.NewWriter(body)
		for _, p := range paths {
			part, _ := m.CreatePart(textproto.MIMEHeader{"Content-Disposition": {`form-data; name="file"; filename="` + p + `"`}})
			io.WriteString(part, "content of "+p)
		}
		m.Close()
		return body, m.FormDataContentType()
	}
	read := func(w *world, id, token, query string) reply {
		return send(w.c, w.envd(id, token, "GET", "/files?"+query, "", nil))
	}
	box(t, "go up in a form, to a path", func(t *testing.T, w *world, id, token string) {
		body, kind := form("a.txt")
		r := send(w.c, w.envd(id, token, "POST", "/files?path=%2Fnew%2Fb%2Fc%20d.txt", kind, body))
		require.Equal(t, 200, r.status, "%s", r.body)
		assert.JSONEq(t, `[{"name":"c d.txt","path":"/new/b/c d.txt","type":"file"}]`, string(r.body))
		r = read(w, id, token, "path=/new/b/c%20d.txt")
		assert.Equal(t, "content of a.txt", string(r.body))
		assert.Equal(t, "16", r.header.Get("Content-Length"))
		assert.Equal(t, "user\n", stdout(w.open(id, token, start, sh("stat -c %U /new")).rest()), "the user's, with its folders")
	})
	box(t, "go up together, with their paths as names", func(t *testing.T, w *world, id, token string) {
		body, kind := form("/tmp/x/a", "rel/b")
		r := send(w.c, w.envd(id, token, "POST", "/files", kind, body))
		require.Equal(t, 200, r.status, "%s", r.body)
		assert.JSONEq(t, `[{"name":"a","path":"/tmp/x/a","type":"file"},{"name":"b","path":"/home/user/rel/b","type":"file"}]`, string(r.body))
		assert.Equal(t, "content of rel/b", string(read(w, id, token, "path=rel/b").body))
		assert.Equal(t, "content of rel/b", string(read(w, id, token, "path=~/rel/b").body))
	})
	box(t, "go up as they are", func(t *testing.T, w *world, id, token string) {
		all := bytes.Repeat([]byte{0, 255, 10}, 50_000)
		r := send(w.c, w.envd(id, token, "POST", "/files?path=/tmp/raw&username=root", "application/octet-stream", bytes.NewReader(all)))
		require.Equal(t, 200, r.status, "%s", r.body)
		assert.True(t, bytes.Equal(all, read(w, id, token, "path=/tmp/raw").body))
		empty := send(w.c, w.envd(id, token, "POST", "/files?path=/tmp/empty", "application/octet-stream", nil))
		require.Equal(t, 200, empty.status)
		assert.Equal(t, "0", read(w, id, token, "path=/tmp/empty").header.Get("Content-Length"))
	})
	box(t, "fail with a code in the body", func(t *testing.T, w *world, id, token string) {
		for query, status := range map[string]int{
			"path=/nothing": 404, "path=/tmp": 400, "path=/etc/passwd&username=nobody-here": 401,
		} {
			r := read(w, id, token, query)
			assert.Equal(t, status, r.status, query)
			assert.EqualValues(t, status, r.json("code"), query)
		}
		body, kind := form("x")
		assert.Equal(t, 400, send(w.c, w.envd(id, token, "POST", "/files?path=/tmp", kind, body)).status)
		assert.Equal(t, 400, send(w.c, w.envd(id, token, "POST", "/files?path=/tmp/x", "text/plain", body)).status)
		assert.Equal(t, 400, send(w.c, w.envd(id, token, "POST", "/files", "application/octet-stream", body)).status)
	})
	bubble(t, "do not fit on a full disk", e2bfake.Options{Templates: []e2bfake.Template{{ID: "t", DiskMB: 1}}}, func(t *testing.T, w *world) {
		id, token := w.create(`{"templateID":"t"}`)
		r := send(w.c, w.envd(id, token, "POST", "/files?path=/tmp/x", "application/octet-stream", bytes.NewReader(make([]byte, 2<<20))))
		assert.Equal(t, 507, r.status)
		assert.EqualValues(t, 507, r.json("code"))
	})
	box(t, "can be lost on the way", func(t *testing.T, w *world, id, token string) {
		w.s.Service().Fault(sandbox.OpDownload, fake.Fault{Err: io.ErrUnexpectedEOF, After: true})
		require.Error(t, read(w, id, token, "path=/etc/passwd").err, "half of it has come")
		w.s.Service().Fault(sandbox.OpUpload, fake.Fault{Err: io.ErrUnexpectedEOF, After: true})
		require.Error(t, send(w.c, w.envd(id, token, "POST", "/files?path=/tmp/x", "application/octet-stream", strings.NewReader("x"))).err)
		assert.Equal(t, "x", string(read(w, id, token, "path=/tmp/x").body))
	})
}

func TestTheFileSystemService(t *testing.T) {
	box(t, "", func(t *testing.T, w *world, id, token string) {
		call := func(method, body string) reply { return w.rpc(id, token, "/filesystem.Filesystem/"+method, body) }
		r := call("MakeDir", `{"path":"/tmp/a/b"}`)
		require.Equal(t, 200, r.status, "%s", r.body)
		assert.Equal(t, "FILE_TYPE_DIRECTORY", r.json("entry", "type"))
		r = call("MakeDir", `{"path":"/tmp/a/b"}`)
		assert.Equal(t, 409, r.status)
		assert.Equal(t, "already_exists", r.json("code"))
		w.open(id, token, start, sh("printf 1234567 >/tmp/a/f; ln -s f /tmp/a/l; chmod 640 /tmp/a/f")).rest()
		r = call("Stat", `{"path":"/tmp/a/f"}`)
		require.Equal(t, 200, r.status, "%s", r.body)
		want := map[string]any{"name": "f", "type": "FILE_TYPE_FILE", "path": "/tmp/a/f", "size": "7", "mode": 416.0, "permissions": "-rw-r-----", "owner": "user", "group": "user"}
		for k, v := range want {
			assert.Equal(t, v, r.json("entry", k), k)
		}
		at, err := time.Parse(time.RFC3339, r.json("entry", "modifiedTime").(string))
		require.NoError(t, err)
		assert.WithinDuration(t, time.Now(), at, time.Second)
		assert.Equal(t, "f", call("Stat", `{"path":"/tmp/a/l"}`).json("entry", "symlinkTarget"))

		names := func(body string) (all []string) {
			entries, _ := call("ListDir", body).json("entries").([]any)
			for _, e := range entries {
				all = append(all, e.(map[string]any)["path"].(string))
			}
			return all
		}
		assert.ElementsMatch(t, []string{"/tmp/a/b", "/tmp/a/f", "/tmp/a/l"}, names(`{"path":"/tmp/a","depth":1}`))
		assert.ElementsMatch(t, []string{"/tmp/a", "/tmp/a/b", "/tmp/a/f", "/tmp/a/l"}, names(`{"path":"/tmp","depth":2}`))
		assert.Empty(t, names(`{"path":"/tmp/a/b"}`))
		assert.Equal(t, "invalid_argument", call("ListDir", `{"path":"/tmp/a/f"}`).json("code"))
		r = call("Move", `{"source":"/tmp/a/f","destination":"/tmp/n/g"}`)
		assert.Equal(t, "/tmp/n/g", r.json("entry", "path"))
		assert.Equal(t, "not_found", call("Move", `{"source":"/tmp/a/f","destination":"/tmp/g"}`).json("code"))
		assert.Equal(t, 200, call("Remove", `{"path":"/tmp/a"}`).status)
		assert.Equal(t, 200, call("Remove", `{"path":"/tmp/a"}`).status)
		r = call("Stat", `{"path":"/tmp/a"}`)
		assert.Equal(t, 404, r.status)
		assert.Equal(t, "not_found", r.json("code"))
		assert.Equal(t, "not_found", call("ListDir", `{"path":"/tmp/a"}`).json("code"))
		assert.Equal(t, 501, call("WatchDir", `{}`).status)
	})
}

func TestManyClientsAtOnce(t *testing.T) {
	bubble(t, "", e2bfake.Options{Quirks: e2bfake.Quirks{PauseTime: time.Second, KillTime: time.Second}}, func(t *testing.T, w *world) {
		done := make(chan bool)
		for range 30 {
			go func() {
				defer func() { done <- true }()
				id, token := w.create(`{"templateID":"base","timeout":600}`)
				w.call("POST", "/sandboxes/"+id+"/timeout", `{"timeout":900}`)
				assert.Equal(t, "hi\n", stdout(w.open(id, token, start, sh("sleep 1; echo hi")).rest()))
				go w.call("POST", "/sandboxes/"+id+"/pause", "")
				time.Sleep(time.Millisecond)
				assert.Equal(t, 204, w.call("DELETE", "/sandboxes/"+id, "").status)
			}()
		}
		for range 30 {
			<-done
		}
		assert.Empty(t, w.s.Sandboxes())
		time.Sleep(10 * time.Second)
	})
}
