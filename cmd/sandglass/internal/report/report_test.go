package report_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/cmd/sandglass/internal/history"
	"github.com/sandglass-dev/sandglass/cmd/sandglass/internal/report"
	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/journal"
	"github.com/sandglass-dev/sandglass/sandbox/leakcheck"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxtest"
	"github.com/sandglass-dev/sandglass/sandbox/sweep"
)

// A world is one account, its history, and a journal.
type world struct {
	t    testing.TB
	p    *sandboxtest.Provider
	path string
	file *history.File
	j    *journal.Journal
}

// within runs a test in a bubble, in a world of its own.
func within(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		f(t, w)
	})
}

func newWorld(t testing.TB) *world {
	t.Helper()
	dir := t.TempDir()
	w := &world{t: t, p: sandboxtest.New(sandbox.Capabilities{}), path: filepath.Join(dir, "history")}
	var err error
	w.file, err = history.Open(w.path, 0)
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "journal"), 0o700))
	w.j, err = journal.Open(filepath.Join(dir, "journal"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = w.j.Close() })
	return w
}

func (w *world) manager(j sandbox.Journal, change ...func(*sandbox.Config)) *sandbox.Manager {
	w.t.Helper()
	cfg := sandbox.Config{Fleet: "ci", Owner: "runner.1", Journal: j, Observers: []sandbox.Observer{w.file.Observer(history.Scope)}}
	for _, c := range change {
		c(&cfg)
	}
	m, err := sandbox.NewManager(w.p, cfg)
	require.NoError(w.t, err)
	return m
}

func (w *world) scope(d time.Duration, do func(sb sandbox.Sandbox), opts ...sandbox.Option) error {
	w.t.Helper()
	return w.manager(nil).WithSandbox(w.t.Context(), func(ctx context.Context, sb sandbox.Sandbox) error {
		if do != nil {
			do(sb)
		}
		time.Sleep(d)
		return context.Cause(ctx)
	}, opts...)
}

func mark(nonce string) sandbox.Mark {
	return sandbox.Mark{Fleet: "ci", Owner: "runner.2", Nonce: nonce, Created: time.Now().UTC().Truncate(time.Second), Lifetime: 70 * time.Minute}
}

// dies makes a sandbox as a process does that is killed after some beats, and leaves it to its lease.
func (w *world) dies(nonce string, beats int) sandbox.Info {
	w.t.Helper()
	tell := w.file.Observer(history.Scope)
	start := time.Now()
	info, err := w.p.Create(w.t.Context(), sandbox.CreateRequest{Mark: mark(nonce), Window: 3 * time.Minute, Tags: map[string]string{"task": "killed"}})
	require.NoError(w.t, err)
	info.Mark = mark(nonce)
	tell(w.t.Context(), sandbox.Event{Op: sandbox.OpCreate, Provider: w.p.Name(), Info: info, Start: start, Attempt: 1, Final: true})
	for range beats {
		time.Sleep(time.Minute)
		now, err := w.p.Extend(w.t.Context(), info, 3*time.Minute)
		require.NoError(w.t, err)
		now.Mark = info.Mark
		tell(w.t.Context(), sandbox.Event{Op: sandbox.OpExtend, Provider: w.p.Name(), Info: now, Start: time.Now(), Attempt: 1})
	}
	return info
}

func (w *world) sweep() {
	w.t.Helper()
	s, err := sweep.New(sweep.Config{Fleet: "ci", Providers: []sandbox.Provider{w.p}, Observers: []sandbox.Observer{w.file.Observer(history.Sweeper)}})
	require.NoError(w.t, err)
	_, err = s.Sweep(w.t.Context())
	require.NoError(w.t, err)
}

func (w *world) report(change ...func(*report.Config)) (report.Report, error) {
	w.t.Helper()
	cfg := report.Config{Fleet: "ci", Providers: []sandbox.Provider{w.p}, Journal: w.j, History: []string{w.path}}
	for _, c := range change {
		c(&cfg)
	}
	r, err := report.Build(w.t.Context(), cfg)
	require.NotEmpty(w.t, r.Sources)
	return r, err
}

// only returns the one life of a report.
func only(t testing.TB, r report.Report) report.Life {
	t.Helper()
	require.Len(t, r.Lives, 1)
	return r.Lives[0]
}

// spans holds a life to bounds of its hours.
func spans(t testing.TB, l report.Life, least, most time.Duration) {
	t.Helper()
	assert.LessOrEqual(t, l.Least, l.Most)
	assert.InDelta(t, least.Hours(), l.Least, 0.02)
	assert.InDelta(t, most.Hours(), l.Most, 0.02)
}

