package vercel_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/internal/fake/vercelfake"
	"github.com/sandglass-dev/sandglass/internal/memnet"
	"github.com/sandglass-dev/sandglass/providers/vercel"
	"github.com/sandglass-dev/sandglass/sandbox"
)

var update = flag.Bool("update", false, "write the golden files anew")

// fixed is an order whose body is always the same.
func fixed() sandbox.CreateRequest {
	return sandbox.CreateRequest{
		Mark: sandbox.Mark{
			Fleet: "ci-agents", Owner: "host.1", Nonce: "abcdefghijklmnop", Created: time.Unix(1_700_000_000, 0), Lifetime: time.Hour,
		},
		Window: 3 * time.Minute,
	}
}

func TestCreateBodiesAreAsRecordedAndAlwaysHaveAnEnd(t *testing.T) {
	for name, change := range map[string]func(*sandbox.CreateRequest){
		"default": func(*sandbox.CreateRequest) {},
		"full": func(r *sandbox.CreateRequest) {
			r.Window = 90*time.Second + 700*time.Microsecond // rounded down
			r.Tags = map[string]string{"agent_job_id": "j1", "commit_sha": "4b825dc", "branch": "a:b"}
			r.Spec = sandbox.Spec{
				Image: "vercel/sandbox/node:24", Env: map[string]string{"A": "1", "B": "<&>"}, CPU: 4, Memory: 8 << 30, Ports: []int{3000, 8080},
				Native: &vercel.Options{
					Region: "iad1", Failover: []string{"cdg1"}, Architecture: "arm64", AllowDomains: []string{"example.com"},
					DenyNets: []string{"10.0.0.0/8"}, Drives: map[string]vercel.Drive{"/data": {Name: "d1"}, "/ref": {Name: "d2", Snapshot: true}},
					Git: &vercel.Git{URL: "https://git.example.com/r.git", Revision: "main", Depth: 1, Username: "u", Password: "p"},
				},
			}
		},
		"runtime": func(r *sandbox.CreateRequest) { r.Spec.Native = &vercel.Options{Runtime: "node24"} },
		"offline": func(r *sandbox.CreateRequest) {
			r.Spec.Offline, r.Spec.Memory = true, 4<<30
			r.Spec.Native = &vercel.Options{Tarball: "https://example.com/a.tgz"}
		},
		"snapshot": func(r *sandbox.CreateRequest) { r.Spec.Native = &vercel.Options{Snapshot: "snap_1"} },
	} {
		t.Run(name, func(t *testing.T) {
			var sent string
			p, err := vercel.New(vercel.Config{
				Token: "token", Team: "team_1", Project: "prj_1",
				HTTP: &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
					b, err := io.ReadAll(r.Body)
					sent = r.Method + " " + r.URL.String() + "\n" + string(b) + "\n"
					return nil, errors.Join(err, errors.New("enough"))
				})},
			})
			require.NoError(t, err)
			req := fixed()
			change(&req)
			_, err = p.Create(context.Background(), req)
			require.Error(t, err)

			golden := filepath.Join("testdata", "create_"+name+".golden")
			if *update {
				require.NoError(t, os.WriteFile(golden, []byte(sent), 0o644))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			assert.Equal(t, string(want), sent)

			_, body, _ := strings.Cut(sent, "\n")
			var fields map[string]any
			require.NoError(t, json.Unmarshal([]byte(body), &fields))
			end, ok := fields["timeout"].(float64)
			assert.True(t, ok && end >= 1000 && end <= 86_400_000, "an end in milliseconds: %v", fields["timeout"])
			assert.Equal(t, false, fields["persistent"], "said, and no")
			assert.Equal(t, "sandglass-abcdefghijklmnop", fields["name"])
			assert.LessOrEqual(t, len(fields["tags"].(map[string]any)), 5)
			assert.NotContains(t, fields, "snapshotExpiration")
		})
	}
}

