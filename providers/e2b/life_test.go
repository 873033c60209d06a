package e2b_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/internal/fake/e2bfake"
	"github.com/sandglass-dev/sandglass/internal/memnet"
	"github.com/sandglass-dev/sandglass/providers/e2b"
	"github.com/sandglass-dev/sandglass/sandbox"
)

func TestAnUndisturbedLifeIsSixRequestsAndTwoForEachBeat(t *testing.T) {
	in(t, func(t *testing.T) {
		w := newWorld(t)
		life := func(long time.Duration) (kinds []string) {
			w.fake.ForgetRequests()
			require.NoError(t, w.manager().WithSandbox(t.Context(), func(context.Context, sandbox.Sandbox) error {
				time.Sleep(long)
				return nil
			}))
			for _, r := range w.requests() {
				kind, _, _ := strings.Cut(r, "i0sandbx") // which ids begin with
				kinds = append(kinds, kind)
			}
			return kinds
		}
		const look, list = "GET /sandboxes/", "GET /v2/sandboxes"
		assert.Equal(t, []string{"POST /v2/sandboxes", look, "DELETE /sandboxes/", look, list, list}, life(30*time.Second))

		beats := 0
		for _, r := range life(time.Hour - time.Minute) {
			if r == "POST /sandboxes/" {
				beats++
			}
		}
		all := len(w.requests())
		assert.InDelta(t, 59, beats, 8, "one a minute, a little early")
		assert.Equal(t, 6+2*beats, all)
	})
}

// At any instant, the service's own end is no more than a window ahead of its clock.
func TestTheDeadlineIsNeverMoreThanAWindowAhead(t *testing.T) {
	in(t, func(t *testing.T) {
		const window = 3 * time.Minute
		w := newWorld(t)
		looks := 0
		require.NoError(t, w.manager().WithSandbox(t.Context(), func(ctx context.Context, sb sandbox.Sandbox) error {
			for end := time.Now().Add(10*time.Hour - time.Minute); time.Now().Before(end) && ctx.Err() == nil; looks++ {
				r, ok := w.fake.Sandbox(sb.ID())
				require.True(t, ok)
				ahead := r.Deadline.Sub(w.fake.Service().Now())
				require.LessOrEqual(t, ahead, window)
				require.Positive(t, ahead)
				time.Sleep(time.Second + rand.N(10*time.Second))
			}
			return ctx.Err()
		}, func(s *sandbox.Scope) { s.MaxLifetime = 10 * time.Hour }))
		assert.Greater(t, looks, 5000)
	})
}

// The owner's death is that nothing of it arrives any more, and what is under way arrives late.
func TestAfterItsOwnersDeathASandboxLivesNoLongerThanAWindow(t *testing.T) {
	for range 12 {
		in(t, func(t *testing.T) {
			w := newWorld(t)
			const window = 3 * time.Minute
			late := rand.N(20 * time.Second)
			w.net.Break(memnet.Fault{Kind: memnet.LateRequest, Delay: late, Skip: 1 + rand.IntN(50), Times: 1})
			dies := rand.N(9 * time.Hour)
			ctx, cancel := context.WithCancel(t.Context())
			over := make(chan struct{})
			go func() {
				defer close(over)
				quiet := func(c *sandbox.Config) { c.Observers = []sandbox.Observer{func(context.Context, sandbox.Event) {}} }
				_ = w.manager(quiet).WithSandbox(ctx, func(ctx context.Context, _ sandbox.Sandbox) error {
					<-ctx.Done()
					return nil
				}, func(s *sandbox.Scope) { s.MaxLifetime = 10 * time.Hour })
			}()
			time.Sleep(dies)
			w.partition()
			died := time.Now()
			for len(w.alive()) > 0 {
				time.Sleep(time.Second)
				if time.Since(died) > time.Hour {
					t.Fatal("it lives on")
				}
			}
			assert.LessOrEqual(t, time.Since(died), late+window+w.p.Capabilities().Lateness, "it died at %v", dies)
			cancel()
			<-over
		})
	}
}

