package vercel_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// FuzzAnswers has the service answer every request of a kind with the same text. Whatever that is, no call panics or
// hangs, nothing is taken for gone that the service has not said is, and what is returned can be used again.
func FuzzAnswers(f *testing.F) {
	const row = `{"name":"sandglass-aaaaaaaaaaaaaaaa","persistent":false,"createdAt":1700000000000,"updatedAt":1,"currentSessionId":"sbx_1",` +
		`"status":"running","expiresAt":1700000060000,"tags":{"sandglass":"1.5.fleet.o.aaaaaaaaaaaaaaaa.s44we8.255s0.00000000"}}`
	const ses = `{"id":"sbx_1","status":"running","timeout":60000,"createdAt":1700000000000,"startedAt":1700000000500,"requestedAt":1,"updatedAt":1}`
	f.Add(200, `{"sandbox":`+row+`,"session":`+ses+`,"routes":[{"url":"https://x.vercel.run","subdomain":"x","port":3000}],"resumed":false}`)
	f.Add(200, `{"sandboxes":[`+row+`],"pagination":{"count":1,"next":null}}`)
	f.Add(200, `{"sandboxes":[`+row+`],"pagination":{"count":1,"next":"again"}}`)
	f.Add(200, `{"sandboxes":[],"pagination":{"count":0}}`)
	f.Add(200, `{"sessions":[`+ses+`],"snapshots":[{"id":"snap_1","sourceSessionId":"sbx_1","status":"created","createdAt":1}],"pagination":{"next":null}}`)
	f.Add(200, `{"session":`+ses+`}`)
	f.Add(200, `{"sandbox":null,"session":{"id":"","createdAt":-1,"timeout":1e300}}`)
	f.Add(404, `{"error":{"code":"sandbox_not_found","message":"no"}}`)
	f.Add(404, `<html>`)
	f.Add(410, `{"error":{"code":"sandbox_stopped","message":"over"}}`)
	f.Add(422, `{"error":{"code":"sandbox_stopping"}}`)
	f.Add(400, `{"error":{"code":"sandbox_timeout_invalid","message":"cap"}}`)
	f.Add(403, `{"error":{"code":7,"message":"x","invalidToken":true}}`)
	f.Fuzz(func(t *testing.T, status int, body string) {
		if status < 200 || status > 599 {
			return
		}
		p := answers(t, fmt.Sprintf("%d %s", status, body))
		ctx := context.Background()
		const id = "sandglass-aaaaaaaaaaaaaaaa/sbx_1"
		usable := func(i sandbox.Info) {
			name, session, ok := strings.Cut(i.ID, "/")
			if !ok || name == "" || session == "" || strings.ContainsAny(i.ID, "?#% .") {
				t.Errorf("an ID that cannot be used: %q", i.ID)
			}
			if i.AsOf.IsZero() || i.State.String() == "" {
				t.Errorf("%+v", i)
			}
		}
		i, err := p.Get(ctx, id)
		if err == nil {
			usable(i)
		}
		said := status == 404 || status == 410 || strings.Contains(body, "stopped") || strings.Contains(body, "failed") || strings.Contains(body, "aborted")
		if errors.Is(err, sandbox.ErrNotFound) && !said {
			t.Errorf("taken for gone: %v", err)
		}
		n := 0
		for i, err := range p.List(ctx, sandbox.Filter{Fleet: "fleet"}) {
			if err == nil {
				usable(i)
			}
			if n++; n > 1000 {
				t.Fatal("an endless list")
			}
		}
		for range p.List(ctx, sandbox.Filter{Nonce: "aaaaaaaaaaaaaaaa"}) {
		}
		for _, err := range p.Snapshots(ctx, id) {
			if err != nil {
				break
			}
		}
		cur := sandbox.Info{ID: id, Deadline: time.Now().Add(time.Minute), AsOf: time.Now()}
		_, _ = p.Extend(ctx, cur, time.Hour)
		req := fixed()
		if i, err := p.Create(ctx, req); err == nil {
			usable(i)
		}
		_, _ = p.Check(ctx)
		_, _ = p.Open(sandbox.Info{ID: id}).Endpoint(ctx, 3000)
		_ = p.DeleteSnapshot(ctx, sandbox.Snapshot{ID: "snap_1"})
	})
}
