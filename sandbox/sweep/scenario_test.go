package sweep_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxtest"
	"github.com/sandglass-dev/sandglass/sandbox/sweep"
)

// life returns a Liveness that says the same of everybody.
func life(l sweep.Life, err error) sweep.Liveness {
	return func(context.Context, sandbox.Info) (sweep.Life, error) { return l, err }
}

// nameless is a service on which several sandboxes may carry one mark, and whose deletes are proven by a list, too.
func nameless(c *sandbox.Capabilities) { c.CreateOnce, c.GoneByList = false, true }

func TestNewReportsAllFaultsAtOnce(t *testing.T) {
	p := sandboxtest.New(sandbox.Capabilities{})
	_, err := sweep.New(sweep.Config{
		Fleet: "no fleet", Providers: []sandbox.Provider{p, p, nil}, ProtectTags: map[string]string{"": "x"},
		Grace: -1, OlderThan: -1, ItemTimeout: -1, ListTimeout: -1, MaxDeletes: -1, Parallel: -1, EndDead: true,
	})
	require.ErrorIs(t, err, sandbox.ErrInvalid)
	for _, word := range []string{"fleet", `named "memory"`, "nil", "tag", "Grace", "OlderThan", "ItemTimeout", "ListTimeout", "MaxDeletes", "Parallel", "EndDead"} {
		assert.ErrorContains(t, err, word)
	}
	_, err = sweep.New(sweep.Config{Fleet: "ci"})
	require.ErrorIs(t, err, sandbox.ErrInvalid)
	_, err = sweep.New(sweep.Config{Fleet: "ci", Providers: []sandbox.Provider{p}})
	require.NoError(t, err)
}

func TestH01AListThatFlapsIsNoHiddenSandbox(t *testing.T) {
	inWorld(t, func(c *sandbox.Capabilities) { c.ReadLag = 3 * time.Second }, func(w *world) {
		w.Behave(func(b *sandboxtest.Behaviour) {
			b.ListShowsDeleted, b.ListFlaps, b.GetShowsDeleted = 0, 3*time.Second, 2*time.Second
		})
		ids := w.make(5, window(time.Hour))
		time.Sleep(time.Minute)
		s := w.sweeper()
		_, err := s.Sweep(w.t.Context())
		require.NoError(t, err)
		for _, id := range ids {
			require.True(t, w.Kill(id))
		}
		for range 4 {
			_, err = s.Sweep(w.t.Context())
			require.NoError(t, err)
		}
	})
}

// faultyLists are lists that do not show everything, each with what it does to the service.
var faultyLists = map[string]func(*world){
	"H03 repeats a cursor": func(w *world) { w.Behave(func(b *sandboxtest.Behaviour) { b.RepeatCursor = true }) },
	"H11 fails":            func(w *world) { w.Fault(sandbox.OpList, sandboxtest.Fault{Err: sandboxtest.Status(500), Times: -1}) },
	"H12 fails on page 2":  func(w *world) { w.Fault(sandbox.OpList, pageTwo()...) },
	"H05 hides paused ones": func(w *world) {
		w.Behave(func(b *sandboxtest.Behaviour) { b.ListHides = []sandbox.State{sandbox.StateDormant} })
	},
	"is empty in an outage":  func(w *world) { w.Fault(sandbox.OpList, sandboxtest.Fault{Effect: sandboxtest.EffectNone, Times: -1}) },
	"never ends":             func(w *world) { w.Fault(sandbox.OpList, sandboxtest.Fault{Hang: true, Times: -1}) },
	"is deaf and never ends": func(w *world) { w.Fault(sandbox.OpList, sandboxtest.Fault{Hang: true, Deaf: true, Times: -1}) },
	"panics":                 func(w *world) { w.Fault(sandbox.OpList, sandboxtest.Fault{Panic: "boom", Times: -1}) },
}

// pageTwo lets the first page of each of three tries through.
func pageTwo() (faults []sandboxtest.Fault) {
	for range 3 {
		faults = append(faults, sandboxtest.Fault{Err: sandboxtest.Status(503), Skip: 1})
	}
	return faults
}

func TestAListThatDoesNotShowEverythingFailsThePass(t *testing.T) {
	for name, spoil := range faultyLists {
		for _, memory := range []string{"known from an earlier pass", "known to the user"} {
			t.Run(name+", "+memory, func(t *testing.T) {
				inWorld(t, nil, func(w *world) {
					w.Behave(func(b *sandboxtest.Behaviour) { b.PageSize = 10 })
					ids := w.make(25, window(time.Hour))
					w.pause(ids[20:]...)
					time.Sleep(time.Minute)
					other := &world{t: t, Provider: sandboxtest.Kind{Name: "other", Capabilities: sandboxtest.Everything()}.New(), n: 1000}
					other.Behave(func(b *sandboxtest.Behaviour) { b.Unenforced = true })
					s := w.sweeper(func(c *sweep.Config) {
						c.Liveness, c.Providers = life(sweep.Alive, nil), append(c.Providers, other.account())
						if memory == "known to the user" {
							c.Known = func(_ context.Context, provider string) ([]string, error) {
								if provider == w.Name() {
									return ids, nil
								}
								return nil, nil
							}
						}
					})
					if memory != "known to the user" {
						_, err := s.Sweep(w.t.Context())
						require.NoError(t, err)
					}
					dead := other.make(5)
					time.Sleep(10 * time.Minute)
					spoil(w)
					r, err := s.Sweep(w.t.Context())
					require.ErrorIs(t, err, sweep.ErrBlind)
					assert.NotErrorIs(t, err, sweep.ErrLeft)
					assert.ErrorContains(t, err, w.Name())
					assert.NotEmpty(t, r.Accounts[0].Error)
					assert.Empty(t, r.Accounts[1].Error)
					assert.Empty(t, other.there(dead...), "the other account goes on")
					assert.Len(t, w.there(ids...), 25)
					w.Heal()
				})
			})
		}
	}
}