func TestWhoEndedASandboxIsTold(t *testing.T) {
	t.Run("its scope", func(t *testing.T) {
		within(t, func(t *testing.T, w *world) {
			require.NoError(t, w.scope(10*time.Minute, nil))
			time.Sleep(time.Hour)
			r, err := w.report()
			require.ErrorIs(t, err, leakcheck.ErrNoWitness)
			require.NotErrorIs(t, err, leakcheck.ErrLeak)
			l := only(t, r)
			assert.Equal(t, report.ByScope, l.End)
			spans(t, l, 10*time.Minute, 10*time.Minute)
		})
	})
	t.Run("its lease, when the owner was killed", func(t *testing.T) {
		within(t, func(t *testing.T, w *world) {
			w.dies("aaaaaaaaaaaaaaaa", 4)
			time.Sleep(time.Hour)
			l := only(t, first(w.report()))
			assert.Equal(t, report.ByLease, l.End)
			assert.Equal(t, "its lease, at the latest", l.End.Words())
			spans(t, l, 4*time.Minute, 7*time.Minute+history.Thin)
		})
	})
	t.Run("not its lease, while that still ran", func(t *testing.T) {
		within(t, func(t *testing.T, w *world) {
			info := w.dies("aaaaaaaaaaaaaaaa", 4)
			w.p.Kill(info.ID)
			l := only(t, first(w.report()))
			assert.Equal(t, report.Unknown, l.End)
			assert.Contains(t, l.Why, "keeps no history")
		})
	})
	t.Run("a service that took it while it was wanted is not its lease", func(t *testing.T) {
		within(t, func(t *testing.T, w *world) {
			_ = w.scope(30*time.Minute, func(sb sandbox.Sandbox) { w.p.Kill(sb.ID()) })
			l := only(t, first(w.report()))
			assert.Equal(t, report.Unknown, l.End)
			assert.Contains(t, l.Why, "while its owner wanted it")
		})
	})
	t.Run("the sweeper", func(t *testing.T) {
		within(t, func(t *testing.T, w *world) {
			info := w.dies("aaaaaaaaaaaaaaaa", 1)
			w.p.Pause(info.ID)
			time.Sleep(2 * time.Hour)
			w.sweep()
			l := only(t, first(w.report()))
			assert.Equal(t, report.BySweeper, l.End)
			spans(t, l, time.Minute, 2*time.Hour+time.Minute)
		})
	})
	t.Run("the journal's replay", func(t *testing.T) {
		within(t, func(t *testing.T, w *world) {
			w.p.Behave(func(b *sandboxtest.Behaviour) { b.Unenforced = true })
			info := w.dies("aaaaaaaaaaaaaaaa", 1)
			require.NoError(t, w.j.Put(t.Context(), sandbox.Entry{Provider: w.p.Name(), ID: info.ID, Mark: info.Mark}))
			require.NoError(t, w.j.Release(t.Context(), info.Mark.Nonce))
			require.NoError(t, w.manager(w.j).Replay(t.Context()))
			l := only(t, first(w.report()))
			assert.Equal(t, report.ByLease, l.End, "a replay waits for the lease, so that it cannot tell")
			assert.Contains(t, l.Why, "replay")
		})
	})
	t.Run("somebody's hand", func(t *testing.T) {
		within(t, func(t *testing.T, w *world) {
			info := w.dies("aaaaaaaaaaaaaaaa", 1)
			w.file.Ended(history.Hand, w.p.Name(), info, sandbox.Terminate(t.Context(), w.p, info.ID))
			assert.Equal(t, report.ByHand, only(t, first(w.report())).End)
		})
	})
	t.Run("nobody, while it lives", func(t *testing.T) {
		within(t, func(t *testing.T, w *world) {
			require.NoError(t, w.scope(10*time.Minute, func(sandbox.Sandbox) {
				time.Sleep(5 * time.Minute)
				r, err := w.report()
				require.NoError(t, err, "what the history knows and the account shows is a witness")
				l := only(t, r)
				assert.Equal(t, report.Alive, l.End)
				assert.False(t, l.Leak)
				assert.True(t, l.Ended.IsZero())
				assert.True(t, l.Until.After(time.Now()))
				spans(t, l, 5*time.Minute, 5*time.Minute)
			}))
		})
	})
	t.Run("nobody, where it was left for debugging", func(t *testing.T) {
		within(t, func(t *testing.T, w *world) {
			_ = w.manager(nil).WithSandbox(t.Context(), func(context.Context, sandbox.Sandbox) error { return errors.New("failed") },
				func(s *sandbox.Scope) { s.KeepOnError = 20 * time.Minute })
			r, _ := w.report()
			assert.Equal(t, report.Kept, only(t, r).End)
			assert.Zero(t, r.Leaks)
		})
	})
}