func TestOrdersThatCannotBeHonouredAreRefusedBeforeAnyRequest(t *testing.T) {
	p, err := vercel.New(vercel.Config{
		Token: "token", Team: "team_1", Project: "prj_1",
		HTTP: &http.Client{Transport: transport(func(*http.Request) (*http.Response, error) {
			assert.Fail(t, "a request")
			return nil, errors.New("no")
		})},
	})
	require.NoError(t, err)
	for what, change := range map[string]func(*sandbox.CreateRequest){
		"no window":             func(r *sandbox.CreateRequest) { r.Window = 0 },
		"a window below 1 s":    func(r *sandbox.CreateRequest) { r.Window = 999 * time.Millisecond },
		"a window above a day":  func(r *sandbox.CreateRequest) { r.Window = 24*time.Hour + 1 },
		"a mark that is none":   func(r *sandbox.CreateRequest) { r.Mark.Nonce = "" },
		"four tags":             func(r *sandbox.CreateRequest) { r.Tags = map[string]string{"a": "", "b": "", "c": "", "d": ""} },
		"a tag with our name":   func(r *sandbox.CreateRequest) { r.Tags = map[string]string{"sandglass": "x"} },
		"a tag with a colon":    func(r *sandbox.CreateRequest) { r.Tags = map[string]string{"a:b": "x"} },
		"three CPUs":            func(r *sandbox.CreateRequest) { r.Spec.CPU = 3 },
		"half a CPU":            func(r *sandbox.CreateRequest) { r.Spec.CPU = 0.5 },
		"34 CPUs":               func(r *sandbox.CreateRequest) { r.Spec.CPU = 34 },
		"1e300 CPUs":            func(r *sandbox.CreateRequest) { r.Spec.CPU = 1e300 },
		"1 GiB":                 func(r *sandbox.CreateRequest) { r.Spec.Memory = 1 << 30 },
		"2 CPUs with 2 GiB":     func(r *sandbox.CreateRequest) { r.Spec.CPU, r.Spec.Memory = 2, 2<<30 },
		"a disk":                func(r *sandbox.CreateRequest) { r.Spec.Disk = 1 << 30 },
		"port 80":               func(r *sandbox.CreateRequest) { r.Spec.Ports = []int{80} },
		"port 23456":            func(r *sandbox.CreateRequest) { r.Spec.Ports = []int{23456} },
		"sixteen ports":         func(r *sandbox.CreateRequest) { r.Spec.Ports = make16() },
		"an image of 256 bytes": func(r *sandbox.CreateRequest) { r.Spec.Image = strings.Repeat("x", 256) },
		"an odd variable":       func(r *sandbox.CreateRequest) { r.Spec.Env = map[string]string{"A": "\xff"} },
		"image and runtime":     func(r *sandbox.CreateRequest) { r.Spec.Image = "x"; r.Spec.Native = &vercel.Options{Runtime: "node24"} },
		"image and snapshot":    func(r *sandbox.CreateRequest) { r.Spec.Image = "x"; r.Spec.Native = &vercel.Options{Snapshot: "s"} },
		"two sources":           func(r *sandbox.CreateRequest) { r.Spec.Native = &vercel.Options{Snapshot: "s", Tarball: "t"} },
		"half of credentials": func(r *sandbox.CreateRequest) {
			r.Spec.Native = &vercel.Options{Git: &vercel.Git{URL: "u", Username: "u"}}
		},
		"fail over to itself": func(r *sandbox.CreateRequest) { r.Spec.Native = &vercel.Options{Region: "a", Failover: []string{"a"}} },
		"a relative drive": func(r *sandbox.CreateRequest) {
			r.Spec.Native = &vercel.Options{Drives: map[string]vercel.Drive{"d": {Name: "x"}}}
		},
		"five drives": func(r *sandbox.CreateRequest) { r.Spec.Native = &vercel.Options{Drives: drives(5)} },
		"offline, with a domain": func(r *sandbox.CreateRequest) {
			r.Spec.Offline = true
			r.Spec.Native = &vercel.Options{AllowDomains: []string{"x"}}
		},
		"foreign options": func(r *sandbox.CreateRequest) { r.Spec.Native = 5 },
	} {
		req := fixed()
		change(&req)
		_, err := p.Create(context.Background(), req)
		e := apiError(t, err)
		assert.True(t, e.Refused, what)
		assert.True(t, errors.Is(err, sandbox.ErrInvalid) || errors.Is(err, errors.ErrUnsupported), "%s: %v", what, err)
	}
}