func TestAListThatFailsOnceIsAskedAgain(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		ids := w.make(5)
		time.Sleep(10 * time.Minute)
		w.Fault(sandbox.OpList, sandboxtest.Fault{Err: sandboxtest.Status(503)})
		_, err := w.sweeper().Sweep(w.t.Context())
		require.NoError(t, err)
		assert.Empty(t, w.there(ids...))
	})
}

func TestH03RowsThatComeAgainAndAgainAreAnError(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.make(5, window(time.Hour))
		w.lists = 1
		_, err := w.sweeper().Sweep(w.t.Context())
		require.NoError(t, err, "twice can be a page that was turned while rows moved")
		w.lists = 1_000_000
		_, err = w.sweeper().Sweep(w.t.Context())
		require.ErrorIs(t, err, sweep.ErrBlind)
	})
}

func TestALookThatFailsIsTriedAgain(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		ids := w.make(1)
		time.Sleep(10 * time.Minute)
		w.Fault(sandbox.OpGet, sandboxtest.Fault{Err: sandboxtest.Status(503), Times: 2})
		_, err := w.sweeper().Sweep(w.t.Context())
		require.NoError(t, err)
		assert.Empty(t, w.there(ids...))
	})
	t.Run("and where it goes on failing nothing is deleted", func(t *testing.T) {
		inWorld(t, nil, func(w *world) {
			ids := w.make(1)
			time.Sleep(10 * time.Minute)
			w.Fault(sandbox.OpGet, sandboxtest.Fault{Err: sandboxtest.Status(503), Times: -1})
			_, err := w.sweeper().Sweep(w.t.Context())
			require.ErrorIs(t, err, sweep.ErrLeft)
			assert.Empty(t, w.Calls(sandbox.OpDelete))
			assert.Len(t, w.there(ids...), 1)
		})
	})
	t.Run("and where a list told no times the error says that it could not see", func(t *testing.T) {
		inWorld(t, nil, func(w *world) {
			w.Behave(func(b *sandboxtest.Behaviour) { b.ZonelessTimes = true })
			w.make(1)
			w.Fault(sandbox.OpGet, sandboxtest.Fault{Err: sandboxtest.Status(503), Times: -1})
			r, err := w.sweeper().Sweep(w.t.Context())
			require.ErrorIs(t, err, sweep.ErrBlind)
			assert.Equal(t, 1, r.Count(sweep.Unseen))
		})
	})
}

func TestH04AllPagesAreSeen(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.make(1001, window(time.Hour))
		time.Sleep(time.Minute)
		r, err := w.sweeper().Sweep(w.t.Context())
		require.NoError(t, err)
		assert.Equal(t, 1001, r.Accounts[0].Seen)
		assert.Equal(t, 1001, r.Count(sweep.Kept))
	})
}

func TestH10RowsOfGoneSandboxesAreNotDeletedAgain(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.Behave(func(b *sandboxtest.Behaviour) { b.ListShowsGone = true })
		for _, id := range w.make(5) {
			require.True(t, w.Kill(id))
		}
		time.Sleep(10 * time.Minute)
		r, err := w.sweeper().Sweep(w.t.Context())
		require.NoError(t, err)
		assert.Equal(t, 5, r.Count(sweep.Gone))
		assert.Empty(t, w.Calls(sandbox.OpDelete))
	})
}

func TestH14GhostsOfAListAreNoLeaks(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		ids := w.make(45)
		time.Sleep(10 * time.Minute)
		w.Behave(func(b *sandboxtest.Behaviour) { b.ListShowsDeleted = time.Hour })
		for _, id := range ids[:41] {
			require.True(t, w.Kill(id))
		}
		r, err := w.sweeper().Sweep(w.t.Context())
		require.NoError(t, err)
		assert.Equal(t, 41, r.Count(sweep.Gone))
		assert.Equal(t, 4, r.Count(sweep.Deleted))
		assert.Len(t, w.Calls(sandbox.OpDelete), 4)
	})
}

