package vercel

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/sandglass-dev/sandglass/internal/httpapi"
	"github.com/sandglass-dev/sandglass/sandbox"
)

const (
	minExtension = time.Second // the service's smallest

	// settle is how long after it was given up an extension may still take effect, as far as anybody can tell: the
	// service publishes no limit of its own. Until then it is reckoned with.
	settle = time.Minute

	// beats is how many there are in a window by default: what one unanswered extension may add is bounded by one.
	beats = 3
)

// Extend adds to the session in cur.ID what is missing of the window, in one request. The service's clock is its Date
// header, which lies up to a second behind the true one: so does the new end, which is never later than asked. Where
// less than a second is missing, which is the least that the service adds, it looks instead.
//
// An extension that was not answered may yet take effect, beside the next one. One is put up with: if it comes, the end
// lies up to a third of the window further ahead, which is a beat. Further ones are reckoned with: what is added is the
// shorter for them, until a look has shown that they have come, or until they no longer can. Where that leaves nothing to
// add, it is [sandbox.ErrConflict], to be tried again.
//
// It never touches another session than the one in cur.ID, and never has the service start one: of a session that is
// over it returns what a look shows.
//
// The plan's longest session is an error that matches [errors.ErrUnsupported]: nothing can extend it any more.
func (p *Provider) Extend(ctx context.Context, cur sandbox.Info, window time.Duration) (sandbox.Info, error) {
	r, err := p.parse(sandbox.OpExtend, cur.ID)
	if err != nil {
		return sandbox.Info{}, err
	}
	if window < minWindow || window > maxWindow {
		err := fmt.Errorf("window %v is not in %v to %v", window, minWindow, maxWindow)
		return sandbox.Info{}, p.refuse(sandbox.OpExtend, cur.ID, sandbox.ErrInvalid, err)
	}
	k, _ := cur.Native.(*known)
	if k == nil || !k.dated || cur.Deadline.IsZero() || r.session == "" || p.doubts.are(r.session) {
		if cur, err = p.get(ctx, sandbox.OpExtend, cur.ID); err != nil {
			return sandbox.Info{}, err
		}
		k, _ = cur.Native.(*known)
		if r.session == "" {
			r.session = k.session
		}
		if cur.Deadline.IsZero() || k.session != r.session { // it has ended, or another one has taken its place
			return cur, nil
		}
		if !k.dated {
			err := errors.New("the service tells no time (Date), so that what is missing of the window is not known")
			return sandbox.Info{}, p.failed(sandbox.OpExtend, cur.ID, nil, err)
		}
	}
	if k.session != r.session {
		return p.get(ctx, sandbox.OpExtend, cur.ID)
	}
	missing := window - cur.Left()
	if missing < minExtension {
		return p.get(ctx, sandbox.OpExtend, cur.ID)
	}
	owed, longest := p.doubts.owed(r.session, cur.Deadline, time.Now())
	most := missing + min(longest, window/beats) - owed
	delta := min(missing, most).Truncate(time.Millisecond)
	if delta < minExtension {
		err := fmt.Errorf("extensions by %v were not answered and may yet take effect: they are waited for", owed)
		return sandbox.Info{}, p.refuse(sandbox.OpExtend, cur.ID, sandbox.ErrConflict, err)
	}
	return p.add(ctx, cur, k, r, delta)
}

// extension is the body of one.
type extension struct {
	DurationMs int64 `json:"duration"`
}

