package emulate_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/cmd/sandglass/internal/browsertest"
	"github.com/sandglass-dev/sandglass/cmd/sandglass/internal/emulate"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// busy has a service with a life of each kind.
func busy(t *testing.T) (s *emulate.Server, p sandbox.Provider) {
	t.Helper()
	s = start(t, "e2b")
	p = provider(t, s, "e2b")
	create := func(nonce string, window time.Duration, task string) sandbox.Info {
		info, err := p.Create(t.Context(), order(nonce, window, map[string]string{"task": task}))
		require.NoError(t, err)
		return info
	}
	beats := create("aaaaaaaaaaaaaaaa", 3*time.Minute, "fix-tests")
	create("bbbbbbbbbbbbbbbb", 2*time.Minute, `"><script>alert(1)</script>`)
	create("cccccccccccccccc", time.Minute, "docs")
	for range 3 {
		s.State().Advance(40 * time.Second)
		_, err := p.Extend(t.Context(), beats, 3*time.Minute)
		require.NoError(t, err)
	}
	deleted := create("dddddddddddddddd", 3*time.Minute, "lint")
	asleep := create("eeeeeeeeeeeeeeee", time.Hour, "paused")
	s.State().Advance(20 * time.Second)
	require.NoError(t, p.Delete(t.Context(), deleted.ID))
	_, _ = p.Get(t.Context(), "i0nosuchsandbox00000")
	for _, r := range s.State().All() {
		if r.Tags["task"] == "paused" {
			s.State().Pause(r.ID)
		}
	}
	s.State().Advance(15 * time.Second)
	require.Len(t, s.Left(), 2, "the paused one %s and the one that beats", asleep.ID)
	return s, p
}

func TestThePageShowsWhatAPersonWantsToSee(t *testing.T) {
	s, _ := busy(t)
	for name, v := range map[string]browsertest.View{
		"emulate":        {},
		"emulate-dark":   {Dark: true},
		"emulate-narrow": {Width: 500, Height: 900},
	} {
		t.Run(name, func(t *testing.T) {
			b := browsertest.Open(t, s.Page(), v)
			img := b.Picture(t, name)
			assert.Empty(t, b.Complaints())
			for _, asked := range b.Asked() {
				assert.True(t, strings.HasPrefix(asked, s.URL()+"/"), "it asks for %s", asked)
			}
			shown := b.Text(t, "body")
			for _, want := range []string{
				"E2B, emulated", "gone, ended by its lease", "gone, ended by request", "dormant (paused), no lease ends it", "task=fix-tests",
				`task="><script>alert(1)</script>`, "DELETE", "/v2/sandboxes", "404",
			} {
				assert.Contains(t, strings.Join(strings.Fields(shown), " "), want)
			}
			assert.NotContains(t, browsertest.Eval[string](t, b, "document.documentElement.outerHTML"), "e2b_", "no key is in it")
			assert.Equal(t, "1", b.Text(t, "#running"))
			assert.Equal(t, "1", b.Text(t, "#kept"))
			assert.Equal(t, "3", b.Text(t, "#gone"))
			assert.Equal(t, "Pause refreshing", b.Text(t, "#pause"))

			require.Len(t, b.Boxes(t, ".chart .row"), 5)
			running, lease, now := b.Boxes(t, ".chart .bar.running"), b.Boxes(t, ".chart .bar.lease"), b.Boxes(t, ".chart line.now")
			require.Len(t, running, 5)
			require.Len(t, lease, 2, "of the one that runs and the one that was deleted before its lease ended")
			require.Len(t, now, 1)
			assert.InDelta(t, now[0].X, lease[1].X, 3, "what is left of the lease begins now")
			assert.InDelta(t, now[0].X, running[4].X+running[4].Width, 3, "and there the life ends as far as it has come")
			assert.InDelta(t, 0.5, running[2].Width/running[3].Width, 0.03, "one minute is half as long as two")
			if v.Width == 0 {
				blue := func(r, g, b uint8) bool { return b > 120 && int(b) > int(r)+40 }
				assert.Greater(t, browsertest.Share(img, running[4], blue), 0.8, "a life is drawn as a bar")
				half := browsertest.Share(img, lease[1], blue)
				assert.Greater(t, half, 0.1, "what is left is hatched")
				assert.Less(t, half, 0.9)
				dark := func(r, g, b uint8) bool { return int(r)+int(g)+int(b) < 3*45 }
				ground := browsertest.Share(img, browsertest.Box{X: 1, Y: 1, Width: 15, Height: 600}, dark)
				assert.Equal(t, v.Dark, ground > 0.99, "the ground is as dark as asked for")
			}
			assert.LessOrEqual(t, browsertest.Eval[float64](t, b, "document.documentElement.scrollWidth - innerWidth"), 0.0, "nothing is wider than the window but what scrolls by itself")
			assert.Empty(t, browsertest.Eval[[]string](t, b, browsertest.Faint), "text can be read on its ground")
		})
	}
}

func TestThePageRenewsItself(t *testing.T) {
	s, p := busy(t)
	b := browsertest.Open(t, s.Page(), browsertest.View{})
	_, err := p.Create(t.Context(), order("ffffffffffffffff", time.Minute, map[string]string{"task": "late"}))
	require.NoError(t, err)
	b.Wait(t, `document.querySelector('#running').innerText === '2'`)
	assert.Contains(t, b.Text(t, "main"), "task=late")
	assert.True(t, browsertest.Eval[bool](t, b, `document.querySelector('#lost').hidden`))
	assert.Empty(t, b.Complaints())

	browsertest.Eval[bool](t, b, `(document.querySelector('#pause').click(), true)`)
	assert.Equal(t, "Go on refreshing", b.Text(t, "#pause"))
	browsertest.Eval[bool](t, b, `(document.querySelector('#pause').click(), true)`)
	s.Close()
	b.Wait(t, `!document.querySelector('#lost').hidden`)
	assert.Contains(t, b.Text(t, "#lost"), "what you see is old")
}

func TestThePageWorksWithoutScripts(t *testing.T) {
	s, _ := busy(t)
	b := browsertest.Open(t, s.Page(), browsertest.View{NoScript: true})
	assert.Empty(t, b.Complaints())
	b.Picture(t, "emulate-plain")
	status, body, _ := get(t, s.Page(), nil)
	assert.Equal(t, 200, status)
	assert.Contains(t, body, "task=fix-tests")
	assert.Contains(t, body, `<a href="">Refresh</a>`)
}

func TestAnEmptyServiceSaysWhatToDo(t *testing.T) {
	for _, service := range emulate.Services() {
		t.Run(service, func(t *testing.T) {
			s := start(t, service)
			_, body, _ := get(t, s.Page(), nil)
			assert.Contains(t, body, "No sandbox has been made yet.")
			assert.NoError(t, context.Cause(t.Context()))
		})
	}
}