func make16() (ports []int) {
	for i := range 16 {
		ports = append(ports, 2000+i)
	}
	return ports
}

func drives(n int) map[string]vercel.Drive {
	all := map[string]vercel.Drive{}
	for i := range n {
		all[fmt.Sprintf("/d%d", i)] = vercel.Drive{Name: "x"}
	}
	return all
}

// What a user can have wrong has an error that tells what to do, and leaves nothing.
func TestWhatAUserCanHaveWrongIsATypedErrorWithWhatToDo(t *testing.T) {
	for name, c := range map[string]struct {
		change  setting
		arrange func(*world)
		call    func(*world) error
		kind    error
		says    string
	}{
		"a bad token": {
			change: func(_ *vercelfake.Options, c *vercel.Config) { c.Token = "another-token" },
			arrange: func(w *world) {
				w.fake.Change(func(q *vercelfake.Quirks) { q.Unauthorized = true })
			},
			call: check, kind: sandbox.ErrUnauthenticated, says: "is the token right",
		},
		"a token for another team": {
			change: func(_ *vercelfake.Options, c *vercel.Config) { c.Team = "team_other" },
			call:   check, kind: sandbox.ErrPermission, says: "may the token do this in team team_other",
		},
		"an unknown project": {
			change: func(_ *vercelfake.Options, c *vercel.Config) { c.Project = "prj_other" },
			call:   check, kind: sandbox.ErrInvalid, says: "project prj_other",
		},
		"an unknown project, at create": {
			change: func(_ *vercelfake.Options, c *vercel.Config) { c.Project = "prj_other" },
			call:   create, kind: sandbox.ErrInvalid, says: "wrong team or project",
		},
		"a wrong base URL": {
			arrange: func(w *world) { w.fake.Change(func(q *vercelfake.Quirks) { q.HTML = true }) },
			call:    check, kind: sandbox.ErrInvalid, says: "is the base URL right",
		},
		"a path that is no API": {
			change: func(_ *vercelfake.Options, c *vercel.Config) { c.BaseURL += "/other" },
			call:   check, kind: sandbox.ErrInvalid, says: "base URL right",
		},
		"a token that may not delete": {
			arrange: func(w *world) { w.fault(sandbox.OpDelete, fake.Fault{Err: failure(403), Times: -1}) },
			call: func(w *world) error {
				err := w.p.Delete(context.Background(), w.make(time.Minute).ID)
				w.fake.Service().Heal()
				w.sweep(3, 15*time.Minute)
				return err
			},
			kind: sandbox.ErrPermission, says: "may the token not delete",
		},
		"a plan below the window": {
			change: func(o *vercelfake.Options, _ *vercel.Config) { o.Behaviour.PlanLifetime = time.Minute },
			call:   create, kind: sandbox.ErrInvalid, says: "shorter window",
		},
		"as many as the plan allows": {
			change: func(o *vercelfake.Options, _ *vercel.Config) { o.Behaviour.MaxLive = 1 },
			call: func(w *world) error {
				info := w.make(time.Minute)
				err := create(w)
				assert.NoError(w.t, w.p.Delete(context.Background(), info.ID))
				return err
			},
			kind: sandbox.ErrQuota, says: "as many sandboxes run as the plan allows",
		},
		"an unknown image": {
			change: func(o *vercelfake.Options, _ *vercel.Config) { o.Behaviour.UnknownImages = []string{"nope"} },
			call: func(w *world) error {
				req := order(time.Minute)
				req.Spec.Image = "nope"
				_, err := w.p.Create(context.Background(), req)
				return err
			},
			kind: sandbox.ErrInvalid, says: "unknown image",
		},
		"no payment method": {
			arrange: func(w *world) { w.fake.Fault("createSandbox", vercelfake.Fault{Status: 402}) },
			call:    create, kind: sandbox.ErrPermission, says: "payment",
		},
		"an outage": {
			arrange: func(w *world) { w.fake.Change(func(q *vercelfake.Quirks) { q.Down = true }) },
			call:    create, kind: sandbox.ErrUnavailable, says: "503",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var settings []setting
			if c.change != nil {
				settings = append(settings, c.change)
			}
			bubble(t, func(w *world) {
				if c.arrange != nil {
					c.arrange(w)
				}
				err := c.call(w)
				assert.ErrorIs(t, err, c.kind)
				assert.ErrorContains(t, err, c.says)
				assert.NotErrorIs(t, err, sandbox.ErrNotFound)
				assert.NotContains(t, fmt.Sprint(err), vercelfake.DefaultToken)
				w.nothing()
			}, settings...)
		})
	}
}

