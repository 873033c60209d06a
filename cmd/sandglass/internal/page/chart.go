package page

import (
	"fmt"
	"html/template"
	"strings"
	"time"
)

// A Chart is a timeline of lives, one a row.
type Chart struct {
	Title    string // what a reader who does not see it is told
	From, To time.Time
	Now      time.Time // zero: no line for it
	Rows     []Row     // drawn from the top, as they are
}

// A Row is one life.
type Row struct {
	Label string // on the left: which one
	Under string // smaller, below it
	Says  string // on the right: how it stands
	Bad   bool   // that is something to look at; it is marked by a sign too, not by colour alone
	Bars  []Bar
	Marks []Mark
}

// A Bar is a stretch of time. What lies outside of the chart is cut.
type Bar struct {
	From, To time.Time
	Kind     Kind
	Title    string // in full, for who points at it
}

// A Mark is a moment.
type Mark struct {
	At    time.Time
	Kind  Kind
	Title string
}

// Kind is what a bar or a mark stands for.
type Kind string

// Kinds. Each differs from the others in form or pattern, and not in colour alone.
const (
	Running  Kind = "running"  // a bar: compute may run
	Starting Kind = "starting" // a bar: will run, or is about to end
	Dormant  Kind = "dormant"  // a bar: stopped, and a record is kept
	Unknown  Kind = "unknown"  // a bar: may be
	Lease    Kind = "lease"    // a bar: the lease's time that is, or would have been, left
	Beat     Kind = "beat"     // a mark: the deadline was moved
	End      Kind = "end"      // a mark: gone
	Deadline Kind = "deadline" // a mark: the lease's end
)

// The chart's measures, in the units of its view box.
const (
	width   = 1180
	left    = 190 // where time begins
	right   = 880 // where it ends
	head    = 34
	rowSize = 40
	barSize = 16
	minBar  = 3
	apart   = 4 // of beats
)

// x returns where t is drawn; it may lie outside.
func (c Chart) x(t time.Time) float64 {
	span := c.To.Sub(c.From)
	if span <= 0 {
		return left
	}
	return left + float64(t.Sub(c.From))/float64(span)*(right-left)
}

// SVG returns the drawing, to stand within a page that has [Style].
func (c Chart) SVG() template.HTML {
	var b strings.Builder
	w := writer{&b}
	height := head + rowSize*len(c.Rows) + 8
	w.put(`<svg class="chart" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="%s">`, width, height, width, height, c.Title)
	w.put(`<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">` +
		`<rect class="ground" width="6" height="6"/><rect class="line" width="2" height="6"/></pattern>` +
		`<pattern id="dots" width="6" height="6" patternUnits="userSpaceOnUse"><rect class="ground" width="6" height="6"/>` +
		`<circle class="line" cx="3" cy="3" r="1.5"/></pattern></defs>`)
	c.axis(w, height)
	for i, r := range c.Rows {
		c.row(w, r, float64(head+rowSize*i))
	}
	if !c.Now.IsZero() && !c.Now.Before(c.From) && !c.Now.After(c.To) {
		w.put(`<line class="now" x1="%.1f" x2="%.1f" y1="%d" y2="%d"/>`, c.x(c.Now), c.x(c.Now), head-6, height-4)
		w.put(`<text class="now" x="%.1f" y="10" text-anchor="middle">now</text>`, c.x(c.Now))
	}
	w.put(`</svg>`)
	return template.HTML(b.String()) //nolint:gosec // every text in it went through the writer, which escapes
}

func (c Chart) axis(w writer, height int) {
	step, layout := steps(c.To.Sub(c.From))
	_, zone := c.From.Zone()
	shift := time.Duration(zone) * time.Second // so that days begin where the reader's do
	for t := c.From.Add(shift).Truncate(step).Add(-shift); !t.After(c.To); t = t.Add(step) {
		if t.Before(c.From) {
			continue
		}
		w.put(`<line class="tick" x1="%.1f" x2="%.1f" y1="%d" y2="%d"/>`, c.x(t), c.x(t), head-8, height-4)
		w.put(`<text class="tick" x="%.1f" y="%d" text-anchor="middle">%s</text>`, c.x(t), head-12, t.In(c.From.Location()).Format(layout))
	}
}

