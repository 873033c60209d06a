package report_test

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/cmd/sandglass/internal/browsertest"
	"github.com/sandglass-dev/sandglass/cmd/sandglass/internal/history"
	"github.com/sandglass-dev/sandglass/cmd/sandglass/internal/report"
	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/leakcheck"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxtest"
)

// morning is a report of some hours in which each kind of end has come up.
func morning(t *testing.T) (r report.Report) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		task := func(name string) sandbox.Option { return func(s *sandbox.Scope) { s.Tags["task"] = name } }
		require.NoError(t, w.scope(25*time.Minute, nil, task("refactor")))
		require.NoError(t, w.scope(5*time.Minute, nil, task("docs")))
		w.dies("aaaaaaaaaaaaaaaa", 9)
		asleep := w.dies("bbbbbbbbbbbbbbbb", 3)
		w.p.Pause(asleep.ID)
		time.Sleep(75 * time.Minute)
		w.sweep()
		byHand := w.dies("dddddddddddddddd", 5)
		w.file.Ended(history.Hand, w.p.Name(), byHand, sandbox.Terminate(t.Context(), w.p, byHand.ID))
		taken := w.dies("eeeeeeeeeeeeeeee", 4)
		w.p.Kill(taken.ID)
		_ = w.manager(nil).WithSandbox(t.Context(), func(context.Context, sandbox.Sandbox) error { return errors.New("failed") },
			func(s *sandbox.Scope) { s.KeepOnError = 40 * time.Minute }, task("broken"))
		w.p.Behave(func(b *sandboxtest.Behaviour) { b.Unenforced = true })
		w.dies("cccccccccccccccc", 2)
		time.Sleep(10 * time.Minute)
		require.NoError(t, w.scope(12*time.Minute, func(sandbox.Sandbox) {
			time.Sleep(11 * time.Minute)
			var err error
			r, err = w.report()
			require.ErrorIs(t, err, leakcheck.ErrLeak)
		}, task("tests")))
	})
	return r
}

// file writes a report as somebody opens it: by its path.
func file(t *testing.T, r report.Report) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "report.html")
	f, err := os.Create(path)
	require.NoError(t, err)
	require.NoError(t, r.WriteHTML(f))
	require.NoError(t, f.Close())
	return (&url.URL{Scheme: "file", Path: path}).String()
}

func TestThePageShowsWhatBecameOfTheSandboxes(t *testing.T) {
	r := morning(t)
	at := file(t, r)
	for name, v := range map[string]browsertest.View{
		"report":        {},
		"report-dark":   {Dark: true},
		"report-narrow": {Width: 500, Height: 900},
		"report-plain":  {NoScript: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := browsertest.Open(t, at, v)
			img := s.Picture(t, name)
			assert.Empty(t, s.Complaints())
			assert.Equal(t, []string{at}, s.Asked(), "it loads nothing")
			if v.NoScript {
				return // the page has none, and the rest of this test asks by one
			}
			shown := s.Text(t, "body")
			assert.Contains(t, shown, "1 sandbox is left, and should not be.")
			for _, l := range r.Lives {
				assert.Contains(t, shown, l.ID)
				assert.Contains(t, shown, l.End.Words())
			}
			assert.Equal(t, report.Hours(r.Least, r.Most), strings.TrimSpace(s.Text(t, "#hours")))

			rows := s.Boxes(t, ".chart .row")
			require.Len(t, rows, len(r.Lives))
			for i, row := range rows {
				if i > 0 {
					assert.Greater(t, row.Y, rows[i-1].Y, "rows do not lie upon each other")
				}
			}
			for _, bar := range s.Boxes(t, ".chart .bar") {
				chart := s.Boxes(t, ".chart")[0]
				assert.GreaterOrEqual(t, bar.X, chart.X)
				assert.LessOrEqual(t, bar.X+bar.Width, chart.X+chart.Width)
			}
			// What cannot be told apart by colour is told apart by form: bars that are filled, and bars that are not.
			running := s.Boxes(t, ".chart .bar.running")
			require.NotEmpty(t, running)
			if v.Width == 0 {
				blue := func(r, g, b uint8) bool { return b > 120 && int(b) > int(r)+40 }
				assert.Greater(t, browsertest.Share(img, running[0], blue), 0.8, "a life is drawn as a bar")
				ground := func(r, g, b uint8) bool {
					return (r > 235 && g > 235 && b > 235) != v.Dark && (r < 40 && g < 45 && b < 50) == v.Dark
				}
				assert.Greater(t, browsertest.Share(img, browsertest.Box{X: 1, Y: 1, Width: 15, Height: 400}, ground), 0.99, "the ground is as light or as dark as asked for")
			}
			assert.LessOrEqual(t, browsertest.Eval[float64](t, s, "document.documentElement.scrollWidth - innerWidth"), 0.0, "nothing is wider than the window but what scrolls by itself")
			assert.Empty(t, faint(t, s), "text can be read on its ground")
		})
	}
}

// faint returns every text whose contrast with its ground is less than 4.5, as WCAG has it.
func faint(t *testing.T, s *browsertest.Sight) []string {
	t.Helper()
	return browsertest.Eval[[]string](t, s, browsertest.Faint)
}

func TestAnEmptyPageSaysSo(t *testing.T) {
	r, err := report.Build(t.Context(), report.Config{Fleet: "ci"})
	require.NoError(t, err)
	s := browsertest.Open(t, file(t, r), browsertest.View{})
	s.Picture(t, "report-empty")
	assert.Empty(t, s.Complaints())
	assert.Contains(t, s.Text(t, "body"), "None in this time, as far as is known.")
	assert.Contains(t, s.Text(t, "body"), "No account was looked at")
}