func TestH15I04I07AFleetIsItsWholeName(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.Behave(func(b *sandboxtest.Behaviour) { b.IgnoreFilter = true })
		ours := w.make(3, ofFleet("job-1"))
		others := append(w.make(3, ofFleet("job-10")), w.make(3, ofFleet("job"))...)
		time.Sleep(100 * time.Hour)
		r, err := w.sweeper(func(c *sweep.Config) { c.Fleet, c.Liveness = "job-1", life(sweep.Dead, nil) }).Sweep(w.t.Context())
		require.NoError(t, err)
		assert.Empty(t, w.there(ours...))
		assert.Len(t, w.there(others...), 6)
		assert.Equal(t, 6, r.Accounts[0].Foreign, "that the list shows more than was asked for is said")
	})
}

func TestI01OnlyTheDeadOwnersSandboxesGo(t *testing.T) {
	inWorld(t, func(c *sandbox.Capabilities) { c.ReadsDeadline = false }, func(w *world) { // no lease tells, as on Modal
		dead, living := w.make(5, ofOwner("host.1")), w.make(5, ofOwner("host.2"))
		time.Sleep(10 * time.Minute)
		_, err := w.sweeper(func(c *sweep.Config) {
			c.Liveness = func(_ context.Context, i sandbox.Info) (sweep.Life, error) {
				return map[string]sweep.Life{"host.1": sweep.Dead, "host.2": sweep.Alive}[i.Mark.Owner], nil
			}
		}).Sweep(w.t.Context())
		require.NoError(t, err)
		assert.Empty(t, w.there(dead...))
		assert.Len(t, w.there(living...), 5)
	})
}

func TestADeadOwnersLeaseCountsForNothingWhereTheUserSaysSo(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		long := window(time.Hour)
		dead, living, unknown := w.make(3, ofOwner("dead"), long), w.make(3, ofOwner("living"), long), w.make(3, ofOwner("unknown"), long)
		kept, back := w.make(1, ofOwner("dead"), long, tag("keep", "")), w.make(1, ofOwner("back"), long)
		time.Sleep(10 * time.Minute)
		asked := map[string]int{}
		var mu sync.Mutex
		s := func(endDead bool) *sweep.Sweeper {
			return w.sweeper(func(c *sweep.Config) {
				c.EndDead, c.ProtectTags = endDead, map[string]string{"keep": ""}
				c.Liveness = func(_ context.Context, i sandbox.Info) (sweep.Life, error) {
					mu.Lock()
					defer mu.Unlock()
					asked[i.ID]++
					switch i.Mark.Owner {
					case "dead":
						return sweep.Dead, nil
					case "back": // it was only slow
						if asked[i.ID] == 1 {
							return sweep.Dead, nil
						}
						return sweep.Alive, nil
					case "unknown":
						return sweep.Dead, errors.New("no answer")
					}
					return sweep.Alive, nil
				}
			})
		}
		_, err := s(false).Sweep(w.t.Context())
		require.NoError(t, err)
		assert.Empty(t, asked, "a lease decides without anybody")
		assert.Len(t, w.there(dead...), 3)

		r, err := s(true).Sweep(w.t.Context())
		require.NoError(t, err)
		assert.Empty(t, w.there(dead...))
		assert.Len(t, w.there(slices.Concat(living, unknown, kept, back)...), 8)
		assert.Equal(t, sweep.RuleDead, w.item(r, dead[0]).Rule)
		assert.Contains(t, w.item(r, dead[0]).Reason, "its lease would run for another")
		assert.Contains(t, w.item(r, unknown[0]).Error, "no answer")
		assert.Zero(t, asked[kept[0]])
		assert.Equal(t, 2, asked[dead[0]], "once more right before the delete")
	})
}

func TestI03ADeadOwnersYoungAndErroredOnesGo(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.Behave(func(b *sandboxtest.Behaviour) { b.HideDeadline = true })
		ids := w.make(4)
		require.True(t, w.Fail(ids[0], "error"))
		require.True(t, w.Pause(ids[1]))
		time.Sleep(3 * time.Second)
		_, err := w.sweeper(func(c *sweep.Config) { c.Liveness = life(sweep.Dead, nil) }).Sweep(w.t.Context())
		require.NoError(t, err)
		assert.Empty(t, w.there(ids...))
	})
}

func TestI05TheGraceAfterTheHardEndIsRespected(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		ids := w.make(3, lifetime(time.Hour), window(24*time.Hour))
		s := w.sweeper(func(c *sweep.Config) { c.Grace = 10 * time.Minute })
		time.Sleep(69 * time.Minute)
		_, err := s.Sweep(w.t.Context())
		require.NoError(t, err)
		require.Len(t, w.there(ids...), 3)
		time.Sleep(2 * time.Minute)
		r, err := s.Sweep(w.t.Context())
		require.NoError(t, err)
		assert.Empty(t, w.there(ids...))
		assert.True(t, w.item(r, ids[0]).Overrun, "the lease still ran: the owner breaks its own rule")
	})
}