// steps returns the distance of the axis's ticks and how they are written.
func steps(span time.Duration) (time.Duration, string) {
	const day = 24 * time.Hour
	for _, s := range []time.Duration{
		time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second,
		time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
		time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, day, 2 * day, 7 * day, 28 * day,
	} {
		if span/s > 8 {
			continue
		}
		switch {
		case s >= day:
			return s, "2 Jan"
		case span >= day:
			return s, "2 Jan 15:04"
		case s >= time.Minute:
			return s, "15:04"
		}
		return s, "15:04:05"
	}
	return max(span/8, time.Hour), "2 Jan 06"
}

func (c Chart) row(w writer, r Row, y float64) {
	mid := y + rowSize/2
	w.put(`<g class="row"><line class="rule" x1="0" x2="%d" y1="%.1f" y2="%.1f"/>`, width, y, y)
	w.put(`<text class="label" x="0" y="%.1f">%s</text>`, mid-1, short(r.Label, 27))
	w.put(`<text class="under" x="0" y="%.1f">%s</text>`, mid+13, short(r.Under, 32))
	sign, class := "", "says"
	if r.Bad {
		sign, class = "! ", "says bad"
	}
	w.put(`<text class="%s" x="%d" y="%.1f">%s</text>`, class, right+14, mid+5, short(sign+r.Says, 44))
	for _, bar := range r.Bars {
		c.bar(w, bar, mid)
	}
	last := -apart
	for _, m := range r.Marks {
		if m.Kind == Beat {
			x := int(c.x(m.At))
			if x < last+apart { // it could not be told from the one before
				continue
			}
			last = x
		}
		c.mark(w, m, mid)
	}
	w.put(`</g>`)
}

func (c Chart) bar(w writer, b Bar, mid float64) {
	if b.To.Before(c.From) || b.From.After(c.To) || b.To.Before(b.From) {
		return
	}
	from, to := max(c.x(b.From), left), min(c.x(b.To), right)
	size := float64(barSize)
	if b.Kind == Lease {
		size = barSize / 2
	}
	w.put(`<rect class="bar %s" x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="2"><title>%s</title></rect>`,
		string(b.Kind), from, mid-size/2, max(to-from, minBar), size, b.Title)
	if b.To.After(c.To) { // it goes on
		w.put(`<path class="more" d="M%.1f %.1fl7 5l-7 5z"/>`, float64(right+1), mid-5)
	}
}

func (c Chart) mark(w writer, m Mark, mid float64) {
	if m.At.Before(c.From) || m.At.After(c.To) {
		return
	}
	x := c.x(m.At)
	switch m.Kind {
	case Beat:
		w.put(`<line class="mark beat" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"><title>%s</title></line>`, x, x, mid+barSize/2+1, mid+barSize/2+5, m.Title)
	case Deadline:
		w.put(`<line class="mark deadline" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"><title>%s</title></line>`, x, x, mid-barSize/2-1, mid+barSize/2+1, m.Title)
	default:
		w.put(`<path class="mark end" d="M%.1f %.1fl8 8m0 -8l-8 8"><title>%s</title></path>`, x-4, mid-4, m.Title)
	}
}

// short cuts s to so many characters.
func short(s string, most int) string {
	r := []rune(s)
	if len(r) <= most {
		return s
	}
	return string(r[:most-1]) + "…"
}

// A writer escapes every string that goes into the drawing.
type writer struct{ b *strings.Builder }

func (w writer) put(format string, args ...any) {
	for i, a := range args {
		if s, ok := a.(string); ok {
			args[i] = template.HTMLEscapeString(s)
		}
	}
	fmt.Fprintf(w.b, format, args...)
}
