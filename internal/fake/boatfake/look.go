package boatfake

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/sandbox"
)

const (
	maxPage     = 200
	defaultPage = 100
	again       = "again" // the cursor of a list that goes round in circles
)

// get looks at one sandbox. One that came to nothing is told of once, in part, and then never again.
func (s *Server) get(c *call) (int, any, error) {
	id := MachineID(c.PathValue("id"))
	rec, err := s.svc.Get(c.Context(), id)
	if p := translate(err); p != nil && p.status == http.StatusNotFound && s.tellCancelled(c.from, id) {
		partial := map[string]any{"id": WireID(id), "state": "cancelled", "error": "No machine was available"}
		return http.StatusOK, map[string]any{"ok": true, "type": "sandbox.info", "sandbox": partial}, nil
	}
	if err != nil {
		return 0, nil, err
	}
	b := s.box(rec)
	if rec.Lost || s.access(c.from, b) == "" {
		return 0, nil, notFound()
	}
	return http.StatusOK, map[string]any{"ok": true, "type": "sandbox.info", "sandbox": s.view(rec, b, c.from)}, nil
}

// tellCancelled reports whether a look is the first at a sandbox that came to nothing.
func (s *Server) tellCancelled(a account, id string) bool {
	if s.svc.Behaviour().WrongScope {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.boxes[id]
	if b == nil || b.cancelAt.IsZero() || b.told || b.order.owner != a {
		return false
	}
	b.told = true
	return b.deletion == nil
}

// wallet finds out which wallet a request is about: a team's id, or "" for the account's own. The query decides before
// the header, and both before the body.
func (s *Server) wallet(c *call, more ...string) (string, error) {
	var ref string
	for _, r := range append([]string{c.URL.Query().Get("org"), c.Header.Get("X-Boat-Org")}, more...) {
		if ref = r; ref != "" {
			break
		}
	}
	switch {
	case ref == "":
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.wallets[c.from.id], nil
	case ref == "personal":
		return "", nil
	case s.isTeam(ref) && c.from.member:
		return ref, nil
	}
	var named []string
	for _, t := range s.opts.Teams {
		if t.Name == ref && c.from.member {
			named = append(named, t.ID)
		}
	}
	switch len(named) {
	case 0:
		return "", refusal(http.StatusForbidden, "not_org_member", "You are not a member of %s", ref)
	case 1:
		return named[0], nil
	}
	return "", refusal(http.StatusConflict, "ambiguous_org", "Several organisations are called %s", ref)
}

// place is where a row stands in a list.
type place struct {
	Created int64 `json:"c"`
	ID      int   `json:"i"`
}

func (p place) compare(o place) int {
	switch {
	case p.Created != o.Created:
		return int(max(-1, min(1, p.Created-o.Created)))
	default:
		return p.ID - o.ID
	}
}

func (p place) cursor() string {
	b, _ := json.Marshal(p) // never fails: numbers
	return base64.RawURLEncoding.EncodeToString(b)
}

// row is one of a list.
type row struct {
	place
	v Sandbox
}

// query is what a list is asked for.
type query struct {
	limit  int
	asc    bool
	states []string
	after  *place
}

// query reads the parameters. The codes of its refusals are not known.
func (s *Server) query(c *call) (query, error) {
	q, v := query{limit: defaultPage}, c.URL.Query()
	if text := v.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxPage {
			return q, invalid("limit must be between 1 and %d", maxPage)
		}
		q.limit = n
	}
	if most := s.Quirks().PageSize; most > 0 {
		q.limit = min(q.limit, most)
	}
	switch v.Get("sort") {
	case "", "desc":
	case "asc":
		q.asc = true
	default:
		return q, invalid("sort must be asc or desc")
	}
	if text := v.Get("state"); text != "" {
		q.states = strings.Split(text, ",")
	}
	if text := v.Get("cursor"); text != "" && text != again {
		b, err := base64.RawURLEncoding.DecodeString(text)
		var p place
		if err != nil || json.Unmarshal(b, &p) != nil {
			return q, invalid("cursor is invalid")
		}
		q.after = &p
	}
	return q, nil
}

// list shows what is there in any state, that of colleagues too where the wallet is a team's.
func (s *Server) list(c *call) (int, any, error) {
	q, err := s.query(c)
	if err != nil {
		return 0, nil, err
	}
	org, err := s.wallet(c)
	if err != nil {
		return 0, nil, err
	}
	page, err := s.svc.List(c.Context(), fake.Query{})
	if err != nil {
		return 0, nil, err
	}
	habits := s.svc.Behaviour()
	var rows []row
	for _, rec := range page.Records {
		b := s.box(rec)
		v := s.view(rec, b, c.from)
		mine := b.order.org == org && (org != "" || b.order.owner == c.from)
		asked := len(q.states) == 0 || slices.Contains(q.states, v.State) || habits.IgnoreFilter
		if !mine || !asked || s.hidden(rec, b) {
			continue
		}
		n, _ := strconv.Atoi(strings.TrimPrefix(rec.ID, "sb-"))
		rows = append(rows, row{place{rec.Created.UnixMilli(), n}, v})
	}
	compare := func(a, b row) int {
		if q.asc {
			return a.compare(b.place)
		}
		return b.compare(a.place)
	}
	slices.SortFunc(rows, compare)
	if q.after != nil {
		rows = slices.DeleteFunc(rows, func(r row) bool { return compare(r, row{place: *q.after}) <= 0 })
	}
	return http.StatusOK, s.page(q, rows, habits), nil
}

