package vercelfake

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/sandbox"
)

func (s *Server) create(ctx context.Context, c *call) (any, error) {
	var o order
	if err := c.decode(&o); err != nil {
		return nil, err
	}
	version := 3
	if c.URL.Path == "/v2/sandboxes" {
		version = 2
	}
	conf := defaults(version)
	switch {
	case o.CurrentSnapshotID != nil:
		return nil, invalid("Invalid request: unknown field \"currentSnapshotId\"")
	case version == 3 && o.Runtime != nil:
		return nil, invalid("runtime is not supported here: use image")
	}
	if err := o.apply(&conf, s.maxCPUs()); err != nil {
		return nil, err
	}
	return s.make(ctx, c.project, &o, conf, o.Tags)
}

func (s *Server) maxCPUs() int {
	if n := s.Quirks().MaxCPUs; n > 0 {
		return n
	}
	return 8
}

// make makes a sandbox and answers when it runs, or when that takes too long. That a name that is taken is a 400 is
// known from production; so is that its code says no more than "bad_request".
func (s *Server) make(ctx context.Context, p Scope, o *order, conf config, tags map[string]string) (any, error) {
	if most := s.svc.Behaviour().PlanLifetime; most > 0 && conf.timeout > most {
		return nil, timeoutInvalid("timeout must be at most %d on this plan", most.Milliseconds())
	}
	if conf.source != "" {
		s.mu.Lock()
		snap := s.findSnapshot(conf.source)
		s.mu.Unlock()
		if snap == nil {
			return nil, snapshotGone(conf.source)
		}
	}
	b := &box{project: p, config: conf}
	if o.Name != nil {
		b.name = *o.Name
	} else {
		b.name = newID("calm-grey-heron-")[:22]
	}
	image := conf.image
	if image == "" {
		image = conf.runtime
	}
	rec, err := s.svc.Create(ctx, fake.Order{
		Name: s.serviceName(p, b.name), Image: image, Tags: maps.Clone(tags), Window: conf.timeout, Data: b,
	})
	if e, ok := errors.AsType[*sandbox.APIError](err); ok && e.Code == fake.NameTaken {
		return nil, invalid("A sandbox with the name %q already exists for this project", b.name)
	}
	if err != nil {
		return nil, err
	}
	if rec.ID == "" || rec.Data == nil {
		if rec.Data == nil {
			rec.Name = b.name
		}
		return s.view(rec), nil
	}
	return s.view(s.awaitStart(ctx, rec)), nil
}

// serviceName is the name that the state machine knows, which is unique over projects.
func (s *Server) serviceName(p Scope, name string) string {
	if p == s.opts.Projects[0] {
		return name
	}
	return p.ID + "/" + name
}

// awaitStart waits until a sandbox runs, or as long as a create waits, and returns its record.
func (s *Server) awaitStart(ctx context.Context, rec fake.Record) fake.Record {
	most := s.Quirks().CreateWait
	if most == 0 {
		most = 10 * time.Second
	}
	end := time.Now().Add(most)
	for rec.State == sandbox.StateStarting {
		in := min(rec.Created.Add(s.svc.Behaviour().StartTime).Sub(rec.AsOf), time.Until(end))
		if left := time.Until(end); in <= 0 {
			in = min(left, 100*time.Millisecond)
		}
		if in <= 0 || pass(ctx, in) != nil {
			break
		}
		now, ok := s.svc.Lookup(rec.ID)
		if !ok {
			break
		}
		rec = now
		if s.svc.Behaviour().HideDeadline {
			rec.Deadline = time.Time{}
		}
	}
	return rec
}

// fork copies a sandbox's config and tags, but for what the body says, and begins with its latest snapshot.
func (s *Server) fork(ctx context.Context, c *call) (any, error) {
	var o order
	if err := c.decode(&o); err != nil {
		return nil, err
	}
	if o.ProjectID != nil || o.Source != nil || o.CurrentSnapshotID != nil {
		return nil, invalid("a fork takes neither a project nor a source")
	}
	rec, b, err := s.find(c, s.truly)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	conf := b.config
	conf.source = ""
	if s.findSnapshot(b.snapshot) != nil {
		conf.source = b.snapshot
	}
	s.mu.Unlock()
	tags := rec.Tags
	if o.Tags != nil {
		tags = o.Tags
	}
	if err := o.apply(&conf, s.maxCPUs()); err != nil {
		return nil, err
	}
	return s.make(ctx, c.project, &o, conf, tags)
}

// update changes a sandbox: what concerns the machine, from its next session on.
func (s *Server) update(ctx context.Context, c *call) (any, error) {
	var o order
	if err := c.decode(&o); err != nil {
		return nil, err
	}
	if o.ProjectID != nil || o.Name != nil || o.Source != nil || o.Image != nil || o.Architecture != nil {
		return nil, invalid("name, image, architecture, source and project cannot be changed")
	}
	rec, b, err := s.find(c, s.truly)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	conf := b.config
	s.mu.Unlock()
	if err := o.apply(&conf, s.maxCPUs()); err != nil {
		return nil, err
	}
	if most := s.svc.Behaviour().PlanLifetime; o.Timeout != nil && most > 0 && conf.timeout > most {
		return nil, timeoutInvalid("timeout must be at most %d on this plan", most.Milliseconds())
	}
	if o.Tags != nil {
		if rec, err = s.svc.Retag(ctx, b.id, o.Tags); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	if o.CurrentSnapshotID != nil && s.findSnapshot(*o.CurrentSnapshotID) == nil {
		s.mu.Unlock()
		return nil, snapshotGone(*o.CurrentSnapshotID)
	}
	b.config = conf
	b.updated = rec.AsOf
	if o.CurrentSnapshotID != nil {
		b.snapshot = *o.CurrentSnapshotID
	}
	s.mu.Unlock()
	v := s.view(rec)
	return map[string]any{"sandbox": v.Sandbox, "routes": v.Routes}, nil
}

// setPolicy changes whom the running session reaches.
func (s *Server) setPolicy(_ context.Context, c *call) (any, error) {
	ses, rec, err := s.live(c)
	if err != nil {
		return nil, err
	}
	mode, err := policyMode(c.body)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	ses.policy, ses.updated = mode, rec.AsOf
	return map[string]any{"session": s.sessionView(ses, rec)}, nil
}