func TestWhatIsWrongWithAnAccountIsATypedErrorThatSaysWhatToDo(t *testing.T) {
	nothing := func(context.Context, sandbox.Sandbox) error { return nil }
	for name, tt := range map[string]struct {
		setting setting
		scope   func(*sandbox.Scope)
		kind    error
		says    string
		check   error // what Check says; nil: it cannot know
	}{
		"a bad key": {
			setting: func(_ *e2bfake.Options, c *e2b.Config) { c.APIKey = "e2b_ffffffffffffffffffff" },
			kind:    sandbox.ErrUnauthenticated, says: "401", check: sandbox.ErrUnauthenticated,
		},
		"a key of another service": {
			setting: func(_ *e2bfake.Options, c *e2b.Config) { c.APIKey = "dtn_ffffffffffffffffffff" },
			kind:    sandbox.ErrUnauthenticated, says: "key", check: sandbox.ErrUnauthenticated,
		},
		"a blocked team": {
			setting: func(o *e2bfake.Options, _ *e2b.Config) { o.Quirks.Blocked = true },
			kind:    sandbox.ErrPermission, says: "may not create",
		},
		"another path of the service": {
			setting: func(_ *e2bfake.Options, c *e2b.Config) { c.APIURL = "http://api.e2b.test/v3" },
			kind:    sandbox.ErrInvalid, says: "404", check: sandbox.ErrInvalid,
		},
		"an unknown template": {
			scope: func(s *sandbox.Scope) { s.Spec.Image = "no-such-template" },
			kind:  sandbox.ErrInvalid, says: "no template no-such-template",
		},
		"the other dialect": {
			setting: func(o *e2bfake.Options, _ *e2b.Config) { o.Quirks.NoV2 = true },
			kind:    sandbox.ErrInvalid, says: "Config.Dialect",
		},
		"the quota is reached": {
			setting: func(o *e2bfake.Options, _ *e2b.Config) { o.Behaviour.MaxLive = 1 },
			kind:    sandbox.ErrQuota, says: "MaxLive",
		},
		"a plan below the window": {
			setting: func(o *e2bfake.Options, _ *e2b.Config) { o.Behaviour.PlanLifetime = time.Minute },
			kind:    sandbox.ErrInvalid, says: "400",
		},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				if tt.setting == nil {
					tt.setting = func(*e2bfake.Options, *e2b.Config) {}
				}
				if tt.scope == nil {
					tt.scope = func(*sandbox.Scope) {}
				}
				w := newWorld(t, tt.setting)
				if name == "the quota is reached" {
					_, err := w.p.Create(t.Context(), sandbox.CreateRequest{Mark: mark("other"), Window: time.Hour})
					require.NoError(t, err)
				}
				before := len(w.alive())
				_, err := w.p.Check(t.Context())
				if tt.check != nil {
					require.ErrorIs(t, err, tt.check)
				} else {
					require.NoError(t, err)
				}
				err = w.manager().WithSandbox(t.Context(), nothing, tt.scope)
				require.ErrorIs(t, err, sandbox.ErrNotStarted)
				require.ErrorIs(t, err, tt.kind)
				assert.ErrorContains(t, err, tt.says)
				_, leaks := errors.AsType[*sandbox.LeakError](err)
				assert.False(t, leaks)
				assert.NotContains(t, err.Error(), "ffffffffff")
				assert.Len(t, w.alive(), before)
			})
		})
	}
}