func check(w *world) error {
	_, err := w.p.Check(context.Background())
	return err
}

func create(w *world) error {
	_, err := w.p.Create(context.Background(), order(3*time.Minute))
	return err
}

func TestTheServicesWordsForATokenAreToldFromMissingPermissions(t *testing.T) {
	for body, kind := range map[string]error{
		`{"error":{"code":"forbidden","message":"Not authorized","invalidToken":true}}`:  sandbox.ErrUnauthenticated,
		`{"error":{"code":"forbidden","message":"No token","missingToken":true}}`:        sandbox.ErrUnauthenticated,
		`{"error":{"code":"forbidden","message":"You don't have permission for this."}}`: sandbox.ErrPermission,
	} {
		_, err := answers(t, "403 "+body).Get(context.Background(), "a/b")
		assert.ErrorIs(t, err, kind, body)
	}
}

func TestAnUndisturbedLifeAsksForLittle(t *testing.T) {
	bubble(t, func(w *world) {
		const beats = 100
		asked := w.asked()
		m := w.manager(func(c *sandbox.Config) { c.Scope.Window, c.Scope.MaxLifetime = 3*time.Minute, 3*time.Hour })
		err := m.WithSandbox(context.Background(), func(ctx context.Context, _ sandbox.Sandbox) error {
			return wait(ctx, beats*time.Minute)
		})
		require.NoError(t, err)
		extends := asked("extendTimeout")
		assert.InDelta(t, beats*1.05, extends, 6, "one for each beat, which comes up to a tenth early")
		assert.Equal(t, 1, asked("createSandbox"))
		assert.Equal(t, 1, asked("stopSession"))
		assert.Equal(t, 1, asked("deleteSandbox"))
		assert.Equal(t, 1, asked("getSession"), "it is gone too")
		assert.Equal(t, 2, asked("getSandbox"), "before the delete, and after")
		assert.Equal(t, 6+extends, asked("createSandbox")+asked("getSandbox")+asked("stopSession")+asked("deleteSandbox")+asked("getSession")+extends)
		assert.Len(t, w.fake.Requests(), 6+extends)
	})
}

func TestARunOverManyFailuresLeavesNothing(t *testing.T) {
	for name, s := range map[string]setting{"at once": func(*vercelfake.Options, *vercel.Config) {}, "slow": slow} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				faults := []func(){
					func() { w.fault(sandbox.OpCreate, fake.Fault{Err: &sandbox.APIError{}, After: true}) },
					func() { w.fault(sandbox.OpCreate, fake.Fault{Delay: 40 * time.Second, Late: true}) },
					func() { w.fault(sandbox.OpCreate, fake.Fault{Err: failure(502), After: true, Times: 2}) },
					func() { w.fault(sandbox.OpDelete, fake.Fault{Err: failure(500), Times: -1}) },
					func() { w.fake.Fault("deleteSandbox", vercelfake.Fault{Drop: true, After: true}) },
					func() { w.fake.Fault("stopSession", vercelfake.Fault{Ignore: true, Times: 50}) },
					func() { w.fake.Fault("stopSession", vercelfake.Fault{Hang: true, Times: 5}) },
					func() { w.fake.Fault("getSandbox", vercelfake.Fault{Status: 500, Times: 20}) },
					func() { w.net.Break(memnet.Fault{Kind: memnet.Partition}) },
					func() { w.fake.SetToken("") },
				}
				for i, f := range faults {
					for _, inside := range []bool{false, true} {
						m := w.manager(func(c *sandbox.Config) { c.CreateTimeout = 20 * time.Second })
						ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
						if !inside {
							f()
						}
						err := m.WithSandbox(ctx, func(ctx context.Context, sb sandbox.Sandbox) error {
							if inside {
								f()
							}
							if _, session := parts(sb.ID()); i == 4 {
								_ = session // somebody's snapshot ends the session
								w.others(http.MethodPost, "/v2/sandboxes/sessions/"+session+"/snapshot", "{}")
							}
							return wait(ctx, 30*time.Second)
						})
						cancel()
						t.Logf("fault %d, inside %v: %v", i, inside, err)
						w.fake.Heal()
						w.fake.Service().Heal()
						w.net.Heal()
						w.fake.SetToken(vercelfake.DefaultToken)
					}
				}
				w.sweep(3, 15*time.Minute)
				w.nothing()
			}, s)
		})
	}
}