func TestI06ASecondPassAtTheSameTimeIsRefused(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		s := w.sweeper()
		var wg sync.WaitGroup
		w.onList = func() { time.Sleep(time.Minute) }
		wg.Go(func() {
			_, err := s.Sweep(w.t.Context())
			assert.NoError(t, err)
		})
		time.Sleep(time.Second)
		_, err := s.Sweep(w.t.Context())
		require.ErrorIs(t, err, sweep.ErrRunning)
		wg.Wait()
		_, err = s.Sweep(w.t.Context())
		require.NoError(t, err, "and the refused one left nothing locked")
	})
}

func TestI06AnEndedContextLeavesEverythingAndSaysSo(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		ids := w.make(20)
		time.Sleep(10 * time.Minute)
		ctx, cancel := context.WithCancel(w.t.Context())
		var n atomic.Int64
		w.onDelete = func(context.Context, string) error {
			if n.Add(1) == 5 {
				cancel()
			}
			return nil
		}
		_, err := w.sweeper(func(c *sweep.Config) { c.Parallel = 1 }).Sweep(ctx)
		require.ErrorIs(t, err, sweep.ErrLeft)
		require.ErrorIs(t, err, context.Canceled)
		left := w.there(ids...)
		assert.NotEmpty(t, left)
		for _, id := range left {
			assert.ErrorContains(t, err, id)
		}
		_, err = w.sweeper().Sweep(w.t.Context())
		require.NoError(t, err)
		assert.Empty(t, w.there(ids...))
	})
}

func TestI08WhatChangesBetweenLookAndDeleteIsLeftAlone(t *testing.T) {
	for name, c := range map[string]struct {
		rule   sweep.Rule
		before func(w *world, id string) // the pass
		during func(w *world, id string) // between its list and its delete
		answer func(*sandbox.Info)
	}{
		"I16 resumed by somebody": {
			rule:   sweep.RuleChanged,
			before: func(w *world, id string) { w.pause(id) },
			during: func(w *world, id string) { w.Resume(id) },
		},
		"a late beat": {
			rule: sweep.RuleLease,
			during: func(w *world, id string) {
				_, err := w.Extend(context.Background(), sandbox.Info{ID: id}, time.Minute)
				require.NoError(w.t, err)
			},
		},
		"I13 a new one of the same id": {
			rule:   sweep.RuleChanged,
			during: func(w *world, _ string) { w.onAnswer = func(i *sandbox.Info) { i.Run = "another" } },
		},
		"the mark is gone": {
			rule:   sweep.RuleForeign,
			during: func(w *world, id string) { w.DropTags(id) },
		},
		"it is protected now": {
			rule:   sweep.RuleProtected,
			during: func(w *world, _ string) { w.onAnswer = func(i *sandbox.Info) { i.Tags["keep"] = "1" } },
		},
		"it was taken over": {
			rule:   sweep.RuleChanged,
			during: func(w *world, _ string) { w.onAnswer = func(i *sandbox.Info) { i.Mark.Owner = "host.9" } },
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, nil, func(w *world) {
				id := w.make(1)[0]
				time.Sleep(10 * time.Minute)
				if c.before != nil {
					c.before(w, id)
				}
				w.onGet = func(_ context.Context, got string) error {
					w.onGet = nil
					c.during(w, id)
					return nil
				}
				s := w.sweeper(func(cfg *sweep.Config) {
					cfg.ProtectTags = map[string]string{"keep": ""}
					if c.before != nil {
						cfg.Liveness = life(sweep.Dead, nil)
					}
				})
				r, err := s.Sweep(w.t.Context())
				require.NoError(t, err)
				assert.Nil(t, w.onGet, "nothing was looked at again")
				assert.Len(t, w.there(id), 1)
				assert.Empty(t, w.Calls(sandbox.OpDelete))
				assert.Equal(t, c.rule, w.item(r, id).Rule)
			})
		})
	}
}

func TestI09WhatWaitsForLongWithALeaseIsNotReaped(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.Behave(func(b *sandboxtest.Behaviour) { b.NeverReady = true })
		ids := w.make(3, window(24*time.Hour))
		time.Sleep(5 * time.Hour)
		_, err := w.sweeper(func(c *sweep.Config) { c.Liveness = life(sweep.Dead, nil) }).Sweep(w.t.Context())
		require.NoError(t, err)
		assert.Len(t, w.there(ids...), 3)
	})
}

func TestI11FailuresAreNamedAndEndNothing(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		ids := w.make(10)
		time.Sleep(10 * time.Minute)
		var bad set
		bad.add(ids[:3]...)
		w.onDelete = func(_ context.Context, id string) error {
			if bad.has(id) {
				return sandboxtest.Status(403)
			}
			return nil
		}
		var leaks atomic.Int64
		r, err := w.sweeper(func(c *sweep.Config) {
			c.Observers = []sandbox.Observer{func(_ context.Context, e sandbox.Event) {
				if e.Op == sandbox.OpConfirm && e.Err != nil {
					leaks.Add(1)
				}
				panic("an observer's panic is contained")
			}}
		}).Sweep(w.t.Context())
		require.ErrorIs(t, err, sweep.ErrLeft)
		require.ErrorIs(t, err, sandbox.ErrPermission)
		leak, ok := errors.AsType[*sandbox.LeakError](err)
		require.True(t, ok)
		require.Len(t, leak.Sandboxes, 3)
		for _, id := range ids[:3] {
			assert.ErrorContains(t, err, id)
		}
		assert.Equal(t, 7, r.Count(sweep.Deleted))
		assert.EqualValues(t, 3, leaks.Load())
		assert.Equal(t, ids[:3], w.there(ids...))
	})
}

