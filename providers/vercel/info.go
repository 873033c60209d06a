package vercel

import (
	"context"
	"errors"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sandglass-dev/sandglass/internal/httpapi"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// A ref is an ID taken apart: the name of a record, and the session that was its present one when the ID was made. The
// name alone is an ID too, for who types it: its session is then whichever runs.
type ref struct {
	id      string
	name    string
	session string // empty: not said
}

var (
	// names are what the service takes. Some would be another path of its API.
	names    = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)
	reserved = []string{"sessions", "snapshots", "drives"}
)

func isName(s string) bool { return names.MatchString(s) && !slices.Contains(reserved, s) }

func idOf(name, session string) string { return name + "/" + session }

// parse takes an ID apart.
func (p *Provider) parse(op sandbox.Op, id string) (ref, error) {
	name, session, both := strings.Cut(id, "/")
	if !isName(name) || both && !names.MatchString(session) {
		return ref{}, p.refuse(op, id, sandbox.ErrNotFound, errors.New("not a sandbox's id"))
	}
	return ref{id: id, name: name, session: session}, nil
}

// ms is a time or a duration of the service: milliseconds, since 1970 if it is a time.
type ms float64

const maxMs = 1e14 // the year 5138

func (m ms) time() time.Time {
	if m <= 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(m)).UTC()
}

func (m ms) duration() time.Duration { return time.Duration(m) * time.Millisecond }

func (m ms) odd() bool { return m < 0 || m > maxMs }

// record is what the service says of a sandbox, as far as it is used here.
type record struct {
	Name       string            `json:"name"`
	Session    string            `json:"currentSessionId"`
	Status     string            `json:"status"`
	Persistent bool              `json:"persistent"`
	CreatedAt  ms                `json:"createdAt"`
	ExpiresAt  ms                `json:"expiresAt"` // only while it runs
	Tags       map[string]string `json:"tags"`
}

// Validate reports what is missing.
func (r *record) Validate() error {
	switch {
	case r == nil:
		return errors.New("no sandbox")
	case !isName(r.Name) || !names.MatchString(r.Session):
		return errors.New("a sandbox without a name or session that can be one")
	case r.CreatedAt.odd() || r.CreatedAt == 0 || r.ExpiresAt.odd():
		return errors.New("a sandbox whose times are none")
	}
	return nil
}

// session is what the service says of a session.
type session struct {
	ID        string `json:"id"`
	Status    string `json:"status"`
	Timeout   ms     `json:"timeout"` // from its start; grows with every extension
	CreatedAt ms     `json:"createdAt"`
	StartedAt ms     `json:"startedAt"`
	Sandbox   string `json:"sourceSandboxName"` // empty: not told
}

// Validate reports what is missing.
func (s *session) Validate() error {
	switch {
	case s == nil:
		return errors.New("no session")
	case !names.MatchString(s.ID):
		return errors.New("a session without an id that can be one")
	case s.CreatedAt.odd() || s.CreatedAt == 0 || s.StartedAt.odd() || s.Timeout.odd():
		return errors.New("a session whose times are none")
	}
	return nil
}

// terminal reports whether no machine runs any more.
func (s *session) terminal() bool {
	switch s.Status {
	case "stopped", "failed", "aborted":
		return true
	}
	return false
}

// deadline is when the session ends, extensions included. Until it has started it counts from its making; then a little
// later.
func (s *session) deadline() time.Time {
	from := s.StartedAt
	if from == 0 {
		from = s.CreatedAt
	}
	if s.Timeout == 0 || s.terminal() {
		return time.Time{}
	}
	return from.time().Add(s.Timeout.duration())
}

type route struct {
	URL       string `json:"url"`
	Subdomain string `json:"subdomain"`
	Port      int    `json:"port"`
	System    bool   `json:"system"`
}

// shown is the answer to a create and to a look.
type shown struct {
	Sandbox *record  `json:"sandbox"`
	Session *session `json:"session"`
	Routes  []route  `json:"routes"`
}

// Validate reports what is missing.
func (s *shown) Validate() error {
	return errors.Join(s.Sandbox.Validate(), s.Session.Validate())
}

// stateOf translates the words for sessions, and for sandboxes, which are some of the same.
func stateOf(word string) sandbox.State {
	switch word {
	case "pending":
		return sandbox.StateStarting
	case "running":
		return sandbox.StateRunning
	case "stopping", "snapshotting":
		return sandbox.StateEnding
	case "stopped", "aborted":
		return sandbox.StateDormant // the record stays
	case "failed":
		return sandbox.StateFailed
	}
	return sandbox.StateUnknown
}

// markOf reads the mark. Forks inherit tags, and anybody can write them: the mark counts only under the name made from it.
func markOf(r *record) sandbox.Mark {
	mark, err := sandbox.ParseMark(r.Tags[sandbox.MarkKey])
	if err != nil || r.Name != mark.Name() {
		return sandbox.Mark{}
	}
	return mark
}

// A view is what one look has shown of a sandbox.
type view struct {
	record  *record
	session *session // the present one; nil: not told, since only a list has shown the record
	routes  []route
	ans     httpapi.Answer
}

// known is what a later call need not ask for again.
type known struct {
	session string // the present one
	routes  []route
	dated   bool // the service has told its time
}

