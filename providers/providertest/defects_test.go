package providertest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"path"
	"strings"
	"time"

	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxtest"
)

// order replaces a create by one with another order.
func order(change func(*sandbox.CreateRequest)) func(*sandboxtest.Provider, *adapter) {
	return func(p *sandboxtest.Provider, b *adapter) {
		b.create = func(ctx context.Context, req sandbox.CreateRequest) (sandbox.Info, error) {
			change(&req)
			info, err := p.Create(ctx, req)
			b.made.Store(info.ID, req.Spec)
			return info, err
		}
	}
}

// seen changes what every look says.
func seen(change func(*sandbox.Info)) func(*sandboxtest.Provider, *adapter) {
	return func(p *sandboxtest.Provider, b *adapter) {
		b.get = func(ctx context.Context, id string) (sandbox.Info, error) {
			info, err := p.Get(ctx, id)
			change(&info)
			return info, err
		}
		b.list = func(ctx context.Context, f sandbox.Filter) iter.Seq2[sandbox.Info, error] {
			return func(yield func(sandbox.Info, error) bool) {
				for info, err := range p.List(ctx, f) {
					if change(&info); !yield(info, err) {
						return
					}
				}
			}
		}
	}
}

// listed replaces List by one that leaves rows out, or errors.
func listed(keep func(n int, info sandbox.Info, err error) bool) func(*sandboxtest.Provider, *adapter) {
	return func(p *sandboxtest.Provider, b *adapter) {
		b.list = func(ctx context.Context, f sandbox.Filter) iter.Seq2[sandbox.Info, error] {
			return func(yield func(sandbox.Info, error) bool) {
				n := 0
				for info, err := range p.List(ctx, f) {
					if keep(n, info, err) && !yield(info, err) {
						return
					}
					n++
				}
			}
		}
	}
}

// command changes every command before it is run.
func command(change func(*sandbox.Cmd)) func(*sandboxtest.Provider, *adapter) {
	return func(_ *sandboxtest.Provider, b *adapter) {
		b.box.exec = func(ctx context.Context, sb sandbox.Sandbox, cmd sandbox.Cmd) (sandbox.Result, error) {
			change(&cmd)
			return sb.Exec(ctx, cmd)
		}
	}
}

// result changes how every command ended.
func result(change func(*sandbox.Result, *error)) func(*sandboxtest.Provider, *adapter) {
	return func(_ *sandboxtest.Provider, b *adapter) {
		b.box.exec = func(ctx context.Context, sb sandbox.Sandbox, cmd sandbox.Cmd) (sandbox.Result, error) {
			res, err := sb.Exec(ctx, cmd)
			change(&res, &err)
			return res, err
		}
	}
}

// claims changes what the adapter says of the service.
func claims(change func(*sandbox.Capabilities)) func(*sandboxtest.Provider, *adapter) {
	return func(_ *sandboxtest.Provider, b *adapter) { change(&b.facts) }
}

type (
	facts  = sandbox.Capabilities
	habits = sandboxtest.Behaviour
)

func defects() []defect {
	all := []defect{{name: "none at all"}}
	// Every flag, overstated and understated.
	for _, f := range []struct {
		name, rule string
		set        func(*facts, bool)
	}{
		{"CreateOnce", "create/the same mark twice makes what CreateOnce says", func(c *facts, v bool) { c.CreateOnce = v }},
		{
			"MarkAtCreate", "create/the mark is written at create, or Capabilities say that it is not",
			func(c *facts, v bool) { c.MarkAtCreate = v },
		},
		{
			"ReadsDeadline", "lease/a deadline that is read back follows, as ReadsDeadline says",
			func(c *facts, v bool) { c.ReadsDeadline = v },
		},
		{"Stdin", "exec/Cmd.Stdin is read to its end, as Capabilities.Stdin says", func(c *facts, v bool) { c.Stdin = v }},
		{
			"SplitOutput", "exec/stdout and stderr are apart, as Capabilities.SplitOutput says",
			func(c *facts, v bool) { c.SplitOutput = v },
		},
		{
			"BinaryOut", "exec/output arrives byte for byte, as Capabilities.BinaryOut says",
			func(c *facts, v bool) { c.BinaryOut = v },
		},
		{
			"Kill", "exec/when its context ends Exec returns the cause at once, and the command dies as Capabilities.Kill says",
			func(c *facts, v bool) { c.Kill = v },
		},
		{
			"Endpoints", "endpoint/Spec.Ports and Endpoint work, or are refused before any request, as Capabilities.Endpoints says",
			func(c *facts, v bool) { c.Endpoints = v },
		},
		{"AtExpiry gone", "lease/a sandbox that nobody extends ends by itself, and leaves what AtExpiry says", func(c *facts, v bool) {
			c.AtExpiry = sandbox.StateDormant
			if v {
				c.AtExpiry = sandbox.StateGone
			}
		}},
		{"Extend set", "lease/Extend moves the end as Capabilities.Extend says, never later than asked", func(c *facts, v bool) {
			c.Extend = sandbox.ExtendNone
			if v {
				c.Extend = sandbox.ExtendSet
			}
		}},
	} {
		for _, over := range []bool{true, false} {
			word := map[bool]string{true: "overstated", false: "understated"}[over]
			all = append(all, defect{
				name: f.name + " " + word, rule: f.rule,
				facts:  func(c *facts) { f.set(c, !over) },
				breaks: claims(func(c *facts) { f.set(c, over) }),
			})
		}
	}
	limits := "lease/the shortest and the longest window are accepted"
	tags := "tags/as many and as long tags as Capabilities allow are accepted and read back"
	beyond := "tags/more or longer tags than Capabilities allow are refused before any request"
	for _, f := range []struct {
		name, rule string
		claim      func(*facts)
	}{
		{"MaxWindow overstated", limits, func(c *facts) { c.MaxWindow += time.Hour }},
		{"MinWindow understated", limits, func(c *facts) { c.Step, c.MinWindow = 500*time.Millisecond, 500*time.Millisecond }},
		{"MaxTags overstated", tags, func(c *facts) { c.MaxTags++ }},
		{"MaxTags understated", beyond, func(c *facts) { c.MaxTags-- }},
		{"MaxTagKey overstated", tags, func(c *facts) { c.MaxTagKey++ }},
		{"MaxTagKey understated", beyond, func(c *facts) { c.MaxTagKey-- }},
		{"MaxTagValue overstated", tags, func(c *facts) { c.MaxTagValue++ }},
		{"MaxTagValue understated", beyond, func(c *facts) { c.MaxTagValue-- }},
	} {
		all = append(all, defect{name: f.name, rule: f.rule, breaks: claims(f.claim)})
	}
	return append(append(append(all, lifeDefects()...), dataDefects()...), specDefects()...)
}

