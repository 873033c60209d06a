// Package page draws what the pages of the command share: their style and the timeline of lives. What it draws is
// self-contained, without scripts, and readable in light and dark, by who sees no colours, and by who sees nothing.
package page

import (
	"html/template"
	"strconv"
	"strings"
	"time"
)

// Style is the pages' style sheet, to stand in a style element.
const Style template.CSS = `
:root { color-scheme: light dark; --ground: #fff; --panel: #f5f6f8; --ink: #1a1d23; --soft: #565d6b; --rule: #d9dde3;
  --run: #2f6fb3; --start: #8a6d00; --rest: #6b7280; --lease: #9dbde0; --bad: #b3261e; --badground: #fdecea; --good: #1f6f43; }
@media (prefers-color-scheme: dark) { :root { --ground: #14171c; --panel: #1d2128; --ink: #e8eaee; --soft: #a5adba; --rule: #353b45;
  --run: #6aa9ec; --start: #e0be50; --rest: #9aa3b2; --lease: #3f618a; --bad: #ff8a80; --badground: #3a1d1b; --good: #6fce9b; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 84rem; padding: 1.5rem; background: var(--ground); color: var(--ink);
  font: 16px/1.5 system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: 0 0 .25rem; }
h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
p { margin: .25rem 0; max-width: 75ch; }
a { color: var(--run); }
code, .mono { font: .875em/1.4 ui-monospace, "DejaVu Sans Mono", monospace; overflow-wrap: anywhere; }
.soft { color: var(--soft); }
.bad { color: var(--bad); font-weight: 600; }
.good { color: var(--good); font-weight: 600; }
.alert { border: 1px solid var(--bad); border-left-width: 6px; background: var(--badground); padding: .75rem 1rem; border-radius: 4px; margin: 1rem 0; }
.numbers { display: flex; flex-wrap: wrap; gap: .75rem; margin: 1rem 0; padding: 0; }
.numbers div { background: var(--panel); border: 1px solid var(--rule); border-radius: 6px; padding: .5rem 1rem; min-width: 8rem; }
.numbers dt { color: var(--soft); font-size: .875rem; }
.numbers dd { margin: 0; font-size: 1.4rem; font-weight: 600; font-variant-numeric: tabular-nums; }
.wide { overflow-x: auto; border: 1px solid var(--rule); border-radius: 6px; background: var(--panel); padding: .75rem; }
.wide:focus-visible, a:focus-visible, button:focus-visible { outline: 3px solid var(--run); outline-offset: 2px; }
table { border-collapse: collapse; width: 100%; font-size: .9375rem; }
caption { text-align: left; color: var(--soft); padding: 0 0 .5rem; }
th, td { text-align: left; vertical-align: top; padding: .3rem .9rem .3rem 0; border-bottom: 1px solid var(--rule); }
th { color: var(--soft); font-weight: 600; white-space: nowrap; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.tags { min-width: 14rem; }
td.time { white-space: nowrap; font-variant-numeric: tabular-nums; }
tbody tr:last-child > * { border-bottom: 0; }
.wide table { min-width: 60rem; }
button { font: inherit; padding: .2rem .8rem; border: 1px solid var(--rule); border-radius: 4px; background: var(--panel); color: var(--ink); cursor: pointer; }
footer { margin-top: 2rem; color: var(--soft); font-size: .875rem; }
.legend { display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; padding: 0; margin: .5rem 0 0; list-style: none; font-size: .875rem; color: var(--soft); }
.legend svg { vertical-align: -2px; margin-right: .4rem; }
.chart { display: block; width: 100%; height: auto; min-width: 60rem; font-size: 13px; }
.chart text { fill: var(--ink); }
.chart .tick, .chart .under { fill: var(--soft); font-size: 11px; }
.chart .label { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: 11.5px; }
.chart .says.bad { fill: var(--bad); font-weight: 600; }
.chart line.tick, .chart .rule { stroke: var(--rule); stroke-width: 1; }
.chart line.now { stroke: var(--ink); stroke-width: 1; stroke-dasharray: 2 3; }
.chart text.now { font-size: 11px; }
.bar { stroke-width: 1.5; }
.bar.running { fill: var(--run); stroke: var(--run); }
.bar.starting { fill: var(--ground); stroke: var(--start); stroke-dasharray: 4 2; }
.bar.dormant { fill: var(--ground); stroke: var(--rest); }
.bar.unknown { fill: url(#dots); stroke: var(--rest); stroke-dasharray: 3 3; }
.bar.lease { fill: url(#hatch); stroke: var(--run); stroke-width: .75; }
.ground { fill: var(--ground); } #hatch .line { fill: var(--lease); } #dots .line { fill: var(--rest); }
.more { fill: var(--run); }
.mark { stroke: var(--ink); stroke-width: 1.5; fill: none; }
.mark.end { stroke-width: 2; }
.mark.deadline { stroke: var(--start); stroke-width: 2.5; }
@media print { body { max-width: none; padding: 0; } }
`

// Policy is what a page may load: nothing from anywhere. scripts and connect are what it may in addition, in the words of a
// Content-Security-Policy; empty: no script, no request.
func Policy(scripts, connect string) string {
	p := "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
	if scripts != "" {
		p += "; script-src " + scripts
	}
	if connect != "" {
		p += "; connect-src " + connect
	}
	return p
}

// Legend returns the chart's legend, for the kinds that are in use.
func Legend(words ...Word) template.HTML {
	var b strings.Builder
	w := writer{&b}
	w.put(`<ul class="legend">`)
	for _, word := range words {
		w.put(`<li><svg width="28" height="14" viewBox="0 0 28 14" aria-hidden="true">`)
		switch word.Kind {
		case Beat:
			w.put(`<line class="mark beat" x1="14" x2="14" y1="4" y2="10"/>`)
		case Deadline:
			w.put(`<line class="mark deadline" x1="14" x2="14" y1="0" y2="14"/>`)
		case End:
			w.put(`<path class="mark end" d="M10 3l8 8m0 -8l-8 8"/>`)
		case Lease:
			w.put(`<rect class="bar lease" x="1" y="3" width="26" height="8" rx="2"/>`)
		default:
			w.put(`<rect class="bar %s" x="1" y="1" width="26" height="12" rx="2"/>`, string(word.Kind))
		}
		w.put(`</svg>%s</li>`, word.Means)
	}
	w.put(`</ul>`)
	return template.HTML(b.String()) //nolint:gosec // the writer escapes
}

// A Word is a line of a legend.
type Word struct {
	Kind  Kind
	Means string
}

// Duration returns d as people read it: "3 min 10 s", "1 h 5 min", "250 ms", without what no reader needs.
func Duration(d time.Duration) string {
	if d < 0 {
		return "-" + Duration(-d)
	}
	unit := func(big, small time.Duration, bigWord, smallWord string) string {
		n, rest := d/big, d%big/small
		if rest == 0 {
			return number(n) + " " + bigWord
		}
		return number(n) + " " + bigWord + " " + number(rest) + " " + smallWord
	}
	switch {
	case d < time.Millisecond:
		return number(d/time.Microsecond) + " µs"
	case d < time.Second:
		return number(d/time.Millisecond) + " ms"
	case d < time.Minute:
		return number(d/time.Second) + " s"
	case d < time.Hour:
		return unit(time.Minute, time.Second, "min", "s")
	case d < 24*time.Hour:
		return unit(time.Hour, time.Minute, "h", "min")
	default:
		return unit(24*time.Hour, time.Hour, "d", "h")
	}
}

func number(n time.Duration) string { return strconv.FormatInt(int64(n), 10) }
