package main

import (
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/internal/fake/daytonafake"
	"github.com/sandglass-dev/sandglass/internal/fake/e2bfake"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// service is what is emulated.
type service struct {
	handler http.Handler
	state   *fake.Service
	id      func(machine string) string      // the id under which clients know a sandbox
	env     func(base string) (env []string) // what its official SDK reads, as NAME=value
	close   func()
}

func newService(name string) (*service, error) {
	var s *service
	switch name {
	case "e2b":
		f := e2bfake.New(e2bfake.Options{})
		s = &service{
			handler: f, state: f.Service(), id: f.WireID, close: f.Close,
			env: func(base string) []string {
				return []string{"E2B_API_KEY=" + e2bfake.DefaultKey, "E2B_API_URL=" + base, "E2B_SANDBOX_URL=" + base}
			},
		}
	case "daytona":
		const key = "dtn_emulator"
		f := daytonafake.New(daytonafake.Options{Key: key, Prompt: true})
		s = &service{
			handler: f, state: f.Service(), id: daytonafake.WireID, close: f.Close,
			env: func(base string) []string {
				return []string{
					"DAYTONA_API_KEY=" + key, "DAYTONA_API_URL=" + base + "/api", "DAYTONA_TARGET=us",
					"DAYTONA_USE_DEPRECATED_POLLING=true", // there is no stream of events here
				}
			},
		}
	default:
		return nil, fmt.Errorf("service %q is none of e2b and daytona", name)
	}
	s.state.Watch(func(c fake.Change) {
		fmt.Fprintf(os.Stderr, "%s  %v\n", c.At.Local().Format("15:04:05.000"), s.box(c.Record))
	})
	return s, nil
}

// box is one sandbox, as people are told of it.
type box struct {
	id       string
	state    sandbox.State
	detail   string
	left     time.Duration // until its deadline; 0: none
	metadata map[string]string
}

func (s *service) box(r fake.Record) box {
	b := box{id: s.id(r.ID), state: r.State, detail: r.Detail, metadata: r.Tags}
	if !r.Deadline.IsZero() {
		b.left = r.Deadline.Sub(r.AsOf)
	}
	return b
}

func (b box) String() string {
	text := fmt.Sprintf("%s is %v", b.id, b.state)
	if b.detail != "" {
		text += " (" + b.detail + ")"
	}
	if b.left > 0 {
		text += fmt.Sprintf(", ends by itself in %v", b.left.Round(time.Second))
	}
	if len(b.metadata) > 0 {
		text += fmt.Sprintf(", %v", b.metadata)
	}
	return text
}

// left returns every sandbox that may run, or of which a record is kept.
func (s *service) left() []box {
	var all []box
	for _, r := range s.state.All() {
		all = append(all, s.box(r))
	}
	return all
}