// lifeDefects are defects of create, look, extend, list and delete.
func lifeDefects() []defect {
	expiry := "lease/a sandbox that nobody extends ends by itself, and leaves what AtExpiry says"
	moves := "lease/Extend moves the end as Capabilities.Extend says, never later than asked"
	marks := "create/the mark is read back by Get and by every List, unchanged"
	unknown := "delete/Get and Delete of an unknown or malformed ID are ErrNotFound, and touch nothing"
	gone := "delete/after Delete the sandbox is gone for Get and List, and stays gone"
	return []defect{
		{
			name:   "leases are ended a minute later than Lateness says",
			rule:   expiry,
			habits: func(b *habits) { b.Lateness = time.Minute },
		},
		{name: "leases are not enforced", rule: expiry, habits: func(b *habits) { b.Unenforced = true }},
		{
			name:   "a create asks for twice the window",
			rule:   expiry,
			breaks: order(func(r *sandbox.CreateRequest) { r.Window *= 2 }),
		},
		{name: "a create asks for no end", rule: expiry, habits: func(b *habits) { b.NoLease = true }},
		{
			name:   "a create drops the mark's owner",
			rule:   marks,
			breaks: order(func(r *sandbox.CreateRequest) { r.Mark.Owner = "x" }),
		},
		{name: "looks do not read the mark", rule: marks, breaks: seen(func(i *sandbox.Info) { i.Mark = sandbox.Mark{} })},
		{
			name: "a create returns no ID",
			rule: "create/a create returns an ID and the sandbox gets to run",
			breaks: func(p *sandboxtest.Provider, b *adapter) {
				b.create = func(ctx context.Context, req sandbox.CreateRequest) (sandbox.Info, error) {
					_, err := p.Create(ctx, req)
					return sandbox.Info{}, err
				}
			},
		},
		{
			name: "a create ignores its context",
			rule: "create/a create whose context is over makes nothing",
			breaks: func(p *sandboxtest.Provider, b *adapter) {
				b.create = func(ctx context.Context, req sandbox.CreateRequest) (sandbox.Info, error) {
					return p.Create(context.WithoutCancel(ctx), req)
				}
			},
		},
		{
			name:  "a create without an answer is sent once more",
			rule:  "faults/a lost answer to Create is an error that leaves open what was made, and is not tried again",
			facts: func(c *facts) { c.CreateOnce = false },
			breaks: func(p *sandboxtest.Provider, b *adapter) {
				b.create = func(ctx context.Context, req sandbox.CreateRequest) (sandbox.Info, error) {
					if info, err := p.Create(ctx, req); err == nil {
						return info, nil
					}
					return p.Create(ctx, req)
				}
			},
		},
		{
			name: "a create without an answer is called refused",
			rule: "faults/a lost answer to Create is an error that leaves open what was made, and is not tried again",
			breaks: func(p *sandboxtest.Provider, b *adapter) {
				b.create = func(ctx context.Context, req sandbox.CreateRequest) (sandbox.Info, error) {
					info, err := p.Create(ctx, req)
					if e, ok := errors.AsType[*sandbox.APIError](err); ok {
						e.Refused = true
					}
					return info, err
				}
			},
		},
		{
			name: "an ID is known to the process that made it only",
			rule: "create/an ID suffices in another process",
			breaks: func(p *sandboxtest.Provider, b *adapter) {
				b.open = func(info sandbox.Info) sandbox.Sandbox {
					if info.Mark.Nonce == "" {
						info.ID = "unknown"
					}
					return p.Open(info)
				}
			},
		},
		{name: "an extend asks for a minute more", rule: moves, breaks: func(p *sandboxtest.Provider, b *adapter) {
			b.extend = func(ctx context.Context, cur sandbox.Info, w time.Duration) (sandbox.Info, error) {
				return p.Extend(ctx, cur, w+time.Minute)
			}
		}},
		{
			name: "an extend adds to what is left, and tells what was asked for",
			rule: moves,
			breaks: func(p *sandboxtest.Provider, b *adapter) {
				b.extend = func(ctx context.Context, cur sandbox.Info, w time.Duration) (sandbox.Info, error) {
					info, err := p.Extend(ctx, cur, w+cur.Left())
					info.Deadline = info.AsOf.Add(w)
					return info, err
				}
			},
		},
		{name: "an extend only looks", rule: moves, breaks: func(p *sandboxtest.Provider, b *adapter) {
			b.extend = func(ctx context.Context, cur sandbox.Info, w time.Duration) (sandbox.Info, error) {
				return p.Get(ctx, cur.ID)
			}
		}},
		{
			name: "an extend claims success for what is gone",
			rule: "lease/Extend of a sandbox that is gone is no success and brings nothing back",
			breaks: func(p *sandboxtest.Provider, b *adapter) {
				b.extend = func(ctx context.Context, cur sandbox.Info, w time.Duration) (sandbox.Info, error) {
					if info, err := p.Extend(ctx, cur, w); err == nil {
						return info, nil
					}
					return cur, nil
				}
			},
		},
		{
			name: "an extend resumes what sleeps",
			rule: "lease/Extend wakes nothing that sleeps",
			breaks: func(p *sandboxtest.Provider, b *adapter) {
				b.extend = func(ctx context.Context, cur sandbox.Info, w time.Duration) (sandbox.Info, error) {
					p.Resume(cur.ID)
					return p.Extend(ctx, cur, w)
				}
			},
		},
		{
			name: "an extend never brings the end nearer",
			rule: "lease/a service that sets deadlines also brings them nearer",
			breaks: func(p *sandboxtest.Provider, b *adapter) {
				b.extend = func(ctx context.Context, cur sandbox.Info, w time.Duration) (sandbox.Info, error) {
					return p.Extend(ctx, cur, max(w, cur.Left().Truncate(time.Second)))
				}
			},
		},
		{
			name: "windows are rounded up to 30 s",
			rule: "lease/a window off the limits or the step is refused, or ends no later than asked",
			breaks: order(func(r *sandbox.CreateRequest) {
				r.Window = min(((r.Window+29*time.Second)/(30*time.Second)+1)*30*time.Second, 24*time.Hour)
			}),
		},
		{
			name:   "a list swallows its error",
			rule:   "faults/a List that fails ends with an error",
			breaks: listed(func(_ int, _ sandbox.Info, err error) bool { return err == nil }),
		},
		{
			name:   "a list swallows a repeated cursor",
			rule:   "faults/a List that goes round in circles ends with an error",
			breaks: listed(func(_ int, _ sandbox.Info, err error) bool { return err == nil }),
		},
		{
			name:   "a list shows one page",
			rule:   "list/List goes over all pages",
			breaks: listed(func(n int, _ sandbox.Info, _ error) bool { return n < 3 }),
		},
		{
			name: "a list yields after it was left",
			rule: "list/List may be left early and asked again",
			breaks: func(p *sandboxtest.Provider, b *adapter) {
				b.list = func(ctx context.Context, f sandbox.Filter) iter.Seq2[sandbox.Info, error] {
					return func(yield func(sandbox.Info, error) bool) {
						for info, err := range p.List(ctx, f) {
							yield(info, err)
						}
					}
				}
			},
		},
		{
			name:   "a list hides dormant sandboxes",
			rule:   "delete/Delete of a dormant sandbox works and does not wake it",
			breaks: listed(func(_ int, i sandbox.Info, _ error) bool { return i.State != sandbox.StateDormant }),
		},
		{
			name:  "a list says running of everything",
			rule:  expiry,
			facts: func(c *facts) { c.AtExpiry = sandbox.StateDormant },
			breaks: func(p *sandboxtest.Provider, b *adapter) {
				seen(func(i *sandbox.Info) { i.State = sandbox.StateRunning })(p, b)
				b.get = nil
			},
		},
		{name: "deletes do nothing", rule: gone, breaks: func(p *sandboxtest.Provider, b *adapter) {
			b.del = func(ctx context.Context, id string) error { _, err := p.Get(ctx, id); return err }
		}},
		{name: "deletes pause", rule: gone, breaks: func(p *sandboxtest.Provider, b *adapter) {
			b.del = func(ctx context.Context, id string) error {
				if _, err := p.Get(ctx, id); err != nil {
					return p.Delete(ctx, id)
				}
				p.Pause(id)
				return nil
			}
		}},
		{
			name:   "deletes take longer than DeleteTime says",
			rule:   gone,
			habits: func(b *habits) { b.DeleteTime = time.Minute },
		},
		{
			name: "a delete of what is gone claims success",
			rule: "delete/Delete of what is gone is ErrNotFound",
			breaks: func(p *sandboxtest.Provider, b *adapter) {
				b.del = func(ctx context.Context, id string) error {
					if err := p.Delete(ctx, id); !errors.Is(err, sandbox.ErrNotFound) {
						return err
					}
					return nil
				}
			},
		},
		{
			name: "a delete that fails says that there is nothing",
			rule: "faults/a Delete that fails is an error and no proof",
			breaks: func(p *sandboxtest.Provider, b *adapter) {
				b.del = func(ctx context.Context, id string) error {
					if err := p.Delete(ctx, id); err != nil {
						return &sandbox.APIError{Provider: "x", Op: sandbox.OpDelete, ID: id, Kind: sandbox.ErrNotFound}
					}
					return nil
				}
			},
		},
		{
			name: "a delete that fails claims success",
			rule: "faults/a Delete that fails is an error and no proof",
			breaks: func(p *sandboxtest.Provider, b *adapter) {
				b.del = func(ctx context.Context, id string) error {
					if err := p.Delete(ctx, id); errors.Is(err, sandbox.ErrNotFound) {
						return err
					}
					return nil
				}
			},
		},
		{
			name: "a delete resumes what sleeps",
			rule: "delete/Delete of a dormant sandbox works and does not wake it",
			breaks: func(p *sandboxtest.Provider, b *adapter) {
				b.del = func(ctx context.Context, id string) error {
					if p.Resume(id) {
						return nil
					}
					return p.Delete(ctx, id)
				}
			},
		},
		{
			name: "a delete removes the whole fleet",
			rule: "delete/two creates make two sandboxes, and Delete removes one of them",
			breaks: func(p *sandboxtest.Provider, b *adapter) {
				b.del = func(ctx context.Context, id string) error {
					err := p.Delete(ctx, id)
					for _, i := range p.Live() {
						p.Delete(ctx, i.ID)
					}
					return err
				}
			},
		},
		{
			name: "a look that fails says that there is nothing",
			rule: "faults/a Get that fails is an error and proves nothing",
			breaks: func(p *sandboxtest.Provider, b *adapter) {
				b.get = func(ctx context.Context, id string) (sandbox.Info, error) {
					info, err := p.Get(ctx, id)
					if err != nil {
						err = &sandbox.APIError{Provider: "x", Op: sandbox.OpGet, ID: id, Kind: sandbox.ErrNotFound}
					}
					return info, err
				}
			},
		},
		{name: "an unknown ID is no ErrNotFound", rule: unknown, breaks: func(p *sandboxtest.Provider, b *adapter) {
			b.get = func(ctx context.Context, id string) (sandbox.Info, error) {
				info, err := p.Get(ctx, id)
				if e, ok := errors.AsType[*sandbox.APIError](err); ok {
					e.Kind = nil
				}
				return info, err
			}
		}},
		{name: "errors are not typed", rule: unknown, breaks: func(p *sandboxtest.Provider, b *adapter) {
			b.get = func(ctx context.Context, id string) (sandbox.Info, error) {
				info, err := p.Get(ctx, id)
				if errors.Is(err, sandbox.ErrNotFound) {
					err = fmt.Errorf("get: %w", sandbox.ErrNotFound)
				}
				return info, err
			}
		}},
		{
			name: "errors name another operation",
			rule: "errors/an error names provider, operation and sandbox",
			breaks: func(p *sandboxtest.Provider, b *adapter) {
				b.del = func(ctx context.Context, id string) error {
					err := p.Delete(ctx, id)
					if e, ok := errors.AsType[*sandbox.APIError](err); ok {
						e.Op = sandbox.OpGet
					}
					return err
				}
			},
		},
		{name: "errors show the key", rule: unknown, breaks: func(p *sandboxtest.Provider, b *adapter) {
			b.get = func(ctx context.Context, id string) (sandbox.Info, error) {
				info, err := p.Get(ctx, id)
				if e, ok := errors.AsType[*sandbox.APIError](err); ok {
					e.Message = "GET /?key=the-account's-key"
				}
				return info, err
			}
		}},
		{
			name: "context errors are hidden",
			rule: "errors/a call whose context is over returns its error at once",
			breaks: func(p *sandboxtest.Provider, b *adapter) {
				b.get = func(ctx context.Context, id string) (sandbox.Info, error) {
					info, err := p.Get(ctx, id)
					if ctx.Err() != nil {
						err = &sandbox.APIError{Provider: "x", Op: sandbox.OpGet, Kind: sandbox.ErrUnavailable}
					}
					return info, err
				}
			},
		},
		{
			name: "Open looks first",
			rule: "errors/Name, Capabilities and Open make no request",
			breaks: func(p *sandboxtest.Provider, b *adapter) {
				b.open = func(info sandbox.Info) sandbox.Sandbox {
					p.Get(context.Background(), info.ID)
					return p.Open(info)
				}
			},
		},
		{
			name: "refused credentials say that there is nothing",
			rule: "faults/credentials that are refused prove nothing",
			breaks: func(p *sandboxtest.Provider, b *adapter) {
				b.del = func(ctx context.Context, id string) error {
					err := p.Delete(ctx, id)
					if e, ok := errors.AsType[*sandbox.APIError](err); ok && errors.Is(err, sandbox.ErrUnauthenticated) {
						e.Kind = sandbox.ErrNotFound
					}
					return err
				}
			},
		},
		{
			name: "RetryAfter is lost",
			rule: "faults/a Create that the service refuses says so, and when to come back",
			breaks: func(p *sandboxtest.Provider, b *adapter) {
				b.create = func(ctx context.Context, req sandbox.CreateRequest) (sandbox.Info, error) {
					info, err := p.Create(ctx, req)
					if e, ok := errors.AsType[*sandbox.APIError](err); ok {
						e.RetryAfter = 0
					}
					return info, err
				}
			},
		},
		{
			name: "what starts is called running",
			rule: "faults/a sandbox that never gets to run is not called running",
			breaks: seen(func(i *sandbox.Info) {
				if i.State == sandbox.StateStarting {
					i.State = sandbox.StateRunning
				}
			}),
		},
		{
			name: "deletes and looks only pretend",
			rule: "scope/a function that returns leaves nothing",
			breaks: func(p *sandboxtest.Provider, b *adapter) {
				deleted := false
				b.del = func(context.Context, string) error { deleted = true; return nil }
				b.get = func(ctx context.Context, id string) (sandbox.Info, error) {
					if deleted {
						return sandbox.Info{}, &sandbox.APIError{Provider: "x", Op: sandbox.OpGet, ID: id, Kind: sandbox.ErrNotFound}
					}
					return p.Get(ctx, id)
				}
				listed(func(int, sandbox.Info, error) bool { return !deleted })(p, b)
			},
		},
		{
			name:   "beats only pretend",
			rule:   "scope/beats keep a sandbox alive for longer than its window",
			breaks: func(_ *sandboxtest.Provider, b *adapter) { b.extend = pretend },
		},
		{
			name: "looks and beats say that everything runs",
			rule: "scope/a sandbox that the service ended ends the scope with ErrLeaseLost",
			breaks: func(p *sandboxtest.Provider, b *adapter) {
				b.extend = pretend
				b.get = func(ctx context.Context, id string) (sandbox.Info, error) {
					info, err := p.Get(ctx, id)
					if err != nil && len(p.Calls(sandbox.OpDelete)) == 0 {
						return pretend(ctx, sandbox.Info{ID: id, State: sandbox.StateRunning}, time.Minute)
					}
					return info, err
				}
			},
		},
		{
			name:   "a sandbox comes back after its delete",
			rule:   gone,
			facts:  func(c *facts) { c.Revival = 10 * time.Second },
			habits: func(b *habits) { b.ReviveAfter = 5 * time.Second },
			breaks: func(p *sandboxtest.Provider, b *adapter) {
				p.Fault(sandbox.OpDelete, sandboxtest.Fault{Effect: sandboxtest.EffectRevive})
			},
		},
	}
}

