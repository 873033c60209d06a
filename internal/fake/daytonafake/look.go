package daytonafake

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
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

func (s *Server) get(c *call) (int, any, error) {
	id := c.machine()
	if rec, _, err := s.known(c.PathValue("id")); err == nil {
		id = rec.ID
	}
	rec, err := s.svc.Get(c.Context(), id)
	if err != nil {
		return 0, nil, err
	}
	if b := boxOf(rec); b.isHidden() || rec.Lost {
		return 0, nil, unknown(c.PathValue("id"))
	}
	return http.StatusOK, s.dto(rec, boxOf(rec), c.Request), nil
}

func (s *Server) list(c *call) (int, any, error) {
	q, err := s.query(c, "regionIds")
	if err != nil {
		return 0, nil, err
	}
	rows, err := s.rows(c, q)
	if err != nil {
		return 0, nil, err
	}
	q.sort(rows)
	loops := s.svc.Behaviour().RepeatCursor
	if q.after != nil && !loops {
		rows = slices.DeleteFunc(rows, func(v Sandbox) bool { return q.compare(q.place(v), *q.after) <= 0 })
	}
	var next any // null
	if len(rows) > q.limit {
		rows = rows[:q.limit]
		next = q.place(rows[len(rows)-1]).cursor()
	}
	if loops {
		next = again
	}
	return http.StatusOK, map[string]any{"items": listed(rows), "nextCursor": next}, nil
}

// listPaginated is the deprecated list. It reads the database, and so neither lags nor flaps.
func (s *Server) listPaginated(c *call) (int, any, error) {
	q, err := s.query(c, "regions")
	if err != nil {
		return 0, nil, err
	}
	page, err := strconv.Atoi(cmp.Or(c.URL.Query().Get("page"), "1"))
	if err != nil || page < 1 {
		return 0, nil, invalid("page must not be less than 1")
	}
	if err := s.svc.Ping(c.Context(), sandbox.OpList); err != nil {
		return 0, nil, err
	}
	var rows []Sandbox
	for _, rec := range s.svc.All() {
		if v, ok := s.row(c, q, rec); ok && !rec.Lost && hasAll(rec.Tags, q.labels) {
			rows = append(rows, v)
		}
	}
	q.sort(rows)
	total := len(rows)
	from := min((page-1)*q.limit, total)
	rows = rows[from:min(from+q.limit, total)]
	return http.StatusOK, map[string]any{
		"items": rows, "total": total, "page": page, "totalPages": (total + q.limit - 1) / q.limit,
	}, nil
}

