package emulate

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"html/template"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/sandglass-dev/sandglass/cmd/sandglass/internal/page"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// PagePath is where the service shows its state to people; PagePath + "/state" is the same as JSON: see [State].
const PagePath = "/_sandglass"

// mostShown is how many requests the page has, and how many lives the timeline.
const mostShown = 100

// State is what the page shows, for programs.
type State struct {
	Service   string    `json:"service"`
	URL       string    `json:"url"`
	AsOf      time.Time `json:"as_of"`
	Sandboxes []Sandbox `json:"sandboxes"`
	Asked     int       `json:"asked"`    // requests so far
	Requests  []Request `json:"requests"` // the latest, latest first
}

//go:embed page.html
var pageText string

//go:embed refresh.js
var refresh string

// pageTemplate has the page as "page", and as "main" the part of it that is renewed.
var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"clock":    func(t time.Time) string { return t.Local().Format(time.TimeOnly) },
	"fine":     func(t time.Time) string { return t.Local().Format(stamp) },
	"duration": duration,
	"left":     func(until, now time.Time) string { return duration(until.Sub(now)) },
}).Parse(pageText))

func duration(d time.Duration) string { return page.Duration(d) }

func number(n int) string { return strconv.Itoa(n) }

// isPage reports whether a request is for the page: asked for at this address itself, and not at one that some other
// page of the web has made to point here.
func (s *Server) isPage(r *http.Request) bool {
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = r.Host
	}
	ip := net.ParseIP(host)
	here := host == "localhost" || ip != nil && ip.IsLoopback()
	return here && (r.URL.Path == PagePath || r.URL.Path == PagePath+"/state") && r.Header.Get("E2b-Sandbox-Id") == ""
}

func (s *Server) page(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "the state is there to be looked at", http.StatusMethodNotAllowed)
		return
	}
	state := s.state()
	if r.URL.Path != PagePath {
		h.Set("Content-Type", "application/json; charset=utf-8")
		_ = json.NewEncoder(w).Encode(state)
		return
	}
	name := "page"
	if r.URL.Query().Has("main") {
		name = "main"
	}
	var b bytes.Buffer
	if err := pageTemplate.ExecuteTemplate(&b, name, s.view(state)); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	sum := sha256.Sum256([]byte(refresh))
	h.Set("Content-Security-Policy", page.Policy("'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'", "'self'"))
	h.Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(b.Bytes())
}

func (s *Server) state() State {
	all := s.Sandboxes()
	asked, count := s.asked.list()
	return State{Service: s.svc.name, URL: s.url, AsOf: s.svc.state.Now(), Sandboxes: all, Asked: count, Requests: asked}
}

// A view is what the page's template is given.
type view struct {
	State
	Title    string
	Style    template.CSS
	Script   template.JS
	Chart    template.HTML
	Legend   template.HTML
	Drawn    int // lives in the chart
	Running  int
	Kept     int // dormant, failed or on the way out
	Gone     int
	Latest   []Sandbox // latest first
	Requests []Request
}

func (s *Server) view(state State) view {
	v := view{State: state, Title: s.svc.title, Style: page.Style, Script: template.JS(refresh), Requests: state.Requests}
	for i := range state.Sandboxes {
		b := state.Sandboxes[len(state.Sandboxes)-1-i]
		v.Latest = append(v.Latest, b)
		switch {
		case !b.left():
			v.Gone++
		case b.running():
			v.Running++
		default:
			v.Kept++
		}
	}
	v.Requests = v.Requests[:min(len(v.Requests), mostShown)]
	drawn := v.Latest[:min(len(v.Latest), mostShown)]
	v.Drawn = len(drawn)
	v.Chart = chart(s.svc.title, s.started, state.AsOf, drawn).SVG()
	v.Legend = page.Legend(
		page.Word{Kind: page.Running, Means: "runs"}, page.Word{Kind: page.Starting, Means: "starts or ends"},
		page.Word{Kind: page.Dormant, Means: "stopped, a record is kept"}, page.Word{Kind: page.Lease, Means: "what is left of its lease, or was when it ended"},
		page.Word{Kind: page.Deadline, Means: "end of the lease"}, page.Word{Kind: page.Beat, Means: "the lease was extended"}, page.Word{Kind: page.End, Means: "gone"},
	)
	return v
}