// What answers in the service's place must not be believed.
func TestAnAnswerThatIsNotTheServicesOwnProvesNothing(t *testing.T) {
	for name, quirk := range map[string]func(*e2bfake.Quirks){
		"a web page with status 200":          func(q *e2bfake.Quirks) { q.HTML = true },
		"failures that nobody puts a name to": func(q *e2bfake.Quirks) { q.NakedErrors = true },
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				w := newWorld(t)
				gone := w.make(time.Minute)
				require.NoError(t, w.p.Delete(t.Context(), gone.ID))
				_, err := w.p.Get(t.Context(), gone.ID)
				require.ErrorIs(t, err, sandbox.ErrNotFound)
				alive := w.make(time.Hour)
				w.fake.Change(quirk)
				for _, id := range []string{gone.ID, alive.ID} {
					_, err := w.p.Get(t.Context(), id)
					if id == alive.ID && err == nil {
						continue
					}
					require.Error(t, err)
					assert.NotErrorIs(t, err, sandbox.ErrNotFound)
				}
				err = w.p.Delete(t.Context(), gone.ID)
				require.Error(t, err)
				assert.NotErrorIs(t, err, sandbox.ErrNotFound)
				if w.fake.Quirks().HTML {
					_, err = w.p.Check(t.Context())
					assert.ErrorContains(t, err, "is the base URL right")
					_, err = w.list(sandbox.Filter{})
					require.Error(t, err)
					_, err = w.p.Create(t.Context(), order(time.Minute))
					e, ok := errors.AsType[*sandbox.APIError](err)
					require.True(t, ok)
					assert.False(t, e.Refused, "who knows what was made")
					assert.Error(t, w.p.Delete(t.Context(), alive.ID), "200 is not how it answers a delete")
				}
			})
		})
	}
}

func TestExtendTellsWhatWasGrantedAndNotWhatWasAsked(t *testing.T) {
	in(t, func(t *testing.T) {
		w := newWorld(t, func(o *e2bfake.Options, _ *e2b.Config) { o.Behaviour.PlanLifetime = 10 * time.Minute })
		info := w.make(5 * time.Minute)
		time.Sleep(8 * time.Minute / 2)
		now, err := w.p.Extend(t.Context(), info, 9*time.Minute)
		require.NoError(t, err)
		assert.InDelta(t, 6*time.Minute, now.Left(), float64(time.Second), "cut by the plan, without a word")

		// The end may come nearer too.
		now, err = w.p.Extend(t.Context(), now, time.Minute)
		require.NoError(t, err)
		assert.InDelta(t, time.Minute, now.Left(), float64(time.Second))

		// A failure to read back is a failure: what was granted is not known.
		w.fault(sandbox.OpGet, fake.Fault{Err: status(500)})
		_, err = w.p.Extend(t.Context(), now, time.Minute)
		e, ok := errors.AsType[*sandbox.APIError](err)
		require.True(t, ok)
		assert.Equal(t, sandbox.OpExtend, e.Op)
	})
}

func TestARunAfterAResumeIsAnotherOne(t *testing.T) {
	in(t, func(t *testing.T) {
		w := newWorld(t)
		before := w.make(time.Minute)
		time.Sleep(10 * time.Second)
		sid := w.fake.ServiceID(before.ID)
		require.True(t, w.fake.Service().Pause(sid))
		require.True(t, w.fake.Service().Resume(sid))
		after, err := w.p.Get(t.Context(), before.ID)
		require.NoError(t, err)
		assert.Equal(t, sandbox.StateRunning, after.State)
		assert.NotEqual(t, before.Run, after.Run)
	})
}

func TestConfigFindsEveryFault(t *testing.T) {
	for name, cfg := range map[string]e2b.Config{
		"no key":                   {},
		"a key with a line":        {APIKey: "e2b_x\n"},
		"a domain with a path":     {APIKey: "e2b_x", Domain: "e2b.app/x"},
		"a URL of no host":         {APIKey: "e2b_x", APIURL: "api.e2b.app"},
		"a sandbox URL of no host": {APIKey: "e2b_x", SandboxURL: "x"},
		"an unknown dialect":       {APIKey: "e2b_x", Dialect: 7},
	} {
		_, err := e2b.New(cfg)
		assert.ErrorIs(t, err, sandbox.ErrInvalid, name)
	}
	_, err := e2b.New(e2b.Config{APIURL: "x", Dialect: -1})
	for _, what := range []string{"API key", "base URL", "dialect"} {
		assert.ErrorContains(t, err, what)
	}
}