// pretend is an Extend without a request.
func pretend(_ context.Context, cur sandbox.Info, w time.Duration) (sandbox.Info, error) {
	cur.AsOf = time.Now()
	cur.Deadline = cur.AsOf.Add(w)
	return cur, nil
}

// dataDefects are defects of commands, files and endpoints.
func dataDefects() []defect {
	timeout := "exec/after its Timeout a command is killed with all its children"
	cancel := "exec/when its context ends Exec returns the cause at once, and the command dies as Capabilities.Kill says"
	env := "exec/Cmd.Env reaches the command exactly, and that command only"
	large := "exec/of a large output all is streamed and the last 1 MiB is kept"
	return []defect{
		{name: "Cmd.Env is dropped", rule: env, breaks: command(func(c *sandbox.Cmd) { c.Env = nil })},
		{name: "Cmd.Env is trimmed", rule: env, breaks: command(func(c *sandbox.Cmd) {
			c.Env = maps.Clone(c.Env)
			for k, v := range c.Env {
				c.Env[k] = strings.TrimSpace(v)
			}
		})},
		{name: "Cmd.Env stays for the next command", rule: env, breaks: func(_ *sandboxtest.Provider, b *adapter) {
			last := map[string]string{}
			b.box.exec = func(ctx context.Context, sb sandbox.Sandbox, cmd sandbox.Cmd) (sandbox.Result, error) {
				maps.Copy(last, cmd.Env)
				cmd.Env = maps.Clone(last)
				return sb.Exec(ctx, cmd)
			}
		}},
		{
			name:   "Cmd.Dir is dropped",
			rule:   "exec/Cmd.Dir is where the command runs",
			breaks: command(func(c *sandbox.Cmd) { c.Dir = "" }),
		},
		{
			name:   "Cmd.User is dropped",
			rule:   "exec/Cmd.User is who runs it, or is refused",
			breaks: command(func(c *sandbox.Cmd) { c.User = "" }),
		},
		{
			name:   "Cmd.Stdin is dropped",
			rule:   "exec/Cmd.Stdin is read to its end, as Capabilities.Stdin says",
			breaks: command(func(c *sandbox.Cmd) { c.Stdin = nil }),
		},
		{
			name: "Cmd.Stdin is never empty",
			rule: "exec/without Cmd.Stdin standard input is empty",
			breaks: command(func(c *sandbox.Cmd) {
				if c.Stdin == nil {
					c.Stdin = strings.NewReader("y\n")
				}
			}),
		},
		{name: "Cmd.Timeout is dropped", rule: timeout, breaks: command(func(c *sandbox.Cmd) { c.Timeout = time.Hour })},
		{name: "a passed Timeout is an error", rule: timeout, breaks: result(func(r *sandbox.Result, err *error) {
			if r.TimedOut {
				*err = context.DeadlineExceeded
			}
		})},
		{name: "a passed Timeout is exit code 137", rule: timeout, breaks: result(func(r *sandbox.Result, _ *error) {
			if r.TimedOut {
				r.ExitCode = 137
			}
		})},
		{name: "output before the Timeout is lost", rule: timeout, breaks: result(func(r *sandbox.Result, _ *error) {
			if r.TimedOut {
				r.Stdout = nil
			}
		})},
		{name: "children outlive the Timeout", rule: timeout, breaks: func(_ *sandboxtest.Provider, b *adapter) {
			b.box.exec = func(ctx context.Context, sb sandbox.Sandbox, cmd sandbox.Cmd) (sandbox.Result, error) {
				res, err := sb.Exec(ctx, cmd)
				if res.TimedOut { // a survivor, as the service would have it
					go sb.Exec(ctx, sandbox.Cmd{Args: cmd.Args, Timeout: 20 * time.Second})
				}
				return res, err
			}
		}},
		{name: "a cancelled command is waited for", rule: cancel, breaks: func(_ *sandboxtest.Provider, b *adapter) {
			b.box.exec = func(ctx context.Context, sb sandbox.Sandbox, cmd sandbox.Cmd) (sandbox.Result, error) {
				res, err := sb.Exec(context.WithoutCancel(ctx), cmd)
				if ctx.Err() != nil {
					err = context.Cause(ctx)
				}
				return res, err
			}
		}},
		{name: "a cancelled command loses its cause", rule: cancel, breaks: result(func(_ *sandbox.Result, err *error) {
			if *err != nil {
				*err = context.Canceled
			}
		})},
		{name: "a cancelled command loses its output", rule: cancel, breaks: result(func(r *sandbox.Result, err *error) {
			if *err != nil {
				*r = sandbox.Result{}
			}
		})},
		{
			name: "an exit code is an error",
			rule: "exec/the exit code is the command's, and not an error",
			breaks: result(func(r *sandbox.Result, err *error) {
				if *err == nil {
					*err = r.Err()
				}
			}),
		},
		{
			name:   "an exit code is 1 or 0",
			rule:   "exec/the exit code is the command's, and not an error",
			breaks: result(func(r *sandbox.Result, _ *error) { r.ExitCode = min(r.ExitCode, 1) }),
		},
		{
			name: "a signal is lost",
			rule: "exec/a command that is killed ends with 128+n",
			breaks: result(func(r *sandbox.Result, _ *error) {
				if r.ExitCode > 128 {
					r.ExitCode = -1
				}
			}),
		},
		{
			name: "a missing program is an error",
			rule: "exec/a program that does not exist ends with 127",
			breaks: result(func(r *sandbox.Result, err *error) {
				if r.ExitCode == 127 {
					*err = sandbox.ErrInvalid
				}
			}),
		},
		{
			name: "arguments go through a shell",
			rule: "exec/arguments arrive as they are, with no shell in between",
			breaks: command(func(c *sandbox.Cmd) {
				if len(c.Args) > 0 {
					c.Args = []string{"sh", "-c", `eval "$*"`, "sh", strings.Join(c.Args, " ")}
				}
			}),
		},
		{
			name:   "stderr is lost",
			rule:   "exec/stdout and stderr are apart, as Capabilities.SplitOutput says",
			breaks: command(func(c *sandbox.Cmd) { c.Stderr = io.Discard }),
		},
		{
			name:   "one writer gets stdout only",
			rule:   "exec/both streams may go to one writer",
			breaks: command(func(c *sandbox.Cmd) { c.Stderr = nil }),
		},
		{name: "output is kept whole", rule: large, breaks: func(_ *sandboxtest.Provider, b *adapter) {
			b.box.exec = func(ctx context.Context, sb sandbox.Sandbox, cmd sandbox.Cmd) (sandbox.Result, error) {
				var out bytes.Buffer
				if cmd.Stdout != nil {
					cmd.Stdout = io.MultiWriter(cmd.Stdout, &out)
				}
				res, err := sb.Exec(ctx, cmd)
				res.Stdout = out.Bytes()
				return res, err
			}
		}},
		{
			name:   "Truncated is never set",
			rule:   large,
			breaks: result(func(r *sandbox.Result, _ *error) { r.Truncated = false }),
		},
		{
			name:   "only what was kept is streamed",
			rule:   large,
			breaks: func(_ *sandboxtest.Provider, b *adapter) { b.box.exec = late },
		},
		{
			name:   "output arrives at the end",
			rule:   "exec/output arrives before the command ends",
			breaks: func(_ *sandboxtest.Provider, b *adapter) { b.box.exec = late },
		},
		{
			name: "commands run one after the other",
			rule: "exec/commands run at the same time",
			breaks: func(_ *sandboxtest.Provider, b *adapter) {
				turn := make(chan struct{}, 1)
				b.box.exec = func(ctx context.Context, sb sandbox.Sandbox, cmd sandbox.Cmd) (sandbox.Result, error) {
					turn <- struct{}{}
					defer func() { <-turn }()
					return sb.Exec(ctx, cmd)
				}
			},
		},
		{
			name: "commands are not checked",
			rule: "exec/a command with faults is refused before any request",
			breaks: command(func(c *sandbox.Cmd) {
				if !path.IsAbs(c.Dir) {
					c.Dir = ""
				}
			}),
		},
		{
			name: "a command starts over on what is gone",
			rule: "delete/a deleted sandbox runs no command",
			breaks: func(p *sandboxtest.Provider, b *adapter) {
				b.box.exec = func(ctx context.Context, sb sandbox.Sandbox, cmd sandbox.Cmd) (sandbox.Result, error) {
					res, err := sb.Exec(ctx, cmd)
					if err != nil && ctx.Err() == nil {
						return sandbox.Result{}, nil
					}
					return res, err
				}
			},
		},
		{
			name: "an upload adds a newline",
			rule: "files/what was uploaded is downloaded, byte for byte",
			breaks: func(_ *sandboxtest.Provider, b *adapter) {
				b.box.upload = func(ctx context.Context, sb sandbox.Sandbox, name string, r io.Reader) error {
					return sb.Upload(ctx, name, io.MultiReader(r, strings.NewReader("\n")))
				}
			},
		},
		{
			name: "names are cut at a space",
			rule: "files/names are taken as they are",
			breaks: func(_ *sandboxtest.Provider, b *adapter) {
				b.box.upload = func(ctx context.Context, sb sandbox.Sandbox, name string, r io.Reader) error {
					name, _, _ = strings.Cut(name, " ")
					return sb.Upload(ctx, name, r)
				}
			},
		},
		{
			name: "an upload appends",
			rule: "files/an upload replaces what was there",
			breaks: func(_ *sandboxtest.Provider, b *adapter) {
				b.box.upload = func(ctx context.Context, sb sandbox.Sandbox, name string, r io.Reader) error {
					var old bytes.Buffer
					sb.Download(ctx, name, &old)
					return sb.Upload(ctx, name, io.MultiReader(&old, r))
				}
			},
		},
		{
			name: "a missing file is ErrNotFound",
			rule: "files/a missing file is fs.ErrNotExist and not ErrNotFound",
			breaks: func(_ *sandboxtest.Provider, b *adapter) {
				b.box.download = func(ctx context.Context, sb sandbox.Sandbox, name string, w io.Writer) error {
					err := sb.Download(ctx, name, w)
					if errors.Is(err, fs.ErrNotExist) {
						err = fmt.Errorf("%w: %w", sandbox.ErrNotFound, err)
					}
					return err
				}
			},
		},
		{
			name: "a relative name is taken from the root",
			rule: "files/a relative or empty name is ErrInvalid, before any request",
			breaks: func(_ *sandboxtest.Provider, b *adapter) {
				b.box.upload = func(ctx context.Context, sb sandbox.Sandbox, name string, r io.Reader) error {
					return sb.Upload(ctx, path.Join("/", name), r)
				}
			},
		},
		{
			name: "an upload swallows its reader's error",
			rule: "files/a reader or writer that fails is an error",
			breaks: func(_ *sandboxtest.Provider, b *adapter) {
				b.box.upload = func(ctx context.Context, sb sandbox.Sandbox, name string, r io.Reader) error {
					data, _ := io.ReadAll(r)
					return sb.Upload(ctx, name, bytes.NewReader(data))
				}
			},
		},
		{
			name: "any port has an endpoint",
			rule: "endpoint/a port that was not declared is ErrInvalid",
			breaks: func(_ *sandboxtest.Provider, b *adapter) {
				b.box.endpoint = func(ctx context.Context, sb sandbox.Sandbox, port int) (sandbox.Endpoint, error) {
					return sandbox.Endpoint{URL: fmt.Sprintf("http://127.0.0.1:%d", port)}, nil
				}
			},
		},
	}
}

