package e2bfake

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// listed is a row of a list.
type listed struct {
	TemplateID   string            `json:"templateID"`
	Alias        string            `json:"alias,omitempty"`
	SandboxID    string            `json:"sandboxID"`
	ClientID     string            `json:"clientID"`
	StartedAt    stamp             `json:"startedAt"`
	EndAt        stamp             `json:"endAt"`
	CPUCount     int               `json:"cpuCount"`
	MemoryMB     int               `json:"memoryMB"`
	DiskSizeMB   int               `json:"diskSizeMB"`
	Metadata     map[string]string `json:"metadata,omitempty"`
	State        string            `json:"state"`
	EnvdVersion  string            `json:"envdVersion"`
	VolumeMounts []volumeMount     `json:"volumeMounts,omitempty"`
}

// detail is the answer to a look at one sandbox.
type detail struct {
	listed
	EnvdAccessToken string    `json:"envdAccessToken,omitempty"`
	Domain          *string   `json:"domain"`
	Internet        *bool     `json:"allowInternetAccess"`
	Network         *network  `json:"network,omitempty"`
	Lifecycle       lifecycle `json:"lifecycle"`
}

type lifecycle struct {
	AutoResume bool   `json:"autoResume"`
	OnTimeout  string `json:"onTimeout"`
}

// stamp is a time as the service writes it; without a zone where Behaviour.ZonelessTimes says so.
type stamp struct {
	time.Time
	zoneless bool
}

func (t stamp) MarshalJSON() ([]byte, error) {
	layout := time.RFC3339Nano
	if t.zoneless {
		layout = "2006-01-02T15:04:05.999999999"
	}
	return strconv.AppendQuote(nil, t.UTC().Format(layout)), nil
}

// state is the public word for what a sandbox is in; "" is none that can be seen. listed says whether lists show it.
func (s *Server) state(r fake.Record) (word string, isListed bool) {
	t := s.transition(r.ID)
	switch {
	case !seen(r), t != nil && t.deleted.Load(), t != nil && t.phase == killing:
		return "", false
	case t != nil && t.phase == snapshotting:
		return "running", false
	case r.State == sandbox.StateDormant, t != nil && t.phase == pausing:
		return "paused", true
	}
	return "running", true
}

func (s *Server) row(r fake.Record, word string) listed {
	m := r.Data.(*machine)
	started, end := s.times(r)
	zoneless := r.Created.IsZero()
	return listed{
		TemplateID: m.template.ID, Alias: m.template.Alias, SandboxID: s.WireID(r.ID), ClientID: clientID,
		StartedAt: stamp{started, zoneless}, EndAt: stamp{end, zoneless},
		CPUCount: m.template.CPU, MemoryMB: m.template.MemoryMB, DiskSizeMB: m.template.DiskMB,
		Metadata: r.Tags, State: word, EnvdVersion: envdVersion,
	}
}

func (s *Server) get(w http.ResponseWriter, r *http.Request, id string) {
	ctx, cancel := s.work(r)
	defer cancel()
	rec, err := s.svc.Get(ctx, id)
	if err != nil {
		s.refuse(w, err)
		return
	}
	word, _ := s.state(rec)
	if word == "" {
		s.refuse(w, missing())
		return
	}
	m := rec.Data.(*machine)
	d := detail{
		listed: s.row(rec, word), EnvdAccessToken: m.token, Internet: m.order.Internet, Network: m.order.Network,
		Lifecycle: lifecycle{AutoResume: m.order.wakes(), OnTimeout: "kill"},
	}
	if m.order.AutoPause {
		d.Lifecycle.OnTimeout = "pause"
	}
	if s.opts.Domain != "" {
		d.Domain = &s.opts.Domain
	}
	s.answer(w, http.StatusOK, d)
}

// query is what a list is asked for.
type query struct {
	tags         []fake.Tag
	states       []string
	ascending    bool
	limit        int
	startedAfter time.Time
	template     string
	after        cursor
}

// cursor is where the page before ended.
type cursor struct {
	at time.Time
	id string
	ok bool
}

func (c cursor) text(ascending bool) string {
	t := c.at.UTC().Format(time.RFC3339Nano) + "__" + c.id
	if ascending {
		t += "__asc"
	}
	return base64.URLEncoding.EncodeToString([]byte(t))
}

func parseCursor(text string, ascending bool) (cursor, bool) {
	b, err := base64.URLEncoding.DecodeString(text)
	if err != nil {
		return cursor{}, false
	}
	parts := strings.Split(string(b), "__")
	if ascending != (len(parts) == 3 && parts[2] == "asc") || len(parts) < 2 || len(parts) > 3 {
		return cursor{}, false
	}
	at, err := time.Parse(time.RFC3339Nano, parts[0])
	return cursor{at, parts[1], true}, err == nil
}

