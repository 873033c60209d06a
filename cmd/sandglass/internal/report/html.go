package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/sandglass-dev/sandglass/cmd/sandglass/internal/page"
)

//go:embed report.html
var pageText string

var pageTemplate = template.Must(template.New("report").Funcs(template.FuncMap{
	"clock": func(t time.Time) string {
		if t.IsZero() {
			return "unknown"
		}
		return clock(t)
	},
	"hours": Hours,
	"zone":  func(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05 MST") },
}).Parse(pageText))

// How much a page shows; what is left is always shown.
const (
	mostDrawn  = 150
	mostListed = 1000
)

// Hours writes bounds as people read them: "1.25", "1.00 to 1.25", "at most 0.04".
func Hours(least, most float64) string {
	text := func(h float64) string { return strconv.FormatFloat(h, 'f', 2, 64) }
	switch {
	case text(least) == text(most):
		return text(least)
	case text(least) == "0.00":
		return "at most " + text(most)
	}
	return text(least) + " to " + text(most)
}

// Words says what became of the sandbox.
func (e End) Words() string {
	return map[End]string{
		ByScope: "its scope", ByReplay: "the journal's replay", BySweeper: "the sweeper", ByHand: "by hand", ByLease: "its lease, at the latest",
		Alive: "alive", Kept: "kept on purpose", Left: "left", Unknown: "unknown",
	}[e]
}

// Tally is what the page's numbers are called.
func (e End) Tally() string {
	return map[End]string{
		ByScope: "ended by scope", ByReplay: "ended by replay", BySweeper: "ended by sweeper", ByHand: "ended by hand", ByLease: "ended by lease",
		Alive: "alive", Kept: "kept on purpose", Left: "left", Unknown: "unknown",
	}[e]
}

// A view is what the page's template is given.
type view struct {
	Report
	Style   template.CSS
	Policy  string
	Tallies []tally
	Chart   template.HTML
	Legend  template.HTML
	Drawn   int
	Listed  []Life
	Leaky   []Life
	Blind   []Source // what could not be seen
	Dark    []Source // accounts without a witness
}

type tally struct {
	End   End
	Count int
}

// WriteHTML writes the report as a page that stands alone: it loads nothing, and has no script.
func (r Report) WriteHTML(w io.Writer) error {
	v := view{Report: r, Style: page.Style, Policy: page.Policy("", "")}
	for _, e := range Ends() {
		if n := r.Ends[e]; n > 0 {
			v.Tallies = append(v.Tallies, tally{e, n})
		}
	}
	most := max(mostListed, r.Leaks)
	v.Listed = r.Lives[:min(len(r.Lives), most)]
	v.Leaky = r.Lives[:r.Leaks]
	v.Drawn = min(len(r.Lives), max(mostDrawn, r.Leaks))
	v.Chart = r.chart(r.Lives[:v.Drawn]).SVG()
	v.Legend = page.Legend(
		page.Word{Kind: page.Running, Means: "alive"}, page.Word{Kind: page.Unknown, Means: "may have been alive"}, page.Word{Kind: page.Dormant, Means: "stopped, a record is kept"},
		page.Word{Kind: page.Lease, Means: "what is left of its lease, or was when it ended"}, page.Word{Kind: page.Deadline, Means: "end of the lease"},
		page.Word{Kind: page.Beat, Means: "a beat"}, page.Word{Kind: page.End, Means: "gone, at the latest"},
	)
	for _, s := range r.Sources {
		switch {
		case s.Trouble != "":
			v.Blind = append(v.Blind, s)
		case s.Kind == "account" && !s.Witness:
			v.Dark = append(v.Dark, s)
		}
	}
	if err := pageTemplate.Execute(w, v); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// Accounts reports whether any was looked at.
func (r Report) Accounts() bool {
	return slices.ContainsFunc(r.Sources, func(s Source) bool { return s.Kind == "account" })
}

// Labels are the user's tags in order.
func (l Life) Labels() (all []string) {
	for _, k := range slices.Sorted(maps.Keys(l.Tags)) {
		all = append(all, k+"="+l.Tags[k])
	}
	return all
}

// Name is the id, or what stands in for it.
func (l Life) Name() string {
	if l.ID == "" {
		return "nonce " + l.Nonce
	}
	return l.ID
}

// chart draws lives from the first beginning that lies in the report's time to now, and as far on as leases run.
func (r Report) chart(lives []Life) page.Chart {
	from, to := r.Made, r.Made
	for _, l := range lives {
		if !l.Began.IsZero() && l.Began.Before(from) {
			from = l.Began
		}
		if l.there() && l.Until.After(to) {
			to = l.Until
		}
	}
	if from.Before(r.From) {
		from = r.From
	}
	lived := max(r.Made.Sub(from), time.Minute)
	if most := r.Made.Add(lived / 2); to.After(most) {
		to = most
	}
	from, to = from.Add(-lived/50), to.Add(lived/50)
	c := page.Chart{Title: "Timeline of the fleet's sandboxes; the table below says the same", From: from.Local(), To: to, Now: r.Made}
	for _, l := range lives {
		c.Rows = append(c.Rows, r.row(l))
	}
	return c
}

// there reports whether the account shows it, or may have it.
func (l Life) there() bool { return l.End == Alive || l.End == Kept || l.End == Left }

func (r Report) row(l Life) page.Row {
	row := page.Row{Label: l.Name(), Under: l.Provider, Says: l.End.Words(), Bad: l.Leak}
	if labels := l.Labels(); len(labels) > 0 {
		row.Under = labels[0]
	}
	if l.Leak {
		row.Says = "left: see above"
	}
	if (l.End == Alive || l.End == Kept) && l.Until.After(r.Made) {
		row.Says += ", its lease: " + page.Duration(l.Until.Sub(r.Made))
	}
	seen, end := l.Seen, l.Ended
	if end.IsZero() {
		end = r.Made
	}
	if l.Began.IsZero() {
		if !l.Ended.IsZero() {
			row.Marks = append(row.Marks, page.Mark{At: l.Ended, Kind: page.End, Title: "gone at " + clock(l.Ended)})
		}
		return row
	}
	if seen.Before(l.Began) {
		seen = l.Began
	}
	if l.there() && !l.dormant && l.State != "" {
		seen = end
	}
	bar := func(from, to time.Time, kind page.Kind, what string) {
		if to.After(from) {
			row.Bars = append(row.Bars, page.Bar{From: from, To: to, Kind: kind, Title: what + " from " + clock(from) + " to " + clock(to)})
		}
	}
	bar(l.Began, seen, page.Running, "alive")
	switch {
	case l.dormant:
		bar(seen, end, page.Dormant, "a record is kept; how long compute went on is not told,")
	default:
		bar(seen, end, page.Unknown, "may have been alive")
	}
	if !l.Until.IsZero() && l.Until.After(end) && (l.there() || l.End != Unknown) {
		bar(end, l.Until, page.Lease, "rest of the lease")
		row.Marks = append(row.Marks, page.Mark{At: l.Until, Kind: page.Deadline, Title: "end of the lease at " + clock(l.Until)})
	}
	for _, b := range l.beats {
		row.Marks = append(row.Marks, page.Mark{At: b, Kind: page.Beat, Title: "a beat at " + clock(b)})
	}
	if !l.Ended.IsZero() {
		row.Marks = append(row.Marks, page.Mark{At: l.Ended, Kind: page.End, Title: "gone at " + clock(l.Ended) + " at the latest"})
	}
	return row
}