// hidden reports whether a delete under way hides a row that lists would show.
func (s *Server) hidden(rec fake.Record, b *box) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return b.deletion != nil && rec.State == sandbox.StateEnding
}

func (s *Server) page(q query, rows []row, habits fake.Behaviour) any {
	list := []Sandbox{}
	body := map[string]any{"ok": true, "type": "sandbox.list"}
	if s.Quirks().NoPageInfo {
		q.limit = len(rows)
	} else {
		var next any // null
		if len(rows) > q.limit {
			next = rows[q.limit-1].cursor()
		}
		if habits.RepeatCursor {
			next = again
		}
		body["pageInfo"] = map[string]any{"nextCursor": next, "hasMore": next != nil, "limit": q.limit}
	}
	for _, r := range rows[:min(len(rows), q.limit)] {
		list = append(list, r.v)
	}
	body["sandboxes"] = list
	return body
}

// usage tells what a sandbox has cost, and whether its meter runs. What it says of one that was deleted is not known: here
// nothing.
func (s *Server) usage(c *call) (int, any, error) {
	rec, b, _, err := s.known(c)
	if err != nil {
		return 0, nil, err
	}
	now := s.svc.Now()
	size := sizes[b.order.size]
	s.mu.Lock()
	defer s.mu.Unlock()
	took := b.metered
	if !b.since.IsZero() {
		took += now.Sub(b.since)
	}
	n := int(took / time.Second)
	return http.StatusOK, map[string]any{
		"ok": true, "type": "sandbox.usage", "sandboxId": WireID(rec.ID), "sandboxType": b.order.size,
		"billingMultiplier": size.multiplier, "since": stamp(rec.Created), "until": stamp(now), "seconds": n,
		"dollars": float64(n) / float64(size.secondsPerDollar), "secondsPerDollar": size.secondsPerDollar,
		"running": !b.since.IsZero(),
	}, nil
}

func (s *Server) me(c *call) (int, any, error) {
	user := map[string]any{
		"id": c.from.id, "login": c.from.login, "email": c.from.login + "@example.test", "zeroDataRetention": s.Quirks().Retention,
	}
	return http.StatusOK, map[string]any{"ok": true, "type": "user.info", "user": user}, nil
}

func (s *Server) limits(c *call) (int, any, error) {
	org, err := s.wallet(c)
	if err != nil {
		return 0, nil, err
	}
	q, n, now := s.Quirks(), s.countActive(c.from, org), s.svc.Now()
	most := q.Plan.MaxActive
	body := map[string]any{
		"ok": true, "type": "limits.info", "activeSandboxes": n, "maxActiveSandboxes": most, "activeStates": active,
		"canStart": !q.Unpaid && (most == 0 || n < most), "billingStatus": "active", "unlimited": q.Plan == Plan{},
		"startLimits": nil, "starts": map[string]any{}, "giftLimit": nil,
	}
	if most == 0 {
		body["maxActiveSandboxes"] = 1500
	}
	if q.Unpaid {
		body["billingStatus"] = "none"
	}
	if q.Plan.PerMinute > 0 {
		body["startLimits"] = map[string]any{"perMinute": q.Plan.PerMinute, "perHour": q.Plan.PerHour, "perDay": q.Plan.PerDay}
	}
	if q.GiftTTL > 0 {
		body["giftLimit"] = map[string]any{"maxActiveSandboxes": nil, "maxTtlSeconds": int(q.GiftTTL / time.Second)}
	}
	s.mu.Lock()
	starts := slices.Clone(s.starts[c.from.id])
	s.mu.Unlock()
	counts := map[string]any{}
	for _, w := range windows(q.Plan) {
		counts["last"+strings.ToUpper(w.name[:1])+w.name[1:]] = recent(starts, now, w.length)
	}
	body["starts"] = counts
	return http.StatusOK, body, nil
}

func (s *Server) orgs(c *call) (int, any, error) {
	orgs := []Team{{"personal", c.from.login}}
	if c.from.member {
		orgs = append(orgs, s.opts.Teams...)
	}
	return http.StatusOK, map[string]any{"ok": true, "type": "org.list", "orgs": orgs}, nil
}

// apiKeys lists the account's one key, and nothing to a key that is restricted.
func (s *Server) apiKeys(c *call) (int, any, error) {
	keys := []map[string]any{}
	if c.from != self() || len(s.Quirks().Forbidden) == 0 && !s.svc.Behaviour().NoDelete {
		keys = append(keys, map[string]any{"id": c.from.key, "name": c.from.login})
	}
	return http.StatusOK, map[string]any{"ok": true, "type": "api-key.list", "apiKeys": keys}, nil
}

// apiKeyUsage tells what a key has made and what is left of it, whether or not lists show it yet.
func (s *Server) apiKeyUsage(c *call) (int, any, error) {
	if c.PathValue("key") != c.from.key {
		return 0, nil, notFound()
	}
	made := []map[string]any{}
	for _, rec := range s.svc.All() {
		b := s.box(rec)
		if b.order.owner != c.from || !there(rec) || s.hidden(rec, b) {
			continue
		}
		v := s.view(rec, b, c.from)
		made = append(made, map[string]any{"kind": "sandbox", "id": v.ID, "name": v.Name, "state": v.State, "createdAt": v.CreatedAt})
	}
	return http.StatusOK, map[string]any{
		"ok": true, "type": "api-key.usage", "id": c.from.key, "name": c.from.login, "createdResources": made,
	}, nil
}