func TestI12ProtectionHoldsInEveryWay(t *testing.T) {
	dead := life(sweep.Dead, nil)
	for name, protect := range map[string]func(*sweep.Config){
		"by tag and value": func(c *sweep.Config) { c.ProtectTags = map[string]string{"keep": "yes"} },
		"by tag":           func(c *sweep.Config) { c.ProtectTags = map[string]string{"keep": ""} },
		"by rule":          func(c *sweep.Config) { c.Protect = func(i sandbox.Info) bool { return i.Tags["keep"] == "yes" } },
		"by a rule that panics": func(c *sweep.Config) {
			c.Protect = func(i sandbox.Info) bool { return i.Tags["keep"] == "yes" && i.Tags["no"][5] == 'x' }
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, nil, func(w *world) {
				keep := tag("keep", "yes")
				ids := w.make(2, keep)                                                      // a passed lease
				ids = append(ids, w.make(2, keep, lifetime(time.Minute))...)                // past the hard end
				paused := w.make(2, keep)                                                   // residue
				others := append(w.make(1, tag("keep2", "yes")), w.make(1)...)              // not protected
				ids = append(ids, append(paused, w.make(1, keep, window(time.Hour))...)...) // a lease
				w.pause(paused...)
				time.Sleep(10 * time.Minute)
				s := w.sweeper(protect, func(c *sweep.Config) { c.Liveness, c.Known = dead, known(ids) })
				for range 3 {
					_, err := s.Sweep(w.t.Context())
					require.NoError(t, err)
				}
				assert.Len(t, w.there(ids...), 7)
				assert.Empty(t, w.there(others...))
			})
		})
	}
}

func known(ids []string) func(context.Context, string) ([]string, error) {
	return func(context.Context, string) ([]string, error) { return ids, nil }
}

func TestI16ADeleteThatFailedIsTriedAgainByTheNextPass(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		ids := w.make(1)
		time.Sleep(10 * time.Minute)
		w.Fault(sandbox.OpDelete, sandboxtest.Fault{Err: sandboxtest.Status(500), Times: -1})
		s := w.sweeper()
		_, err := s.Sweep(w.t.Context())
		require.ErrorIs(t, err, sweep.ErrLeft)
		w.Heal()
		_, err = s.Sweep(w.t.Context())
		require.NoError(t, err)
		assert.Empty(t, w.there(ids...))
	})
}

func TestWhatNoListAgreesToBeGoneIsNamedByItsID(t *testing.T) {
	inWorld(t, func(c *sandbox.Capabilities) { c.GoneByList = true }, func(w *world) {
		ids := w.make(1)
		time.Sleep(10 * time.Minute)
		w.Fault(sandbox.OpList, sandboxtest.Fault{Err: sandboxtest.Status(503), Skip: 1, Times: -1}) // once the pass has seen it
		r, err := w.sweeper().Sweep(w.t.Context())
		require.ErrorIs(t, err, sweep.ErrLeft)
		assert.Equal(t, sweep.Left, w.item(r, ids[0]).Outcome)
		leak, ok := errors.AsType[*sandbox.LeakError](err)
		require.True(t, ok)
		require.Len(t, leak.Sandboxes, 1)
		assert.Equal(t, ids[0], leak.Sandboxes[0].ID)
		assert.NotContains(t, err.Error(), "unanswered")
	})
}

func TestTheListsAreAskedForTheMarkThatThePassHasSeen(t *testing.T) {
	inWorld(t, func(c *sandbox.Capabilities) { c.GoneByList = true }, func(w *world) {
		ids := w.make(1)
		time.Sleep(10 * time.Minute)
		works := time.Now().Add(time.Minute)
		var looks atomic.Int32
		w.onGet = func(context.Context, string) error {
			if looks.Add(1) > 1 { // all but the pass's own
				return sandboxtest.Status(404)
			}
			return nil
		}
		w.Fault(sandbox.OpDelete, sandboxtest.Fault{Effect: sandboxtest.EffectNone, Times: -1})
		time.AfterFunc(time.Until(works), w.Heal)
		r, err := w.sweeper().Sweep(w.t.Context())
		require.NoError(t, err)
		assert.Equal(t, sweep.Deleted, w.item(r, ids[0]).Outcome)
		assert.Empty(t, w.there(ids...))
	})
}