func (s Sandbox) running() bool {
	return s.State == sandbox.StateRunning.String() || s.State == sandbox.StateStarting.String()
}

func (s Sandbox) ending() bool { return s.State == sandbox.StateEnding.String() }

// Status is the sandbox's state in words, with how it ended.
func (s Sandbox) Status() string {
	switch {
	case s.How != "":
		return "gone, ended " + s.How
	case s.Detail != "" && s.Detail != s.State:
		return s.State + " (" + s.Detail + ")"
	}
	return s.State
}

// Until is when compute or its record ended, or now.
func (s Sandbox) Until(now time.Time) time.Time {
	if s.Ended.IsZero() {
		return now
	}
	return s.Ended
}

// chart draws lives, latest first. It shows as much of what is to come as it helps to see, and not a lease of a day.
func chart(title string, from, now time.Time, all []Sandbox) page.Chart {
	if len(all) > 0 {
		from = now
	}
	var most time.Time
	for _, b := range all {
		if b.Created.Before(from) {
			from = b.Created
		}
		if b.Deadline.After(most) {
			most = b.Deadline
		}
	}
	lived := max(now.Sub(from), 10*time.Second)
	to := now.Add(lived / 20)
	if most.After(to) {
		to = earlier(most.Add(lived/20), now.Add(max(lived*3/2, time.Minute)))
	}
	from = from.Add(-to.Sub(from) / 50)
	c := page.Chart{Title: "Timeline of the sandboxes of the emulated " + title + "; the table below says the same", From: from.Local(), To: to, Now: now}
	for _, b := range all {
		c.Rows = append(c.Rows, row(b, now))
	}
	return c
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// row draws one life: its states, its beats, and its lease.
func row(b Sandbox, now time.Time) page.Row {
	r := page.Row{Label: b.ID, Says: b.Status(), Under: b.Owner}
	if len(b.Tags) > 0 {
		r.Under = b.Tags[0].Key + "=" + b.Tags[0].Value
	}
	if b.left() && b.Deadline.IsZero() {
		r.Says, r.Bad = b.Status()+", no lease ends it", true
	}
	until := b.Until(now)
	var last moment
	for i, m := range b.moments {
		to := until
		if i+1 < len(b.moments) {
			to = b.moments[i+1].at
		}
		kind := kindOf(m.state)
		if n := len(r.Bars); n > 0 && r.Bars[n-1].Kind == kind {
			r.Bars[n-1].To = to
		} else if kind != "" {
			r.Bars = append(r.Bars, page.Bar{From: m.at, To: to, Kind: kind})
		}
		if i > 0 && m.state == sandbox.StateRunning && last.state == m.state && !m.deadline.Equal(last.deadline) {
			r.Marks = append(r.Marks, page.Mark{At: m.at, Kind: page.Beat, Title: "extended at " + m.at.Local().Format(time.TimeOnly)})
		}
		last = m
	}
	for i := range r.Bars {
		bar := &r.Bars[i]
		bar.Title = string(bar.Kind) + " from " + bar.From.Local().Format(time.TimeOnly) + " for " + duration(bar.To.Sub(bar.From))
	}
	if b.Deadline.After(until) {
		title := "lease until " + b.Deadline.Local().Format(time.TimeOnly)
		r.Bars = append(r.Bars, page.Bar{From: until, To: b.Deadline, Kind: page.Lease, Title: title})
		r.Marks = append(r.Marks, page.Mark{At: b.Deadline, Kind: page.Deadline, Title: title})
		if b.left() {
			r.Says = b.Status() + ", " + duration(b.Deadline.Sub(now)) + " left"
		}
	}
	if !b.left() {
		r.Marks = append(r.Marks, page.Mark{At: b.Ended, Kind: page.End, Title: "gone at " + b.Ended.Local().Format(time.TimeOnly)})
	}
	return r
}

func kindOf(s sandbox.State) page.Kind {
	switch s {
	case sandbox.StateRunning:
		return page.Running
	case sandbox.StateStarting, sandbox.StateEnding:
		return page.Starting
	case sandbox.StateDormant:
		return page.Dormant
	case sandbox.StateGone:
		return ""
	}
	return page.Unknown
}

func isUsage(err error) bool { return errors.Is(err, sandbox.ErrInvalid) }