// parseQuery reads what version 1 or 2 of the list is asked for.
func parseQuery(values url.Values, version int) (q query, fault string) {
	q = query{states: []string{"running", "paused"}, limit: 100}
	if version == 1 {
		q.states, q.limit = []string{"running"}, 0
	}
	if values.Has("metadata") {
		tags, ok := parseMetadata(values.Get("metadata"))
		if !ok {
			return q, "invalid metadata query"
		}
		q.tags = tags
	}
	if version == 1 {
		return q, ""
	}
	if values.Has("state") {
		q.states = strings.Split(values.Get("state"), ",")
		for _, w := range q.states {
			if w != "running" && w != "paused" {
				return q, "validation error: parameter \"state\" in query has an error"
			}
		}
	}
	switch values.Get("order") {
	case "", "desc":
	case "asc":
		q.ascending = true
	default:
		return q, "validation error: parameter \"order\" in query has an error"
	}
	if values.Has("limit") {
		n, err := strconv.Atoi(values.Get("limit"))
		if err != nil || n < 1 || n > 100 {
			return q, "validation error: parameter \"limit\" in query has an error: number must be between 1 and 100"
		}
		q.limit = n
	}
	if text := values.Get("startedAfter"); text != "" {
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return q, "validation error: parameter \"startedAfter\" in query has an error"
		}
		q.startedAfter = at.Truncate(time.Microsecond)
	}
	if q.template = values.Get("template"); strings.Contains(q.template, ":") {
		return q, "a template filter takes no tag"
	}
	if text := values.Get("nextToken"); text != "" {
		c, ok := parseCursor(text, q.ascending)
		if !ok {
			return q, "invalid next token"
		}
		q.after = c
	}
	return q, ""
}

// parseMetadata decodes a filter as the service does, after the query's own decoding: all of it once more, then each
// key and each value once more.
func parseMetadata(text string) ([]fake.Tag, bool) {
	text, err := url.QueryUnescape(text)
	if err != nil {
		return nil, false
	}
	var tags []fake.Tag
	for pair := range strings.SplitSeq(text, "&") {
		parts := strings.Split(pair, "=")
		if len(parts) != 2 {
			return nil, false
		}
		k, err1 := url.QueryUnescape(parts[0])
		v, err2 := url.QueryUnescape(parts[1])
		if err1 != nil || err2 != nil {
			return nil, false
		}
		tags = append(tags, fake.Tag{Key: k, Value: v})
	}
	return tags, true
}

func (s *Server) list(w http.ResponseWriter, r *http.Request, version int) {
	ctx, cancel := s.work(r)
	defer cancel()
	q, fault := parseQuery(r.URL.Query(), version)
	if fault != "" {
		s.fail(w, http.StatusBadRequest, "", "%s", fault)
		return
	}
	page, err := s.svc.List(ctx, fake.Query{Tags: q.tags})
	if err != nil {
		s.refuse(w, err)
		return
	}
	loops := page.Next != "" // Behaviour.RepeatCursor; otherwise there is one page
	if loops {
		q.after = cursor{}
	}
	rows, running := s.rows(page.Records, q)
	more := false
	if limit := s.pageLimit(q.limit); limit > 0 && len(rows) > limit {
		rows, more = rows[:limit], true
	}
	if slices.Contains(q.states, "running") && version == 2 {
		w.Header().Set("X-Total-Running", strconv.Itoa(running))
	}
	if (more || loops) && version == 2 {
		c := cursor{at: time.Unix(0, 0), id: "again"}
		if len(rows) > 0 && !loops {
			last := rows[len(rows)-1]
			c = cursor{at: last.StartedAt.Time, id: last.SandboxID}
		}
		w.Header().Set("X-Next-Token", c.text(q.ascending))
	}
	s.answer(w, http.StatusOK, rows)
}

// pageLimit is how many rows a page has at most; 0: all.
func (s *Server) pageLimit(asked int) int {
	if most := s.Quirks().PageSize; most > 0 && asked > 0 {
		return min(most, asked)
	}
	return asked
}

// rows returns what comes after the cursor, in order, and how many of all are running.
func (s *Server) rows(records []fake.Record, q query) ([]listed, int) {
	rows, running := []listed{}, 0
	order := func(a, b listed) int {
		c := b.StartedAt.Compare(a.StartedAt.Time)
		if c == 0 {
			c = strings.Compare(a.SandboxID, b.SandboxID)
		}
		if q.ascending {
			c = -c
		}
		return c
	}
	var after listed
	if q.after.ok {
		after = listed{StartedAt: stamp{Time: q.after.at}, SandboxID: q.after.id}
	}
	for _, rec := range records {
		word, isListed := s.state(rec)
		if !isListed || !slices.Contains(q.states, word) {
			continue
		}
		row := s.row(rec, word)
		if row.StartedAt.Before(q.startedAfter) || q.template != "" && q.template != row.TemplateID && q.template != row.Alias {
			continue
		}
		if word == "running" {
			running++
		}
		if q.after.ok && order(after, row) >= 0 {
			continue
		}
		rows = append(rows, row)
	}
	slices.SortFunc(rows, order)
	return rows, running
}