func TestADeleteInDoubtIsNotForgottenWhenTheRateLimitHasEatenItsTime(t *testing.T) {
	inWorld(t, func(c *sandbox.Capabilities) { c.DeleteDoubt = 90 * time.Second }, func(w *world) {
		ids := w.make(1)
		time.Sleep(10 * time.Minute)
		began := time.Now()
		w.onGet = func(context.Context, string) error {
			if d := time.Since(began); d > 0 && d < 2*time.Minute { // all but the pass's own
				return sandboxtest.Status(429)
			}
			return nil
		}
		w.onDelete = func(context.Context, string) error {
			time.Sleep(time.Millisecond)
			if time.Since(began) < 90*time.Second {
				return sandboxtest.Status(503)
			}
			return nil
		}
		w.Fault(sandbox.OpDelete, sandboxtest.Fault{Effect: sandboxtest.EffectOrphan, Err: sandboxtest.Status(500), After: true})
		r, err := w.sweeper().Sweep(w.t.Context())
		require.NoError(t, err)
		assert.Equal(t, sweep.Deleted, w.item(r, ids[0]).Outcome)
		assert.Empty(t, w.there(ids...))
	})
}

func TestI19AnOwnersRecordIsNotNeeded(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		ids := w.make(2)
		hidden := w.make(1)[0]
		w.onAnswer = func(i *sandbox.Info) {
			if i.ID == hidden {
				i.Deadline = time.Time{}
			}
		}
		time.Sleep(10 * time.Minute)
		r, err := w.sweeper(func(c *sweep.Config) { c.Liveness = life(sweep.Dead, errors.New("no such row")) }).Sweep(w.t.Context())
		require.NoError(t, err, "a liveness that fails is reported, and proves nothing")
		assert.Empty(t, w.there(ids...))
		assert.Len(t, w.there(hidden), 1)
		assert.Contains(t, w.item(r, hidden).Error, "no such row")
	})
}

func TestALivenessThatHangsOrPanicsProvesNothing(t *testing.T) {
	for name, l := range map[string]sweep.Liveness{
		"hangs": func(ctx context.Context, _ sandbox.Info) (sweep.Life, error) {
			<-ctx.Done()
			return sweep.Dead, ctx.Err()
		},
		"panics": func(context.Context, sandbox.Info) (sweep.Life, error) { panic("boom") },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, nil, func(w *world) {
				w.Behave(func(b *sandboxtest.Behaviour) { b.HideDeadline = true })
				ids := w.make(2)
				time.Sleep(10 * time.Minute)
				r, err := w.sweeper(func(c *sweep.Config) { c.Liveness = l }).Sweep(w.t.Context())
				require.NoError(t, err)
				assert.Len(t, w.there(ids...), 2)
				assert.NotEmpty(t, w.item(r, ids[0]).Error)
			})
		})
	}
}

func TestI21ABacklogGoesOrIsListed(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		ids := w.make(387)
		time.Sleep(24 * time.Hour)
		s := w.sweeper()
		r, err := s.Sweep(w.t.Context())
		require.ErrorIs(t, err, sweep.ErrCapped)
		assert.NotErrorIs(t, err, sweep.ErrLeft)
		assert.Equal(t, 100, r.Count(sweep.Deleted))
		assert.Equal(t, 287, r.Count(sweep.Capped))
		require.Len(t, w.there(ids...), 287)

		r, err = w.sweeper(func(c *sweep.Config) { c.MaxDeletes = 1000 }).Sweep(w.t.Context())
		require.NoError(t, err)
		assert.Empty(t, w.there(ids...))
		assert.Less(t, r.Ended.Sub(r.Began), time.Minute)
	})
}

func TestTheLimitOfDeletesIsAFifthOfManyAndSparesWhatALeaseEnds(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		short := w.make(200, lifetime(time.Minute), window(20*time.Minute))
		long := w.make(100, lifetime(time.Minute), window(time.Hour))
		w.make(600, window(24*time.Hour))
		paused := w.make(100, lifetime(time.Minute))
		w.pause(paused...)
		time.Sleep(10 * time.Minute)
		r, err := w.sweeper(func(c *sweep.Config) { c.Parallel = 1 }).Sweep(w.t.Context())
		require.ErrorIs(t, err, sweep.ErrCapped)
		assert.Equal(t, 200, r.Count(sweep.Deleted), "a fifth of 1000")
		assert.Empty(t, w.there(paused...), "what no lease ends goes first")
		assert.Empty(t, w.there(long...), "then what has most of its lease left")
		assert.Len(t, w.there(short...), 200)
	})
}

func TestI22FiveSweepersAtOnceDoNoHarm(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		ids := w.make(50)
		time.Sleep(10 * time.Minute)
		living := w.make(10, window(time.Hour))
		var wg sync.WaitGroup
		for range 5 {
			s := w.sweeper()
			wg.Go(func() {
				_, err := s.Sweep(context.Background())
				assert.NoError(t, err)
			})
		}
		wg.Wait()
		assert.Empty(t, w.there(ids...))
		assert.Len(t, w.there(living...), 10)
	})
}