// add sends one extension.
func (p *Provider) add(
	ctx context.Context, cur sandbox.Info, k *known, r ref, delta time.Duration,
) (sandbox.Info, error) {
	var got told
	ans, err := p.do(ctx, httpapi.Request{
		Op: sandbox.OpExtend, ID: r.id, Method: http.MethodPost, Path: "/v2/sandboxes/sessions/" + r.session + "/extend-timeout",
		Body: extension{delta.Milliseconds()}, Out: &got,
	})
	e := said(err)
	switch {
	case err == nil && got.Session.ID == r.session:
		p.doubts.answered(r.session, delta)
		s := got.Session
		return sandbox.Info{
			ID: r.id, State: stateOf(s.Status), Created: cur.Created, Deadline: s.deadline(), AsOf: ans.AsOf(), Run: s.ID,
			Detail: s.Status, Native: &known{session: s.ID, routes: k.routes, dated: !ans.Date.IsZero()},
		}, nil
	case err == nil:
		p.doubts.unanswered(r.session, cur.Deadline, delta, time.Now())
		return sandbox.Info{}, p.failed(sandbox.OpExtend, r.id, nil, errors.New("the answer is about another session"))
	case e != nil && e.Code == codeTimeout:
		e.Err = fmt.Errorf("the session would be longer than the plan allows (45 min on Hobby, 24 h on Pro and Enterprise): %w",
			errors.ErrUnsupported)
	case isOver(err):
		return p.after(ctx, r, err)
	case !certain(err):
		p.doubts.unanswered(r.session, cur.Deadline, delta, time.Now())
	}
	return sandbox.Info{}, err
}

// certain reports whether nothing can come of an extension any more that a look does not show: it was refused, or the
// service itself has answered that it has failed. A gateway's word, and none at all, leave open what may yet happen.
func certain(err error) bool {
	e, ok := errors.AsType[*sandbox.APIError](err)
	own := ok && e.Code != "" && (e.Status == http.StatusInternalServerError || e.Status == http.StatusServiceUnavailable)
	return own || refused(err)
}

// after looks at what has become of a session that could not be extended because it is over. That it runs all the same
// is no success.
func (p *Provider) after(ctx context.Context, r ref, over error) (sandbox.Info, error) {
	info, err := p.get(ctx, sandbox.OpExtend, r.id)
	if err == nil && info.Run == r.session && (info.State == sandbox.StateRunning || info.State == sandbox.StateStarting) {
		return sandbox.Info{}, over
	}
	return info, err
}

// doubts are the extensions of which it is not known whether they have worked or will yet, by session. There is an entry
// only where there is such a one. The zero value is ready for use.
type doubts struct {
	mu   sync.Mutex // held for memory operations only
	open map[string]*doubt
}

type doubt struct {
	seen time.Time // the deadline as last seen, with what was added for certain since
	sent []unresolved
}

type unresolved struct {
	delta time.Duration
	until time.Time // by our clock: then it can no longer come
}

// are reports whether there are any for a session.
func (d *doubts) are(session string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.open[session] != nil
}

// owed returns how much may yet be added to a session's deadline that was last seen to be deadline, in all and by the
// longest extension. A deadline that has moved on by itself shows which extensions have worked after all.
func (d *doubts) owed(session string, deadline, now time.Time) (sum, longest time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	o := d.open[session]
	if o == nil {
		return 0, 0
	}
	moved := deadline.Sub(o.seen)
	o.seen = deadline
	rest := o.sent[:0]
	for _, u := range o.sent {
		if moved > 0 {
			done := min(moved, u.delta)
			u.delta, moved = u.delta-done, moved-done
		}
		if u.delta > 0 && now.Before(u.until) {
			rest = append(rest, u)
			sum, longest = sum+u.delta, max(longest, u.delta)
		}
	}
	if o.sent = rest; len(rest) == 0 {
		delete(d.open, session)
	}
	return sum, longest
}

// answered notes that delta was added for certain.
func (d *doubts) answered(session string, delta time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if o := d.open[session]; o != nil {
		o.seen = o.seen.Add(delta)
	}
}

// unanswered notes that delta may be added to deadline, or was. What other sessions have left behind is dropped.
func (d *doubts) unanswered(session string, deadline time.Time, delta time.Duration, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for s, o := range d.open {
		if s != session && !now.Before(o.sent[len(o.sent)-1].until) {
			delete(d.open, s)
		}
	}
	if d.open == nil {
		d.open = map[string]*doubt{}
	}
	o := d.open[session]
	if o == nil {
		o = &doubt{seen: deadline}
		d.open[session] = o
	}
	o.sent = append(o.sent, unresolved{delta, now.Add(settle)})
}
