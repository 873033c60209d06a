// Package browsertest opens pages in a headless Chromium, for tests that hold what a person gets to see.
package browsertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/png"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// A View is how a page is looked at. The zero View is a usual window by daylight.
type View struct {
	Width, Height int64 // default: 1280 by 900
	Dark          bool
	NoScript      bool
}

// A Sight is a page that is open.
type Sight struct {
	ctx context.Context

	mu         sync.Mutex
	complaints []string
	asked      []string
}

// Open opens the page at an address. Without a browser the test is skipped, or fails if the environment has
// SANDGLASS_NO_SKIP=1. The browser ends with the test.
func Open(t testing.TB, url string, v View) *Sight {
	t.Helper()
	program := browser(t)
	if v.Width == 0 {
		v.Width, v.Height = 1280, 900
	}
	opts := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]),
		chromedp.ExecPath(program), chromedp.DisableGPU, chromedp.WindowSize(int(v.Width), int(v.Height)),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("no-proxy-server", true),
	)
	if os.Getuid() == 0 { // its own sandbox refuses root
		opts = append(opts, chromedp.NoSandbox)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx, opts...)
	t.Cleanup(cancel)
	ctx, _ = chromedp.NewContext(ctx)
	t.Cleanup(func() { _ = chromedp.Cancel(ctx) }) // waits for the browser's end
	s := &Sight{ctx: ctx}
	scheme := "light"
	if v.Dark {
		scheme = "dark"
	}
	must(t, chromedp.Listen(ctx, s.hear))
	must(t, chromedp.Do(ctx, chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
		_, err1 := cdp.Call(ctx, tab, network.Enable, network.EnableParams{})
		_, err2 := cdp.Call(ctx, tab, log.Enable, cdp.Empty{})
		_, err3 := cdp.Call(ctx, tab, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		})
		_, err4 := cdp.Call(ctx, tab, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: v.NoScript})
		return errors.Join(err1, err2, err3, err4)
	}), chromedp.Navigate(url)))
	return s
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("browser: %v", err)
	}
}

// browser returns the program to run.
func browser(t testing.TB) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "headless-shell"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	const none = "no Chromium in the PATH: install the package chromium"
	if os.Getenv("SANDGLASS_NO_SKIP") == "1" {
		t.Fatal(none)
	}
	t.Skip(none)
	return ""
}

func (s *Sight) hear(event any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		s.asked = append(s.asked, e.Request.URL)
	case *log.EventEntryAdded:
		s.complaints = append(s.complaints, fmt.Sprintf("%s %s: %s", e.Entry.Source, e.Entry.Level, e.Entry.Text))
	case *runtime.EventConsoleAPICalled:
		for _, a := range e.Args {
			s.complaints = append(s.complaints, fmt.Sprintf("console %s: %s", e.Type, a.Value))
		}
	case *runtime.EventExceptionThrown:
		s.complaints = append(s.complaints, "thrown: "+e.ExceptionDetails.Text)
	}
}

// Complaints are all that the console has to say so far, and what was thrown.
func (s *Sight) Complaints() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.complaints)
}

// Asked are the addresses that the page has asked for so far.
func (s *Sight) Asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

// Eval returns what an expression comes to in the page.
func Eval[T any](t testing.TB, s *Sight, expression string) T {
	t.Helper()
	v, err := chromedp.Run(s.ctx, chromedp.Evaluate[T](expression))
	must(t, err)
	return v
}

// Wait waits until an expression is true in the page.
func (s *Sight) Wait(t testing.TB, expression string) {
	t.Helper()
	_, err := chromedp.Run(s.ctx, chromedp.Poll[bool](expression))
	must(t, err)
}

// Text is what is shown of the first element that a selector finds.
func (s *Sight) Text(t testing.TB, selector string) string {
	t.Helper()
	return Eval[string](t, s, fmt.Sprintf("document.querySelector(%q).innerText", selector))
}

// A Box is where something is drawn, in pixels from the page's beginning.
type Box struct{ X, Y, Width, Height float64 }

// Boxes are where all that a selector finds is drawn.
func (s *Sight) Boxes(t testing.TB, selector string) []Box {
	t.Helper()
	return Eval[[]Box](t, s, fmt.Sprintf(`[...document.querySelectorAll(%q)].map((e) => { const b = e.getBoundingClientRect();
		return {x: b.x + scrollX, y: b.y + scrollY, width: b.width, height: b.height} })`, selector))
}

// Picture is the whole page as it is drawn. With SANDGLASS_PICTURES, a folder, it is left there for people too.
func (s *Sight) Picture(t testing.TB, name string) image.Image {
	t.Helper()
	b, err := chromedp.Run(s.ctx, chromedp.FullScreenshot(100))
	must(t, err)
	img, err := png.Decode(bytes.NewReader(b))
	if err != nil {
		t.Fatalf("browser: picture of type %s: %v", http.DetectContentType(b), err)
	}
	if dir := os.Getenv("SANDGLASS_PICTURES"); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, name+".png"), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return img
}

// Share is which part of a box's pixels has a colour that is, for a test with tolerance, as want says.
func Share(img image.Image, b Box, want func(r, g, b uint8) bool) float64 {
	hit, all := 0, 0
	for y := int(b.Y); y < int(b.Y+b.Height); y++ {
		for x := int(b.X); x < int(b.X+b.Width); x++ {
			r, g, b, _ := img.At(x, y).RGBA()
			if all++; want(uint8(r>>8), uint8(g>>8), uint8(b>>8)) {
				hit++
			}
		}
	}
	if all == 0 {
		return 0
	}
	return float64(hit) / float64(all)
}

// Faint is an expression for every text of a page that is shown with less contrast to its ground than the 4.5 to 1 that
// WCAG asks for.
const Faint = `(() => {
  const parse = (c) => { const n = c.match(/[\d.]+/g).map(Number); return n.length > 3 ? n : [...n, 1] }
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255).map((v) => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0)
  const ground = (e) => {
    for (; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor)
      if (c[3] === 1) return c
    }
    return [255, 255, 255]
  }
  const faint = []
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)
  for (let n = walk.nextNode(); n; n = walk.nextNode()) {
    const e = n.parentElement
    if (!n.data.trim() || ['TITLE', 'STYLE', 'SCRIPT'].includes(e.tagName.toUpperCase()) || !e.getClientRects().length) continue
    const style = getComputedStyle(e)
    const [a, b] = [light(parse(e.closest('svg') ? style.fill : style.color)), light(ground(e))].sort((x, y) => y - x)
    if ((a + .05) / (b + .05) < 4.5) faint.push(n.data.trim() + ': ' + ((a + .05) / (b + .05)).toFixed(2))
  }
  return faint
})()`