func TestACopyThatInheritedAMarkIsNotTheOriginal(t *testing.T) {
	inWorld(t, nameless, func(w *world) {
		id := w.make(1)[0]
		time.Sleep(time.Second)
		copied := w.Fork(id)
		_, err := w.Extend(context.Background(), sandbox.Info{ID: copied}, 5*time.Hour)
		require.NoError(t, err)
		time.Sleep(10 * time.Minute)
		s := w.sweeper(func(c *sweep.Config) { c.Liveness = life(sweep.Dead, nil) })
		r, err := s.Sweep(w.t.Context())
		require.NoError(t, err)
		assert.Empty(t, w.there(id), "the original is judged as ever")
		assert.Len(t, w.there(copied), 1, "its delete does not reach the copy")
		assert.Equal(t, sweep.RuleFork, w.item(r, copied).Rule)

		require.True(t, w.Pause(copied))
		time.Sleep(20 * time.Hour)
		for range 3 {
			r, err = s.Sweep(w.t.Context())
			require.NoError(t, err)
		}
		assert.Len(t, w.there(copied), 1, "neither hard end nor residue nor a dead owner is a copy's affair, though it is alone now")
		assert.Equal(t, sweep.RuleFork, w.item(r, copied).Rule)

		require.True(t, w.Resume(copied))
		time.Sleep(10 * time.Minute)
		r, err = s.Sweep(w.t.Context())
		require.NoError(t, err)
		assert.Empty(t, w.there(copied), "its own passed lease is")
		assert.Equal(t, sweep.RulePassed, w.item(r, copied).Rule)
	})
}

func TestAnIncompleteListOfANamelessServiceProvesNoOriginal(t *testing.T) {
	inWorld(t, nameless, func(w *world) {
		w.Behave(func(b *sandboxtest.Behaviour) { b.PageSize = 10 })
		over := w.make(5, lifetime(time.Minute), window(time.Hour))
		passed := w.make(5)
		w.make(15, window(10*time.Hour))
		time.Sleep(10 * time.Minute)
		w.Fault(sandbox.OpList, pageTwo()...)
		s := w.sweeper()
		_, err := s.Sweep(w.t.Context())
		require.ErrorIs(t, err, sweep.ErrBlind)
		assert.Len(t, w.there(over...), 5, "they may be copies of what is on the next page")
		assert.Empty(t, w.there(passed...), "its own passed lease ends a copy, too")
		w.Heal()
		_, err = s.Sweep(w.t.Context())
		require.NoError(t, err)
		assert.Empty(t, w.there(over...))
	})
}

func TestH05WhatAListHidesIsJudgedAllTheSame(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		ids := w.make(3)
		w.pause(ids...)
		time.Sleep(10 * time.Minute)
		w.Behave(func(b *sandboxtest.Behaviour) { b.ListHides = []sandbox.State{sandbox.StateDormant} })
		_, err := w.sweeper(func(c *sweep.Config) { c.Known, c.Liveness = known(ids), life(sweep.Dead, nil) }).Sweep(w.t.Context())
		require.ErrorIs(t, err, sweep.ErrBlind)
		assert.ErrorContains(t, err, ids[0])
		assert.Empty(t, w.there(ids...), "names tell copies here, so that an incomplete list is no reason to keep them")
	})
}

func TestH09BothThatOneRequestMadeAreFound(t *testing.T) {
	inWorld(t, nameless, func(w *world) {
		w.Fault(sandbox.OpCreate, sandboxtest.Fault{Effect: sandboxtest.EffectTwin})
		w.make(1)
		require.Len(t, w.Live(), 2)
		time.Sleep(10 * time.Minute)
		r, err := w.sweeper().Sweep(w.t.Context())
		require.NoError(t, err)
		assert.Equal(t, 2, r.Count(sweep.Deleted))
		assert.Empty(t, w.Live())
	})
}

func TestALateBeatIsSeenThroughAnswersThatLag(t *testing.T) {
	lagging := func(c *sandbox.Capabilities) { c.ReadLag, c.Lateness = 10*time.Second, time.Second }
	inWorld(t, lagging, func(w *world) {
		w.Behave(func(b *sandboxtest.Behaviour) { b.ListStale, b.GetStale = 8*time.Second, 8*time.Second })
		ids := w.make(2)
		time.Sleep(75 * time.Second)
		_, err := w.Extend(w.t.Context(), sandbox.Info{ID: ids[0]}, time.Hour)
		require.NoError(t, err)
		time.Sleep(time.Second)
		_, err = w.sweeper().Sweep(w.t.Context())
		require.NoError(t, err)
		assert.Equal(t, ids[:1], w.there(ids...))
	})
}

func TestResidueGoesWhenTwoPassesHaveSeenItAsSuch(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		ids := w.make(2)
		w.pause(ids...)
		time.Sleep(10 * time.Minute)
		s := w.sweeper()
		_, err := s.Sweep(w.t.Context())
		require.NoError(t, err)
		require.Len(t, w.there(ids...), 2)
		time.Sleep(15 * time.Minute)
		require.True(t, w.Resume(ids[0])) // and paused again: another run's residue
		require.True(t, w.Pause(ids[0]))
		_, err = s.Sweep(w.t.Context())
		require.NoError(t, err)
		assert.Equal(t, ids[:1], w.there(ids...))
	})
}

