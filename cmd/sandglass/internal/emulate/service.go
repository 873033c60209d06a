package emulate

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/internal/fake/boatfake"
	"github.com/sandglass-dev/sandglass/internal/fake/daytonafake"
	"github.com/sandglass-dev/sandglass/internal/fake/e2bfake"
	"github.com/sandglass-dev/sandglass/internal/fake/vercelfake"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// A service is what is emulated.
type service struct {
	name    string
	title   string // as its makers write it
	handler http.Handler
	state   *fake.Service
	id      func(r fake.Record) string       // under which clients know a sandbox
	env     func(base string) (env []string) // what its official SDK reads, as NAME=value
	hint    string                           // what the environment cannot say
	ends    func(id string) time.Time        // when a running sandbox ends that the state machine knows no end of; nil: never
	settle  func()                           // has happen what is due; nil: nothing waits
	forget  func()                           // empties its own log of requests, bodies and all: we may serve for weeks
	close   func()
}

// Services names what can be emulated.
func Services() []string { return []string{"boat", "daytona", "e2b", "modal", "vercel"} }

func newService(name string) (*service, error) {
	switch name {
	case "e2b":
		f := e2bfake.New(e2bfake.Options{})
		return &service{
			name: name, title: "E2B", handler: f, state: f.Service(), close: f.Close,
			forget: f.ForgetRequests,
			id:     func(r fake.Record) string { return f.WireID(r.ID) },
			env: func(base string) []string {
				return []string{"E2B_API_KEY=" + e2bfake.DefaultKey, "E2B_API_URL=" + base, "E2B_SANDBOX_URL=" + base}
			},
		}, nil
	case "daytona":
		const key = "dtn_emulator"
		f := daytonafake.New(daytonafake.Options{Key: key, Prompt: true})
		return &service{
			name: name, title: "Daytona", handler: f, state: f.Service(), settle: f.Settle, forget: f.ForgetRequests, close: f.Close,
			id: func(r fake.Record) string { return daytonafake.WireID(r.ID) },
			env: func(base string) []string {
				return []string{
					"DAYTONA_API_KEY=" + key, "DAYTONA_API_URL=" + base + "/api", "DAYTONA_TARGET=us",
					"DAYTONA_USE_DEPRECATED_POLLING=true", // there is no stream of events here
				}
			},
			ends: func(id string) time.Time { // its idle clock, if nobody uses the sandbox
				b, ok := f.Lookup(id)
				last, err := time.Parse(time.RFC3339, b.LastActivityAt)
				if !ok || err != nil || b.AutoStopInterval <= 0 {
					return time.Time{}
				}
				return last.Add(time.Duration(b.AutoStopInterval) * time.Minute)
			},
		}, nil
	case "vercel":
		f := vercelfake.New(vercelfake.Options{})
		return &service{
			name: name, title: "Vercel Sandbox", handler: f, state: f.Service(), settle: f.Settle, forget: f.ForgetRequests, close: f.Close,
			id: func(r fake.Record) string { return r.Name },
			env: func(base string) []string {
				return []string{
					"VERCEL_TOKEN=" + vercelfake.DefaultToken, "VERCEL_TEAM_ID=" + vercelfake.DefaultTeam().ID,
					"VERCEL_PROJECT_ID=" + vercelfake.DefaultProject().ID,
					"SANDGLASS_VERCEL_URL=" + base, // ours: no official variable names the address
				}
			},
			hint: "the official SDK has no variable for the address: give it a fetch that replaces https://vercel.com by the address above",
		}, nil
	case "boat":
		const key = "boat_emulator"
		f := boatfake.New(boatfake.Options{Key: key, Prompt: true})
		return &service{
			name: name, title: "boat.dev", handler: f, state: f.Service(), settle: f.Settle, forget: f.ForgetRequests, close: f.Close,
			id: func(r fake.Record) string { return boatfake.WireID(r.ID) },
			env: func(base string) []string {
				return []string{"BOAT_API_KEY=" + key, "BOAT_BASE_URL=" + base + "/api/v1"}
			},
			hint: "generated SDKs read no variable themselves: give them BOAT_BASE_URL as their base path and BOAT_API_KEY as their token",
		}, nil
	case "modal":
		return newModal(), nil
	}
	known := Services()
	return nil, fmt.Errorf("emulate: service %q is none of %s and %s: %w",
		name, strings.Join(known[:len(known)-1], ", "), known[len(known)-1], sandbox.ErrInvalid)
}

// labels returns who the mark says made a sandbox, and the other tags in order.
func labels(r fake.Record) (owner string, tags []Tag) {
	if m, err := sandbox.ParseMark(r.Tags[sandbox.MarkKey]); err == nil {
		owner = m.Fleet + ", " + m.Owner
	}
	for k, v := range r.Tags {
		if owner == "" || k != sandbox.MarkKey && k != sandbox.FleetKey && k != sandbox.NonceKey {
			tags = append(tags, Tag{k, v})
		}
	}
	slices.SortFunc(tags, func(a, b Tag) int { return strings.Compare(a.Key, b.Key) })
	return owner, tags
}