// late runs cmd and writes what was kept of its output when it is over.
func late(ctx context.Context, sb sandbox.Sandbox, cmd sandbox.Cmd) (sandbox.Result, error) {
	out := cmd.Stdout
	cmd.Stdout = nil
	res, err := sb.Exec(ctx, cmd)
	if out != nil {
		out.Write(res.Stdout)
	}
	return res, err
}

// specDefects are defects in what is ordered: Spec and tags.
func specDefects() []defect {
	tags := "tags/tags are read back by Get and List, and the mark is not among them"
	return []defect{
		{
			name:   "Spec.Env is dropped",
			rule:   "spec/Spec.Env reaches every command, and Cmd.Env goes over it",
			breaks: order(func(r *sandbox.CreateRequest) { r.Spec.Env = nil }),
		},
		{
			name: "Spec.Env goes over Cmd.Env",
			rule: "spec/Spec.Env reaches every command, and Cmd.Env goes over it",
			breaks: func(p *sandboxtest.Provider, b *adapter) {
				b.create = func(ctx context.Context, req sandbox.CreateRequest) (sandbox.Info, error) {
					b.box.exec = func(ctx context.Context, sb sandbox.Sandbox, cmd sandbox.Cmd) (sandbox.Result, error) {
						cmd.Env = maps.Clone(cmd.Env)
						for k := range req.Spec.Env {
							delete(cmd.Env, k)
						}
						return sb.Exec(ctx, cmd)
					}
					return p.Create(ctx, req)
				}
			},
		},
		{
			name:   "Spec.CPU is dropped",
			rule:   "spec/Spec.CPU is honoured or refused",
			breaks: order(func(r *sandbox.CreateRequest) { r.Spec.CPU = 0 }),
		},
		{
			name:   "Spec.Memory is halved",
			rule:   "spec/Spec.Memory is honoured or refused",
			breaks: order(func(r *sandbox.CreateRequest) { r.Spec.Memory /= 2 }),
		},
		{
			name:   "Spec.Disk is dropped",
			rule:   "spec/Spec.Disk is honoured or refused",
			breaks: order(func(r *sandbox.CreateRequest) { r.Spec.Disk = 0 }),
		},
		{
			name:   "Spec.Offline is dropped",
			rule:   "spec/Spec.Offline is honoured or refused",
			breaks: order(func(r *sandbox.CreateRequest) { r.Spec.Offline = false }),
		},
		{
			name:   "Spec.Ports are dropped",
			rule:   "endpoint/Spec.Ports and Endpoint work, or are refused before any request, as Capabilities.Endpoints says",
			breaks: order(func(r *sandbox.CreateRequest) { r.Spec.Ports = nil }),
		},
		{
			name:   "Spec.Native is not looked at",
			rule:   "spec/Spec.Native of another type is ErrInvalid before any request",
			breaks: order(func(r *sandbox.CreateRequest) { r.Spec.Native = nil }),
		},
		{
			name:   "Spec.Image is dropped",
			rule:   "spec/an image that does not exist is ErrInvalid and leaves nothing",
			breaks: order(func(r *sandbox.CreateRequest) { r.Spec.Image = "" }),
		},
		{
			name: "an unknown image is ErrNotFound",
			rule: "spec/an image that does not exist is ErrInvalid and leaves nothing",
			breaks: func(p *sandboxtest.Provider, b *adapter) {
				b.create = func(ctx context.Context, req sandbox.CreateRequest) (sandbox.Info, error) {
					info, err := p.Create(ctx, req)
					if e, ok := errors.AsType[*sandbox.APIError](err); ok {
						e.Kind = sandbox.ErrNotFound
					}
					return info, err
				}
			},
		},
		{
			name: "an unknown image leaves a sandbox",
			rule: "spec/an image that does not exist is ErrInvalid and leaves nothing",
			breaks: func(p *sandboxtest.Provider, b *adapter) {
				b.create = func(ctx context.Context, req sandbox.CreateRequest) (sandbox.Info, error) {
					info, err := p.Create(ctx, req)
					if err != nil {
						req.Spec.Image = ""
						p.Create(ctx, req)
					}
					return info, err
				}
			},
		},
		{
			name:   "a Spec is not checked",
			rule:   "spec/a Spec with faults is refused before any request",
			breaks: order(func(r *sandbox.CreateRequest) { r.Spec.Memory = max(r.Spec.Memory, 0) }),
		},
		{
			name: "a Spec is refused only after a request",
			rule: "spec/a Spec with faults is refused before any request",
			breaks: func(p *sandboxtest.Provider, b *adapter) {
				b.create = func(ctx context.Context, req sandbox.CreateRequest) (sandbox.Info, error) {
					for range p.List(ctx, sandbox.Filter{Nonce: req.Mark.Nonce}) {
					}
					return p.Create(ctx, req)
				}
			},
		},
		{
			name: "a refusal does not say that nothing was made",
			rule: "spec/a Spec with faults is refused before any request",
			breaks: func(p *sandboxtest.Provider, b *adapter) {
				b.create = func(ctx context.Context, req sandbox.CreateRequest) (sandbox.Info, error) {
					info, err := p.Create(ctx, req)
					if e, ok := errors.AsType[*sandbox.APIError](err); ok {
						e.Refused = false
					}
					return info, err
				}
			},
		},
		{
			name: "an error shows Spec.Env",
			rule: "spec/no error shows Spec.Env",
			breaks: func(p *sandboxtest.Provider, b *adapter) {
				b.create = func(ctx context.Context, req sandbox.CreateRequest) (sandbox.Info, error) {
					info, err := p.Create(ctx, req)
					if e, ok := errors.AsType[*sandbox.APIError](err); ok {
						e.Message = fmt.Sprint(req.Spec)
					}
					return info, err
				}
			},
		},
		{name: "tags are dropped", rule: tags, breaks: order(func(r *sandbox.CreateRequest) { r.Tags = nil })},
		{name: "the mark is among the tags", rule: tags, breaks: seen(func(i *sandbox.Info) {
			i.Tags = maps.Clone(i.Tags)
			if i.Tags != nil {
				i.Tags[sandbox.MarkKey] = i.Mark.String()
			}
		})},
		{
			name: "tags are escaped",
			rule: "tags/odd values are read back as they are, or refused",
			breaks: order(func(r *sandbox.CreateRequest) {
				r.Tags = maps.Clone(r.Tags)
				for k, v := range r.Tags {
					r.Tags[k] = strings.ReplaceAll(v, "+", " ")
				}
			}),
		},
	}
}