func TestADeleteThatIsAcceptedAndNotDoneIsPending(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		id := w.make(1)[0]
		time.Sleep(10 * time.Minute)
		w.Fault(sandbox.OpDelete, sandboxtest.Fault{Effect: sandboxtest.EffectBlocked, Times: -1})
		s := w.sweeper()
		r, err := s.Sweep(w.t.Context())
		require.NoError(t, err)
		assert.Equal(t, sweep.Pending, w.item(r, id).Outcome)
		time.Sleep(40 * time.Hour)
		_, err = s.Sweep(w.t.Context())
		require.ErrorIs(t, err, sweep.ErrLeft, "but not for ever")
	})
}

func TestOlderThanOnlyRestricts(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		old := w.make(2)
		time.Sleep(time.Hour)
		young := w.make(2)
		oldAlive := w.make(2, window(10*time.Hour))
		time.Sleep(10 * time.Minute)
		s := w.sweeper(func(c *sweep.Config) { c.OlderThan = 30 * time.Minute })
		_, err := s.Sweep(w.t.Context())
		require.NoError(t, err)
		assert.Empty(t, w.there(old...))
		assert.Len(t, w.there(young...), 2)
		time.Sleep(time.Hour)
		_, err = s.Sweep(w.t.Context())
		require.NoError(t, err)
		assert.Empty(t, w.there(young...))
		assert.Len(t, w.there(oldAlive...), 2)
	})
}

func TestRunMakesPassesUntilItsContextEnds(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		began := time.Now()
		var passes []time.Duration
		s := w.sweeper(func(c *sweep.Config) {
			c.OnPass = func(r sweep.Report, err error) {
				assert.NoError(t, err)
				passes = append(passes, r.Began.Sub(began))
			}
		})
		stop := errors.New("stop")
		ctx, cancel := context.WithCancelCause(w.t.Context())
		time.AfterFunc(10*time.Hour, func() { cancel(stop) })
		ids := w.make(1)
		require.ErrorIs(t, s.Run(ctx, 0), stop)
		assert.Empty(t, w.there(ids...))
		assert.InDelta(t, 40, len(passes), 5)
		assert.Zero(t, passes[0])
		gaps := map[time.Duration]bool{}
		for i := range passes[1:] {
			gap := passes[i+1] - passes[i]
			assert.GreaterOrEqual(t, gap, 11*time.Minute)
			assert.LessOrEqual(t, gap, 19*time.Minute)
			gaps[gap] = true
		}
		assert.Greater(t, len(gaps), 10, "they come apart")
		require.ErrorIs(t, s.Run(ctx, -1), sandbox.ErrInvalid)
	})
}

func TestAReportIsATableAndJSON(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		gone, kept := w.make(1, tag("job", "7"))[0], w.make(1, window(5*time.Hour))[0]
		w.make(1, ofFleet("other"))
		w.Behave(func(b *sandboxtest.Behaviour) { b.IgnoreFilter = true })
		w.onAnswer = func(i *sandbox.Info) { i.Native = "secret" }
		time.Sleep(10 * time.Minute)
		r, err := w.sweeper().Sweep(w.t.Context())
		require.NoError(t, err)

		var table strings.Builder
		require.NoError(t, r.WriteTable(&table))
		assert.Contains(t, table.String(), "memory: 3 seen, 1 foreign, 1 deleted, 1 kept")
		assert.Regexp(t, `(?m)^deleted +`+gone+` +running +10m0s +-9m0s +host\.1 +runs, though its lease passed`, table.String())
		assert.NotContains(t, table.String(), kept+" ", "what is kept is only counted")

		text, err := json.Marshal(r)
		require.NoError(t, err)
		assert.NotContains(t, string(text), "secret")
		var back sweep.Report
		require.NoError(t, json.Unmarshal(text, &back))
		assert.Equal(t, gone, back.Accounts[0].Items[0].ID)
		assert.Equal(t, "7", back.Accounts[0].Items[0].Tags["job"])
		assert.Equal(t, 1, back.Count(sweep.Deleted))
		assert.Equal(t, sweep.RuleLease, w.item(back, kept).Rule)

		r.Accounts[0].Items[0].Outcome, r.Accounts[0].Items[0].Error = sweep.Left, "two\nlines\tand \x1b[31mcolour"
		table.Reset()
		require.NoError(t, r.WriteTable(&table))
		assert.Contains(t, table.String(), "two lines and [31mcolour")
	})
}

func TestEveryKindOfServiceIsSwept(t *testing.T) {
	for _, k := range sandboxtest.Kinds() {
		t.Run(k.Name, func(t *testing.T) {
			inWorld(t, nil, func(w *world) {
				w.Provider = k.New()
				w.Behave(func(b *sandboxtest.Behaviour) { b.Unenforced = true })
				dead := w.make(5, lifetime(5*time.Minute))
				time.Sleep(5 * time.Second) // until they run
				w.pause(dead[0])
				time.Sleep(11 * time.Minute)
				living := w.make(5, window(2*time.Minute))
				_, err := w.sweeper().Sweep(w.t.Context())
				require.NoError(t, err)
				assert.Empty(t, w.there(dead...))
				assert.Len(t, w.there(living...), 5)
			})
		})
	}
}
