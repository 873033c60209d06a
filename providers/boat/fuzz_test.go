package boat_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/providers/boat"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// recorded is a stream of a command's output, as the service sends it.
func recorded() []byte {
	var b bytes.Buffer
	for _, f := range []map[string]any{
		{"type": "started"},
		{"type": "stdout", "data": "O6\naGVs"},
		{"type": "stdout", "data": "bG8K\n-\nE4\nb2g"},
		{"type": "stderr", "data": "sh: a word of its own\n"},
		{"type": "stdout", "data": "hCg==\nO3\nYWJj\nX"},
		{"type": "stdout", "data": "3\n"},
		{"type": "exit", "exitCode": 0, "success": true, "timedOut": false},
	} {
		line, _ := json.Marshal(f)
		b.Write(line)
		b.WriteByte('\n')
	}
	return b.Bytes()
}

func TestARecordedStreamIsReadAsItIs(t *testing.T) {
	got, errs := boat.Tell(bytes.NewReader(recorded()))
	require.NoError(t, errs[0])
	assert.Equal(t, boat.Telling{Code: 3, Exited: true, Stdout: "hello\nabc", Stderr: "oh!\n", Taken: [2]int64{9, 4}}, got)
}

func TestAStreamSurvivesEveryCutAndEveryBitFlip(t *testing.T) {
	whole := recorded()
	want, _ := boat.Tell(bytes.NewReader(whole))
	for n := range whole {
		got, errs := boat.Tell(bytes.NewReader(whole[:n]))
		if !bytes.Contains(whole[:n], []byte(`"exit"`)) || n < len(whole)-1 {
			assert.Error(t, errs[0], "cut at %d", n)
		}
		assert.True(t, strings.HasPrefix(want.Stdout, got.Stdout) && strings.HasPrefix(want.Stderr, got.Stderr), "cut at %d: %q %q", n, got.Stdout, got.Stderr)
		if got.Exited {
			assert.Equal(t, want.Code, got.Code)
		}
	}
	for i := range whole {
		for bit := range 8 {
			bad := bytes.Clone(whole)
			bad[i] ^= 1 << bit
			got, _ := boat.Tell(bytes.NewReader(bad), bytes.NewReader(bad))
			assert.LessOrEqual(t, len(got.Stdout), 1<<10)
		}
	}
}

func FuzzStream(f *testing.F) {
	f.Add(recorded(), recorded())
	f.Add([]byte("{\"type\":\"stdout\",\"data\":\"O99999999999\\n\"}\n"), []byte("\n\n{}\nnull\n[]\n"))
	f.Add([]byte(`{"type":"error","error":"x","message":"y"}`), []byte{})
	f.Fuzz(func(t *testing.T, one, two []byte) {
		got, errs := boat.Tell(bytes.NewReader(one), bytes.NewReader(two))
		if int64(len(got.Stdout)) != got.Taken[0] || int64(len(got.Stderr)) != got.Taken[1] {
			t.Errorf("%+v, %v", got, errs)
		}
	})
}

func FuzzNotes(f *testing.F) {
	f.Add(boat.Notes(map[string]string{"A": "1"}, []int{1, 2}, true))
	f.Add(": sandglass ports none\n")
	f.Fuzz(func(t *testing.T, s string) {
		ports, _ := boat.ReadNotes(s)
		for _, p := range ports {
			if p < 1 || p > 65535 {
				t.Errorf("port %d", p)
			}
		}
	})
}

// FuzzAnswers has the service answer every request with the same text. Whatever that is, no call panics or hangs, nothing
// is taken for gone that the service has not said is, and what is returned can be used again.
func FuzzAnswers(f *testing.F) {
	const row = `{"id":"bx_22222222","name":"1.5.fleet.o.aaaaaaaaaaaaaaaa.s44we8.255s0.00000000","state":"ready","createdAt":"2026-10-01T00:00:00.000Z",` +
		`"archiveAfter":"2026-10-01T01:00:00.000Z","access":"owner","desktopAvailable":false,"snapshotAvailable":false}`
	f.Add(202, `{"ok":true,"type":"sandbox.created","status":"provisioning","ttlSeconds":60,"sandbox":`+row+`}`)
	f.Add(200, `{"ok":true,"type":"sandbox.info","sandbox":`+row+`}`)
	f.Add(200, `{"ok":true,"type":"sandbox.info","sandbox":{"id":"bx_22222222","state":"cancelled","error":null}}`)
	f.Add(200, `{"ok":true,"type":"sandbox.list","sandboxes":[`+row+`],"pageInfo":{"nextCursor":"again","hasMore":true,"limit":200}}`)
	f.Add(200, `{"ok":true,"type":"sandbox.list","sandboxes":[],"pageInfo":{"nextCursor":null,"hasMore":false,"limit":200}}`)
	f.Add(200, `{"ok":true,"snapshots":[{"name":"x","sourceSandboxId":"bx_22222222","createdAt":1}]}`)
	f.Add(202, `{"ok":true,"operation":{"id":"bdop_0","targetId":"bx_22222222","status":"blocked"}}`)
	f.Add(404, `{"ok":false,"type":"sandbox.error","status":404,"code":"not_found","message":"not_found","error":{"code":"not_found","message":"not_found","status":404,"details":{"error":"not_found"}},"requestId":"req_1"}`)
	f.Add(409, `{"error":"idempotency_in_progress","message":"wait"}`)
	f.Add(429, `{"code":"rate_limited","message":"x","error":{"details":{"window":"day"}}}`)
	f.Add(403, `{"error":{"code":7}}`)
	f.Add(200, `<html>`)
	f.Fuzz(func(t *testing.T, status int, body string) {
		if status < 200 || status > 599 {
			return
		}
		p, _ := stub(t, func(*http.Request, string) *http.Response { return answer(status, body) })
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		const id = "bx_22222222"
		usable := func(i sandbox.Info) {
			if i.ID == "" || strings.ContainsAny(i.ID, "/?#% .") || i.AsOf.IsZero() {
				t.Errorf("an Info that cannot be used: %+v", i)
			}
		}
		i, err := p.Get(ctx, id)
		if err == nil {
			usable(i)
		}
		if errors.Is(err, sandbox.ErrNotFound) && status != 404 {
			t.Errorf("taken for gone: %v", err)
		}
		n := 0
		for i, err := range p.List(ctx, sandbox.Filter{}) {
			if err == nil {
				usable(i)
			}
			if n++; n > 1000 {
				t.Fatal("an endless list")
			}
		}
		for _, err := range p.Snapshots(ctx, id) {
			if err != nil {
				break
			}
		}
		i, err = p.Extend(ctx, sandbox.Info{ID: id}, time.Hour)
		if err == nil && i.State == sandbox.StateRunning && i.Deadline.IsZero() {
			t.Error("a beat without an end")
		}
		if i, err := p.Create(ctx, fixed()); err == nil {
			usable(i)
		} else if e, ok := errors.AsType[*sandbox.APIError](err); ok && e.Refused && status < 300 && !strings.Contains(err.Error(), "page") {
			t.Errorf("a refusal by %d: %v", status, err)
		}
		if err := p.Delete(ctx, id); err == nil && !strings.Contains(body, id) {
			t.Error("a delete of something else")
		}
		_ = p.Shorten(ctx, id, time.Second)
		_, _ = p.Check(ctx)
		_, _ = p.Open(sandbox.Info{ID: id}).Endpoint(ctx, 3000)
		_ = fmt.Sprint(err)
	})
}