func first(r report.Report, _ error) report.Report { return r }

func TestWhatIsLeftIsALeak(t *testing.T) {
	t.Run("past its lease, which the service did not act on", func(t *testing.T) {
		within(t, func(t *testing.T, w *world) {
			w.p.Behave(func(b *sandboxtest.Behaviour) { b.Unenforced = true })
			info := w.dies("aaaaaaaaaaaaaaaa", 2)
			time.Sleep(time.Hour)
			before := len(w.p.Calls(sandbox.OpDelete, sandbox.OpExtend, sandbox.OpCreate))
			r, err := w.report()
			require.ErrorIs(t, err, leakcheck.ErrLeak)
			l := only(t, r)
			assert.True(t, l.Leak)
			assert.Equal(t, report.Left, l.End)
			assert.Equal(t, info.ID, l.ID)
			assert.Equal(t, 1, r.Leaks)
			assert.Len(t, w.p.Calls(sandbox.OpDelete, sandbox.OpExtend, sandbox.OpCreate), before, "a report changes nothing")
			spans(t, l, time.Hour+2*time.Minute, time.Hour+2*time.Minute)
		})
	})
	t.Run("a sandbox that no history knows", func(t *testing.T) {
		within(t, func(t *testing.T, w *world) {
			w.p.Behave(func(b *sandboxtest.Behaviour) { b.Unenforced = true })
			_, err := w.p.Create(t.Context(), sandbox.CreateRequest{Mark: mark("aaaaaaaaaaaaaaaa"), Window: 3 * time.Minute})
			require.NoError(t, err)
			time.Sleep(time.Hour)
			r, err := w.report()
			require.ErrorIs(t, err, leakcheck.ErrLeak)
			l := only(t, r)
			assert.Equal(t, "runner.2", l.Owner)
			spans(t, l, time.Hour, time.Hour)
		})
	})
	t.Run("what another leak check has left", func(t *testing.T) {
		within(t, func(t *testing.T, w *world) {
			w.p.Behave(func(b *sandboxtest.Behaviour) { b.Unenforced = true })
			canary := mark("aaaaaaaaaaaaaaaa")
			canary.Fleet = leakcheck.CanaryFleet
			info, err := w.p.Create(t.Context(), sandbox.CreateRequest{Mark: canary, Window: 3 * time.Minute})
			require.NoError(t, err)
			time.Sleep(time.Hour)
			r, err := w.report()
			require.ErrorIs(t, err, leakcheck.ErrLeak)
			l := only(t, r)
			assert.Equal(t, info.ID, l.ID)
			assert.Contains(t, l.Why, leakcheck.CanaryFleet)
		})
	})
	t.Run("one that was gone and is there again", func(t *testing.T) {
		within(t, func(t *testing.T, w *world) {
			w.p.Behave(func(b *sandboxtest.Behaviour) { b.ReviveAfter = time.Hour })
			w.p.Fault(sandbox.OpDelete, sandboxtest.Fault{Effect: sandboxtest.EffectRevive})
			require.NoError(t, w.scope(time.Minute, nil))
			time.Sleep(61 * time.Minute)
			r, err := w.report()
			require.ErrorIs(t, err, leakcheck.ErrLeak)
			assert.Contains(t, only(t, r).Why, "is there again")
		})
	})
	t.Run("a failed delete in an account that was not looked at", func(t *testing.T) {
		within(t, func(t *testing.T, w *world) {
			w.p.Fault(sandbox.OpDelete, sandboxtest.Fault{Err: errors.New("no"), Times: -1})
			require.Error(t, w.scope(time.Minute, nil))
			r, err := w.report(func(c *report.Config) { c.Providers = nil })
			require.ErrorIs(t, err, leakcheck.ErrLeak)
			assert.Contains(t, only(t, r).Why, "its delete failed")
		})
	})
}