func TestAnIDOfANameAloneIsEnough(t *testing.T) {
	bubble(t, func(w *world) {
		info := w.make(time.Minute)
		name, session := parts(info.ID)
		now, err := w.p.Get(context.Background(), name)
		require.NoError(t, err)
		assert.Equal(t, session, now.Run)
		now, err = w.p.Extend(context.Background(), sandbox.Info{ID: name}, 10*time.Minute)
		require.NoError(t, err)
		assert.InDelta(t, 10*time.Minute, now.Left(), float64(2*time.Second))
		res, err := w.p.Open(sandbox.Info{ID: name}).Exec(context.Background(), sandbox.Shell("echo here"))
		require.NoError(t, err)
		assert.Equal(t, "here\n", string(res.Stdout))
		require.NoError(t, sandbox.Terminate(context.Background(), w.p, name))
		w.nothing()
	})
}

func TestAnotherSandboxOfTheSameNameIsNotTouched(t *testing.T) {
	bubble(t, func(w *world) {
		info := w.make(time.Minute)
		name, _ := parts(info.ID)
		require.NoError(t, w.p.Delete(context.Background(), info.ID))
		status, answer := w.others("POST", "/v3/sandboxes", `{"projectId":"prj_test","name":"`+name+`"}`)
		require.Equal(t, http.StatusOK, status, answer)

		_, err := w.p.Get(context.Background(), info.ID)
		assert.ErrorIs(t, err, sandbox.ErrNotFound)
		assert.ErrorIs(t, w.p.Delete(context.Background(), info.ID), sandbox.ErrNotFound)
		assert.NoError(t, sandbox.Terminate(context.Background(), w.p, info.ID))
		require.Len(t, w.fake.All(), 1)
		assert.Equal(t, sandbox.StateRunning, w.fake.All()[0].Record.State)
	})
}

func TestADeleteEndsTheSessionThatSomebodyHasResumed(t *testing.T) {
	bubble(t, func(w *world) {
		info := w.make(time.Minute)
		name, session := parts(info.ID)
		status, answer := w.others("PATCH", "/v2/sandboxes/"+name+"?projectId=prj_test", `{"tags":{}}`) // and the mark is gone
		require.Equal(t, http.StatusOK, status, answer)
		w.stop(session)
		w.resume(info.ID)
		now, err := w.p.Get(context.Background(), info.ID)
		require.NoError(t, err)
		assert.NotEqual(t, info.Run, now.Run)
		assert.Equal(t, info.ID, now.ID)
		assert.Equal(t, sandbox.StateRunning, now.State)
		require.NoError(t, w.p.Delete(context.Background(), info.ID))
		w.nothing()
	})
}

func TestASessionWhoseRecordIsGoneIsSeenAndStopped(t *testing.T) {
	bubble(t, func(w *world) {
		info := w.make(time.Minute)
		name, session := parts(info.ID)
		status, answer := w.others("DELETE", "/v2/sandboxes/"+name+"?projectId=prj_test", "") // a machine that takes its time
		require.Equal(t, http.StatusOK, status, answer)
		now, err := w.p.Get(context.Background(), info.ID)
		require.NoError(t, err)
		assert.True(t, now.State.MayRun())
		assert.Contains(t, now.Detail, "its record is gone")
		w.fake.Fault("stopSession", vercelfake.Fault{Status: 500})
		assert.Error(t, w.p.Delete(context.Background(), info.ID), "what was not asked for is no success")
		asked := w.asked()
		assert.NoError(t, w.p.Delete(context.Background(), info.ID))
		assert.Equal(t, 1, asked("stopSession"))
		time.Sleep(time.Minute)
		_, err = w.p.Get(context.Background(), info.ID)
		assert.ErrorIs(t, err, sandbox.ErrNotFound)
		assert.NotEmpty(t, session)
	}, func(o *vercelfake.Options, _ *vercel.Config) { o.Behaviour.DeleteTime = 20 * time.Second })
}

