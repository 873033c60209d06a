package page_test

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/cmd/sandglass/internal/page"
)

// An element of a drawing, with its attributes and text.
type element struct {
	Attr map[string]string
	Text string
}

// parse returns the elements of a drawing, by name; one that is not well-formed fails the test.
func parse(t *testing.T, svg string) map[string][]*element {
	t.Helper()
	all := map[string][]*element{}
	var open []*element
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err, svg)
		switch x := token.(type) {
		case xml.StartElement:
			e := &element{Attr: map[string]string{}}
			for _, a := range x.Attr {
				e.Attr[a.Name.Local] = a.Value
			}
			all[x.Name.Local] = append(all[x.Name.Local], e)
			open = append(open, e)
		case xml.CharData:
			if len(open) > 0 {
				open[len(open)-1].Text += string(x)
			}
		case xml.EndElement:
			open = open[:len(open)-1]
		}
	}
}

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.FixedZone("", 90*60))

// texts are those of a class.
func texts(all map[string][]*element, class string) (found []string) {
	for _, e := range all["text"] {
		if e.Attr["class"] == class {
			found = append(found, e.Text)
		}
	}
	return found
}

func TestTheAxisHasRoundTimesOfTheReadersZone(t *testing.T) {
	for span, want := range map[time.Duration][]string{
		10 * time.Second: {"12:00:00", "12:00:02", "12:00:04", "12:00:06", "12:00:08", "12:00:10"},
		time.Hour:        {"12:00", "12:10", "12:20", "12:30", "12:40", "12:50", "13:00"},
		36 * time.Hour:   {"1 Mar 12:00", "1 Mar 18:00", "2 Mar 00:00", "2 Mar 06:00", "2 Mar 12:00", "2 Mar 18:00", "3 Mar 00:00"},
	} {
		all := parse(t, string(page.Chart{From: noon, To: noon.Add(span)}.SVG()))
		assert.Equal(t, want, texts(all, "tick"), span.String())
	}
	t.Run("whatever the span", func(t *testing.T) {
		for span := time.Millisecond; span < 50*365*24*time.Hour; span = span*3/2 + 1 {
			n := len(texts(parse(t, string(page.Chart{From: noon, To: noon.Add(span)}.SVG())), "tick"))
			assert.LessOrEqual(t, n, 10, span.String())
		}
	})
}

func TestWhatSomebodyElseWroteIsText(t *testing.T) {
	const evil = `"><script>alert(1)</script>&'`
	all := parse(t, string(page.Chart{
		Title: evil, From: noon, To: noon.Add(time.Minute),
		Rows: []page.Row{{
			Label: evil, Under: evil, Says: evil, Bars: []page.Bar{{From: noon, To: noon.Add(time.Second), Kind: page.Kind(evil), Title: evil}},
			Marks: []page.Mark{{At: noon, Kind: page.Beat, Title: evil}},
		}},
	}.SVG()))
	assert.Empty(t, all["script"])
	assert.Equal(t, evil, all["svg"][0].Attr["aria-label"])
	assert.Equal(t, evil, all["title"][0].Text)
	assert.Equal(t, []string{evil[:26] + "…"}, texts(all, "label"))
}

// bars are those of the rows.
func bars(all map[string][]*element) (found []*element) {
	for _, e := range all["rect"] {
		if strings.HasPrefix(e.Attr["class"], "bar ") {
			found = append(found, e)
		}
	}
	return found
}

func TestBarsAreCutAtTheChartsEnds(t *testing.T) {
	draw := func(from, to time.Duration) map[string][]*element {
		return parse(t, string(page.Chart{
			From: noon, To: noon.Add(time.Hour),
			Rows: []page.Row{{Bars: []page.Bar{{From: noon.Add(from), To: noon.Add(to), Kind: page.Running}}}},
		}.SVG()))
	}
	whole := bars(draw(0, time.Hour))[0].Attr
	over := draw(-time.Hour, 2*time.Hour)
	assert.Equal(t, whole["x"], bars(over)[0].Attr["x"])
	assert.Equal(t, whole["width"], bars(over)[0].Attr["width"])
	assert.Len(t, over["path"], 1, "an arrow says that it goes on")
	assert.Empty(t, draw(0, time.Hour)["path"])
	assert.Empty(t, bars(draw(-2*time.Hour, -time.Hour)), "what is outside is not drawn")
	assert.Equal(t, "3.0", bars(draw(time.Minute, time.Minute))[0].Attr["width"], "what is short can be seen")
}

func TestDurationsReadAsPeopleSayThem(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0 µs", 1500 * time.Microsecond: "1 ms", 59 * time.Second: "59 s", 190 * time.Second: "3 min 10 s", 2 * time.Minute: "2 min",
		65 * time.Minute: "1 h 5 min", 49 * time.Hour: "2 d 1 h", -time.Minute: "-1 min",
	} {
		assert.Equal(t, want, page.Duration(d))
	}
}

func TestAPolicyAllowsNothingThatWasNotAskedFor(t *testing.T) {
	assert.NotContains(t, page.Policy("", ""), "script-src")
	assert.Contains(t, page.Policy("", ""), "default-src 'none'")
	assert.Contains(t, page.Policy("'sha256-x'", "'self'"), "script-src 'sha256-x'; connect-src 'self'")
}