// info translates a view.
func (p *Provider) info(id string, v view) sandbox.Info {
	r := v.record
	i := sandbox.Info{
		ID: id, State: stateOf(r.Status), Mark: markOf(r), Created: r.CreatedAt.time(), Deadline: r.ExpiresAt.time(),
		AsOf: v.ans.AsOf(), Run: r.Session, Detail: r.Status,
	}
	if s := v.session; s != nil { // its word goes before the record's, which knows fewer
		i.State, i.Deadline, i.Run, i.Detail = stateOf(s.Status), s.deadline(), s.ID, s.Status
	}
	if i.State == sandbox.StateDormant {
		i.Deadline = time.Time{}
	}
	if r.Persistent {
		i.Detail += ", and was made persistent: every stop makes a snapshot"
	}
	for k, t := range r.Tags {
		if !strings.HasPrefix(k, sandbox.MarkKey) {
			if i.Tags == nil {
				i.Tags = map[string]string{}
			}
			i.Tags[k] = t
		}
	}
	i.Native = &known{session: i.Run, routes: v.routes, dated: !v.ans.Date.IsZero()}
	return i
}

// alone translates a session whose record is gone.
func (p *Provider) alone(r ref, s *session, ans httpapi.Answer) sandbox.Info {
	return sandbox.Info{
		ID: r.id, State: stateOf(s.Status), Deadline: s.deadline(), AsOf: ans.AsOf(), Run: s.ID,
		Detail: s.Status + ", and its record is gone", Native: &known{session: s.ID, dated: !ans.Date.IsZero()},
	}
}

// Get looks at the record, with its present session, which need not be the one in id: Info.Run tells. Where there is no
// record, it looks at the session in id: one that still runs is shown as that, and only one that has ended, or that the
// service does not know either, is [sandbox.ErrNotFound].
func (p *Provider) Get(ctx context.Context, id string) (sandbox.Info, error) {
	return p.get(ctx, sandbox.OpGet, id)
}

func (p *Provider) get(ctx context.Context, op sandbox.Op, id string) (sandbox.Info, error) {
	r, err := p.parse(op, id)
	if err != nil {
		return sandbox.Info{}, err
	}
	v, err := p.look(ctx, op, r)
	if err == nil {
		return p.info(id, v), nil
	}
	if !errors.Is(err, sandbox.ErrNotFound) || r.session == "" {
		return sandbox.Info{}, err
	}
	s, ans, serr := p.session(ctx, op, r)
	switch {
	case isGone(serr):
		return sandbox.Info{}, err
	case serr != nil:
		return sandbox.Info{}, serr
	case s.terminal():
		return sandbox.Info{}, err
	}
	return p.alone(r, s, ans), nil
}

// look asks for the record that r means. A 410 is no proof of anything, since it is about what a resume would need: the
// list then shows the record.
func (p *Provider) look(ctx context.Context, op sandbox.Op, r ref) (view, error) {
	var got shown
	ans, err := p.do(ctx, httpapi.Request{
		Op: op, ID: r.id, Method: http.MethodGet, Path: "/v2/sandboxes/" + r.name, Query: p.query("projectId", p.project), Out: &got,
	})
	v := view{record: got.Sandbox, session: got.Session, routes: got.Routes, ans: ans}
	if e := said(err); e != nil && e.Status == http.StatusGone {
		row, found, lerr := p.row(ctx, op, r)
		switch {
		case lerr != nil:
			return view{}, lerr
		case !found:
			return view{}, err
		}
		v, err = row, nil
	}
	if err != nil {
		return view{}, err
	}
	if v.record.Name != r.name {
		return view{}, p.failed(op, r.id, nil, errors.New("the answer is about another sandbox"))
	}
	same, err := p.same(ctx, op, r, v.record)
	if err != nil {
		return view{}, err
	}
	if !same {
		return view{}, p.failed(op, r.id, sandbox.ErrNotFound, errors.New("another sandbox has its name now"))
	}
	return v, nil
}

// same reports whether a record is the one that r was made for, and not a later one of the same name. A mark of that
// name is proof: nobody else can have drawn its nonce.
func (p *Provider) same(ctx context.Context, op sandbox.Op, r ref, rec *record) (bool, error) {
	if r.session == "" || r.session == rec.Session || markOf(rec) != (sandbox.Mark{}) {
		return true, nil
	}
	for s, err := range p.sessions(ctx, op, r) {
		if err != nil {
			return false, err
		}
		if s.ID == r.session {
			return true, nil
		}
	}
	return false, nil
}

// session looks at the session in r, whatever has become of its record.
func (p *Provider) session(ctx context.Context, op sandbox.Op, r ref) (*session, httpapi.Answer, error) {
	var got told
	ans, err := p.do(ctx, httpapi.Request{
		Op: op, ID: r.id, Method: http.MethodGet, Path: "/v2/sandboxes/sessions/" + r.session, Out: &got,
	})
	if err == nil && got.Session.ID != r.session {
		err = p.failed(op, r.id, nil, errors.New("the answer is about another session"))
	}
	return got.Session, ans, err
}

// told is an answer about a session.
type told struct {
	Session *session `json:"session"`
}

// Validate reports what is missing.
func (t *told) Validate() error { return t.Session.Validate() }