func TestSnapshotsStayWhereThatIsWanted(t *testing.T) {
	for _, keep := range []bool{false, true} {
		t.Run(fmt.Sprint(keep), func(t *testing.T) {
			bubble(t, func(w *world) {
				err := w.manager().WithSandbox(context.Background(), func(_ context.Context, sb sandbox.Sandbox) error {
					_, session := parts(sb.ID())
					w.snapshot(session)
					return nil
				})
				assert.NoError(t, err)
				if keep {
					assert.Len(t, w.fake.Snapshots(), 1)
				} else {
					w.nothing()
				}
			}, func(_ *vercelfake.Options, c *vercel.Config) { c.KeepSnapshots = keep })
		})
	}
}

func TestTheSweeperRemovesKeptSnapshotsOfSandboxesWhoseOwnerIsGone(t *testing.T) {
	bubble(t, func(w *world) {
		info := w.make(time.Minute)
		_, session := parts(info.ID)
		w.snapshot(session)
		other := w.make(3 * time.Hour) // whose snapshot is not this one's
		_, session = parts(other.ID)
		kept := w.snapshot(session)
		var own []string
		for s, err := range w.p.Snapshots(context.Background(), info.ID) {
			require.NoError(t, err)
			own = append(own, s.ID)
		}
		require.Len(t, own, 1)
		assert.NotContains(t, own, kept)
		w.sweep(3, 15*time.Minute)
		w.nothing()
	}, func(_ *vercelfake.Options, c *vercel.Config) { c.KeepSnapshots = true })
}

func TestEndpointsAreTheServicesAddresses(t *testing.T) {
	bubble(t, func(w *world) {
		req := order(time.Minute)
		req.Spec.Ports = []int{3000}
		info, err := w.p.Create(context.Background(), req)
		require.NoError(t, err)
		sent := w.sent.Load()
		e, err := w.p.Open(info).Endpoint(context.Background(), 3000)
		require.NoError(t, err)
		assert.Regexp(t, `^https://[a-z0-9-]+\.vercel\.run$`, e.URL)
		assert.Equal(t, sent, w.sent.Load(), "the create has told it")
		again, err := w.p.Open(sandbox.Info{ID: info.ID}).Endpoint(context.Background(), 3000)
		require.NoError(t, err)
		assert.Equal(t, e, again)
	})
}

func TestAnOrderThatTheServiceDidNotFollowIsUnfit(t *testing.T) {
	const answer = `200 {"sandbox":{"name":"%s","persistent":%v,"createdAt":1,"updatedAt":1,"currentSessionId":"sbx_1","status":"running","tags":{"sandglass":"%s"}},
		"session":{"id":"sbx_1","status":"running","timeout":60000,"createdAt":1,"requestedAt":1,"updatedAt":1},"routes":[]}`
	req := order(time.Minute)
	for what, a := range map[string]string{
		"persistent":   fmt.Sprintf(answer, req.Mark.Name(), true, req.Mark),
		"another name": fmt.Sprintf(answer, "calm-heron", false, req.Mark),
		"no mark":      fmt.Sprintf(answer, req.Mark.Name(), false, ""),
	} {
		info, err := answers(t, a).Create(context.Background(), req)
		assert.Error(t, err, what)
		assert.NotEmpty(t, info.ID, "%s: to be deleted", what)
		assert.False(t, apiError(t, err).Refused, what)
	}
	info, err := answers(t, fmt.Sprintf(answer, req.Mark.Name(), false, req.Mark)).Create(context.Background(), req)
	assert.NoError(t, err)
	assert.Equal(t, req.Mark.Name()+"/sbx_1", info.ID)
}