func TestWhereTheTruthIsUnknownThatIsSaid(t *testing.T) {
	t.Run("the account was not looked at", func(t *testing.T) {
		within(t, func(t *testing.T, w *world) {
			w.dies("aaaaaaaaaaaaaaaa", 1)
			time.Sleep(time.Hour)
			r, err := w.report(func(c *report.Config) { c.Providers = nil })
			require.NoError(t, err)
			l := only(t, r)
			assert.Equal(t, report.Unknown, l.End)
			assert.True(t, l.Ended.IsZero())
			spans(t, l, time.Minute, 61*time.Minute)
		})
	})
	t.Run("the account could not be seen", func(t *testing.T) {
		within(t, func(t *testing.T, w *world) {
			w.dies("aaaaaaaaaaaaaaaa", 1)
			time.Sleep(time.Hour)
			w.p.Fault(sandbox.OpList, sandboxtest.Fault{Err: &sandbox.APIError{Status: 401, Kind: sandbox.ErrUnauthenticated}, Times: -1})
			r, err := w.report()
			require.ErrorIs(t, err, leakcheck.ErrBlind)
			l := only(t, r)
			assert.Equal(t, report.Unknown, l.End)
			assert.Contains(t, l.Why, "could not be seen")
			assert.NotEmpty(t, r.Sources[0].Trouble)
		})
	})
	t.Run("a create was not answered", func(t *testing.T) {
		within(t, func(t *testing.T, w *world) {
			require.NoError(t, w.j.Put(t.Context(), sandbox.Entry{Provider: w.p.Name(), Mark: mark("aaaaaaaaaaaaaaaa")}))
			require.NoError(t, w.j.Release(t.Context(), "aaaaaaaaaaaaaaaa"))
			l := only(t, first(w.report()))
			assert.Equal(t, report.Unknown, l.End)
			assert.Contains(t, l.Why, "not answered")
		})
	})
	t.Run("a history cannot be read", func(t *testing.T) {
		within(t, func(t *testing.T, w *world) {
			r, err := w.report(func(c *report.Config) { c.History = append(c.History, w.path+".none") })
			require.ErrorIs(t, err, leakcheck.ErrBlind)
			assert.Empty(t, r.Lives)
		})
	})
	t.Run("without a history the beginning is the service's word", func(t *testing.T) {
		within(t, func(t *testing.T, w *world) {
			require.NoError(t, w.scope(10*time.Minute, func(sandbox.Sandbox) {
				r, err := w.report(func(c *report.Config) { c.History = nil })
				require.ErrorIs(t, err, leakcheck.ErrNoWitness)
				assert.Equal(t, report.Alive, only(t, r).End)
			}))
		})
	})
}

func TestOnlyTheFleetAndTheTimeThatWereAskedForCount(t *testing.T) {
	within(t, func(t *testing.T, w *world) {
		require.NoError(t, w.scope(time.Hour, nil, func(s *sandbox.Scope) { s.MaxLifetime = 2 * time.Hour }))
		other := w.manager(nil, func(c *sandbox.Config) { c.Fleet = "other" })
		require.NoError(t, other.WithSandbox(t.Context(), func(context.Context, sandbox.Sandbox) error { return nil }))
		w.file.Ended(history.Hand, w.p.Name(), sandbox.Info{ID: "whose"}, nil)
		require.Len(t, first(w.report()).Lives, 1)
		time.Sleep(2 * time.Hour)
		r, _ := w.report(func(c *report.Config) { c.Since = 150 * time.Minute })
		spans(t, only(t, r), 30*time.Minute, 30*time.Minute)
		r, _ = w.report(func(c *report.Config) { c.Since = time.Hour })
		assert.Empty(t, r.Lives)
	})
	_, err := report.Build(t.Context(), report.Config{})
	require.ErrorIs(t, err, sandbox.ErrInvalid)
}

func TestAReportIsJSONAndAPageThatStandsAlone(t *testing.T) {
	within(t, func(t *testing.T, w *world) {
		require.NoError(t, w.scope(time.Minute, nil, func(s *sandbox.Scope) { s.Tags["task"] = `"><script>alert(1)</script>` }))
		r, _ := w.report()
		b, err := json.Marshal(r)
		require.NoError(t, err)
		var again report.Report
		require.NoError(t, json.Unmarshal(b, &again))
		assert.Equal(t, r.Lives[0].ID, again.Lives[0].ID)
		assert.Equal(t, r.Ends, again.Ends)

		var page bytes.Buffer
		require.NoError(t, r.WriteHTML(&page))
		assert.NotContains(t, page.String(), "<script")
		assert.Empty(t, strings.Count(page.String(), "http://")+strings.Count(page.String(), "https://"), "it names no other place")
		assert.Contains(t, page.String(), "default-src &#39;none&#39;")
		assert.Contains(t, page.String(), r.Lives[0].ID)
	})
}