func TestTheNameTellsAccountsApartAndDoesNotTellTheKey(t *testing.T) {
	names := map[string]bool{}
	for _, cfg := range []e2b.Config{
		{APIKey: "e2b_secret1"}, {APIKey: "e2b_secret2"}, {APIKey: "e2b_secret1", Domain: "e2b.dev"}, {APIKey: "e2b_secret1", Name: "e2b/blue"},
	} {
		p, err := e2b.New(cfg)
		require.NoError(t, err)
		names[p.Name()] = true
		assert.NotContains(t, p.Name(), "secret")
		assert.NotContains(t, fmt.Sprintf("%v", p.Name()), cfg.APIKey)
	}
	assert.Len(t, names, 4)
	assert.True(t, names["e2b/blue"])
}

func TestTheDialectFollowsTheDomainUnlessItIsGiven(t *testing.T) {
	in(t, func(t *testing.T) {
		for _, tt := range []struct {
			domain  string
			dialect e2b.Dialect
			path    string
		}{
			{"", e2b.DialectAuto, "/v2/sandboxes"},
			{"e2b.dev", e2b.DialectAuto, "/v2/sandboxes"},
			{"e2b.test", e2b.DialectAuto, "/sandboxes"},
			{"e2b.test", e2b.DialectV2, "/v2/sandboxes"},
			{"", e2b.DialectV1, "/sandboxes"},
		} {
			w := newWorld(t, func(_ *e2bfake.Options, c *e2b.Config) { c.Domain, c.Dialect = tt.domain, tt.dialect })
			_, err := w.p.Create(t.Context(), order(time.Minute))
			require.NoError(t, err)
			assert.Equal(t, []string{"POST " + tt.path}, w.requests(), "domain %q, dialect %d", tt.domain, tt.dialect)
		}
	})
}

func TestAnEndThatCouldNotBeSetOnWhatRunsIsAConflict(t *testing.T) {
	p, err := e2b.New(e2b.Config{APIKey: "e2b_x", HTTP: httpOf(transport(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodPost {
			return answers(404, `{"code":404,"message":"m"}`).RoundTrip(r)
		}
		return answers(200, oneRunning).RoundTrip(r)
	}))})
	require.NoError(t, err)
	_, err = p.Extend(t.Context(), sandbox.Info{ID: "i1"}, time.Minute)
	assert.ErrorIs(t, err, sandbox.ErrConflict, "resumed in between, and its end is not the one asked for")
	assert.NotErrorIs(t, err, sandbox.ErrNotFound)
}

func TestShortenLeavesAloneWhatHasNoLease(t *testing.T) {
	in(t, func(t *testing.T) {
		w := newWorld(t)
		info := w.make(time.Minute)
		w.fake.Service().Pause(w.fake.ServiceID(info.ID))
		w.fake.ForgetRequests()
		assert.ErrorIs(t, w.p.Shorten(t.Context(), info.ID, time.Second), sandbox.ErrConflict)
		assert.Equal(t, []string{"GET /sandboxes/" + info.ID}, w.requests())
	})
}

func TestADeleteWaitsAsLongAsTheServiceDoes(t *testing.T) {
	in(t, func(t *testing.T) {
		w := newWorld(t)
		info := w.make(10 * time.Minute)
		w.fake.Pausing(info.ID, time.Minute)
		began := time.Now()
		require.NoError(t, w.p.Delete(t.Context(), info.ID))
		assert.GreaterOrEqual(t, time.Since(began), time.Minute)
		assert.Empty(t, w.alive())
	})
}