func hasAll(tags, want map[string]string) bool {
	for k, v := range want {
		if got, ok := tags[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// query is what a list is asked for.
type query struct {
	url.Values
	labels    map[string]string
	limit     int
	sortBy    string
	desc      bool
	after     *place
	regionKey string
}

var (
	sortFields = []string{"name", "cpu", "memoryGib", "diskGib", "lastActivityAt", "createdAt"}
	states     = []string{
		"creating", "restoring", "destroyed", "destroying", "started", "stopped", "starting", "stopping", "error",
		"build_failed", "pending_build", "building_snapshot", "unknown", "pulling_snapshot", "archived", "archiving",
		"resizing", "snapshotting", "forking", "pausing", "paused", "resuming",
	}
)

func (s *Server) query(c *call, regionKey string) (query, error) {
	q := query{
		Values: c.URL.Query(), limit: defaultPage, sortBy: "lastActivityAt", desc: true, regionKey: regionKey,
	}
	if text := q.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxPage {
			return q, invalid("limit must not be less than 1 or greater than %d", maxPage)
		}
		q.limit = n
	}
	q.limit = min(q.limit, s.quirk().PageSize)
	if text := q.Get("labels"); text != "" {
		if err := json.Unmarshal([]byte(text), &q.labels); err != nil {
			return q, invalid("labels must be a JSON object of strings")
		}
	}
	if field := q.Get("sort"); field != "" {
		if !slices.Contains(sortFields, field) {
			return q, invalid("sort must be one of %s", strings.Join(sortFields, ", "))
		}
		q.sortBy = field
	}
	switch q.Get("order") {
	case "", "desc":
	case "asc":
		q.desc = false
	default:
		return q, invalid("order must be asc or desc")
	}
	for _, state := range q.Values["states"] {
		if state == "destroyed" || !slices.Contains(states, state) {
			return q, invalid("states: %q cannot be asked for", state)
		}
	}
	for _, key := range []string{"createdAt", "lastEvent", "autoDestroyAt"} {
		for _, side := range []string{"After", "Before"} {
			if text := q.Get(key + side); text != "" {
				if _, err := time.Parse(time.RFC3339, text); err != nil {
					return q, invalid("%s must be a valid ISO 8601 date string", key+side)
				}
			}
		}
	}
	if text := q.Get("cursor"); text != "" && text != again {
		p, ok := parseCursor(text)
		if !ok {
			return q, invalid("Invalid cursor")
		}
		q.after = &p
	}
	return q, nil
}

// rows returns what a list may show. It is one call of the state machine for one page, as long as the machine's own
// pages hold everything; it also stands for the lag of the index.
func (s *Server) rows(c *call, q query) ([]Sandbox, error) {
	if c.from == foreigner {
		return nil, nil
	}
	var tags []fake.Tag
	for k, v := range q.labels {
		tags = append(tags, fake.Tag{Key: k, Value: v})
	}
	var rows []Sandbox
	for cursor := ""; ; {
		page, err := s.svc.List(c.Context(), fake.Query{Tags: tags, Cursor: cursor})
		if err != nil {
			return nil, err
		}
		for _, rec := range page.Records {
			if v, ok := s.row(c, q, rec); ok {
				rows = append(rows, v)
			}
		}
		if page.Next == "" || page.Next == cursor || s.svc.Behaviour().RepeatCursor {
			return rows, nil
		}
		cursor = page.Next
	}
}

// row returns a record as lists show it, if the query is about it.
func (s *Server) row(c *call, q query, rec fake.Record) (Sandbox, bool) {
	b := boxOf(rec)
	if b == nil || b.isHidden() && q.Get("includeErroredDeleted") != "true" {
		return Sandbox{}, false
	}
	v := s.dto(rec, b, c.Request)
	has := func(key, value string) bool { return len(q.Values[key]) == 0 || slices.Contains(q.Values[key], value) }
	starts := func(value, prefix string) bool {
		return len(value) >= len(prefix) && strings.EqualFold(value[:len(prefix)], prefix)
	}
	number := func(name string, n int) bool {
		low, _ := strconv.Atoi(q.Get("min" + name))
		high, err := strconv.Atoi(q.Get("max" + name))
		return n >= low && (err != nil || n <= high)
	}
	flag := func(key string, value bool) bool { return q.Get(key) == "" || q.Get(key) == strconv.FormatBool(value) }
	between := func(key, at string) bool {
		t, err := time.Parse(time.RFC3339, at)
		from, noFrom := time.Parse(time.RFC3339, q.Get(key+"After"))
		to, noTo := time.Parse(time.RFC3339, q.Get(key+"Before"))
		return (noFrom != nil || err == nil && t.After(from)) && (noTo != nil || err == nil && t.Before(to))
	}
	ok := starts(v.ID, q.Get("id")) && starts(v.Name, q.Get("name")) && has("states", v.State) &&
		has("snapshots", v.Snapshot) && has(q.regionKey, v.Target) && has("sandboxClasses", v.SandboxClass) &&
		number("Cpu", v.CPU) && number("MemoryGiB", v.Memory) && number("DiskGiB", v.Disk) &&
		flag("isPublic", v.Public) && flag("isRecoverable", v.Recoverable) &&
		between("createdAt", v.CreatedAt) && between("lastEvent", v.LastActivityAt) && between("autoDestroyAt", v.AutoDestroyAt)
	return v, ok
}

// place is where a row stands in a list. A cursor is the place of the last row of its page: rows that move while somebody
// pages are missed, or seen twice.
type place struct {
	Key     string `json:"k"`
	Created string `json:"c"`
	ID      string `json:"i"`
}

func (q query) place(v Sandbox) place {
	p := place{Created: sortable(v.created), ID: v.ID}
	switch q.sortBy {
	case "name":
		p.Key = v.Name
	case "cpu":
		p.Key = fmt.Sprintf("%09d", v.CPU)
	case "memoryGib":
		p.Key = fmt.Sprintf("%09d", v.Memory)
	case "diskGib":
		p.Key = fmt.Sprintf("%09d", v.Disk)
	case "createdAt":
		p.Key = sortable(v.created)
	default:
		p.Key = sortable(v.activity)
	}
	return p
}

// sortable prints a time so that later ones are greater.
func sortable(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000000") }

func (q query) compare(a, b place) int {
	n := cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Created, b.Created), cmp.Compare(a.ID, b.ID))
	if q.desc {
		return -n
	}
	return n
}

func (q query) sort(rows []Sandbox) {
	slices.SortFunc(rows, func(a, b Sandbox) int { return q.compare(q.place(a), q.place(b)) })
}

func (p place) cursor() string {
	b, _ := json.Marshal(p) // never fails: strings
	return base64.StdEncoding.EncodeToString(b)
}

func parseCursor(text string) (place, bool) {
	var p place
	b, err := base64.StdEncoding.DecodeString(text)
	return p, err == nil && json.Unmarshal(b, &p) == nil
}

// listed leaves out of rows what lists do not tell.
func listed(rows []Sandbox) []Sandbox {
	out := make([]Sandbox, 0, len(rows))
	for _, v := range rows {
		v.Env, v.BuildInfo, v.Volumes = nil, nil, nil
		out = append(out, v)
	}
	return out
}

// currentKey tells of the key that asks. Only deletes can be forbidden to it.
func (s *Server) currentKey(c *call) (int, any, error) {
	if err := s.svc.Ping(c.Context(), sandbox.OpGet); err != nil {
		return 0, nil, err
	}
	allowed := []string{"write:sandboxes", "delete:sandboxes"}
	if s.svc.Behaviour().NoDelete {
		allowed = allowed[:1]
	}
	return http.StatusOK, map[string]any{
		"name": "fake", "value": "dtn_********", "createdAt": stamp(s.epoch), "permissions": allowed,
		"lastUsedAt": stamp(s.svc.Now()), "expiresAt": nil, "userId": "user-1",
	}, nil
}
