package sandboxtest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// A Provider is one account on a sandbox service in memory. All methods are safe for concurrent use.
// It is a [sandbox.Provider] and a [sandbox.Checker]; where it extends by setting, [sandbox.As] also finds a
// [sandbox.Shortener]. Use [New] or [Kind.New].
type Provider struct {
	name string
	caps sandbox.Capabilities
	svc  *fake.Service

	mu       sync.Mutex
	calls    []*Call
	handlers []Handler
}

var (
	_ sandbox.Provider = (*Provider)(nil)
	_ sandbox.Checker  = (*Provider)(nil)
)

// New returns a service that behaves as caps say, or as [Everything] says if caps are zero.
func New(caps sandbox.Capabilities) *Provider {
	if caps == (sandbox.Capabilities{}) {
		caps = Everything()
	}
	return Kind{Capabilities: caps}.New()
}

// New returns an empty service of this kind. Its Name is "memory/" and the kind's name.
func (k Kind) New() *Provider {
	b := behaviourOf(k.Capabilities)
	if k.Behave != nil {
		k.Behave(&b)
	}
	name := "memory"
	if k.Name != "" {
		name += "/" + k.Name
	}
	p := &Provider{name: name, caps: k.Capabilities, svc: fake.New(k.Capabilities.Extend, fake.Behaviour(b))}
	p.svc.Watch(func(c fake.Change) {
		if m, ok := c.Record.Data.(*machine); ok && c.Record.State == sandbox.StateGone {
			m.scrap()
		}
	})
	return p
}

// behaviourOf returns the habits that follow from caps.
func behaviourOf(caps sandbox.Capabilities) Behaviour {
	b := Behaviour{
		UniqueNames: caps.CreateOnce,
		MinWindow:   caps.MinWindow,
		AtExpiry:    caps.AtExpiry,
		Lateness:    caps.Lateness,

		ListMissesNew:    caps.ReadLag,
		ListShowsDeleted: caps.ReadLag,

		PendingTime: 10 * time.Second,
		ReviveAfter: 3 * time.Second,
		OrphanTime:  80 * time.Second,
	}
	if caps.MaxWindow > 0 {
		b.MaxWindow = caps.MaxWindow + caps.StartAllowance
	}
	if b.AtExpiry != sandbox.StateDormant {
		b.AtExpiry = sandbox.StateGone
	}
	if caps.DeleteDoubt > 0 {
		b.OrphanTime = caps.DeleteDoubt
	}
	return b
}

// Name returns "memory", or "memory/e2b" and the like for a [Kind].
func (p *Provider) Name() string { return p.name }

// Capabilities returns what p was made with.
func (p *Provider) Capabilities() sandbox.Capabilities { return p.caps }

// Native returns what [sandbox.As] finds beside p itself: a [sandbox.Shortener] where leases are set, otherwise nil.
func (p *Provider) Native() any {
	if p.caps.Extend != sandbox.ExtendSet {
		return nil
	}
	return shortener{p}
}

// Create implements [sandbox.Provider]. Every name for Spec.Image is known but those in [Behaviour.UnknownImages],
// and every image is the same small Unix. Spec.Disk limits the file system; CPU, Memory and Offline are accepted, for
// no command here uses any or reaches anything. Spec.Native may hold [*Options].
func (p *Provider) Create(ctx context.Context, req sandbox.CreateRequest) (info sandbox.Info, err error) {
	if err := p.acceptable(req); err != nil {
		return sandbox.Info{}, p.refusal(sandbox.OpCreate, "", err)
	}
	call, err := p.arrive(ctx, Call{Op: sandbox.OpCreate, Nonce: req.Mark.Nonce, Window: req.Window})
	if err != nil {
		return sandbox.Info{}, err
	}
	defer p.leave(call, &err)

	habits := p.svc.Behaviour()
	order := fake.Order{
		Image:  req.Spec.Image,
		Body:   fmt.Sprintf("%v %v %+v %v", req.Mark, req.Tags, req.Spec, req.Window),
		Window: req.Window,
		Hard:   req.Mark.Lifetime,
		Data:   newMachine(req.Spec),
	}
	if habits.UniqueNames {
		order.Name = req.Mark.Name()
	}
	if habits.Keys {
		order.Key = req.Mark.Nonce
	}
	tags := maps.Clone(req.Tags)
	if tags == nil {
		tags = map[string]string{}
	}
	tags[sandbox.MarkKey], tags[sandbox.FleetKey], tags[sandbox.NonceKey] = req.Mark.String(), req.Mark.Fleet, req.Mark.Nonce
	if p.caps.MarkAtCreate {
		order.Tags = tags
	}

	r, err := p.svc.Create(ctx, order)
	if e, ok := errors.AsType[*sandbox.APIError](err); ok && e.Code == fake.NameTaken {
		if info := p.info(r); info.Mark.Nonce == req.Mark.Nonce {
			err = nil // ours: the create before this one was done
		} else {
			r = fake.Record{}
		}
	}
	p.learn(call, r.ID)
	if err != nil && r.ID == "" {
		return sandbox.Info{}, p.failure(sandbox.OpCreate, "", err)
	}
	info = p.granted(r, req.Window)
	if err != nil {
		return info, p.failure(sandbox.OpCreate, r.ID, err)
	}
	if p.caps.MarkAtCreate || info.Mark.Nonce == req.Mark.Nonce || r.ID == "" {
		return info, nil
	}
	req.Tags = tags
	return p.mark(ctx, info, req)
}

// mark is the second half of a create that cannot carry the mark, which is among req.Tags.
func (p *Provider) mark(ctx context.Context, info sandbox.Info, req sandbox.CreateRequest) (_ sandbox.Info, err error) {
	call, err := p.arrive(ctx, Call{Op: sandbox.OpCreate, ID: info.ID, Nonce: req.Mark.Nonce})
	if err != nil {
		return info, err
	}
	defer p.leave(call, &err)
	r, err := p.svc.Retag(ctx, info.ID, req.Tags)
	if err != nil {
		return info, p.failure(sandbox.OpCreate, info.ID, err)
	}
	return p.granted(r, req.Window), nil
}

// acceptable reports every fault of req that needs no request to be found.
func (p *Provider) acceptable(req sandbox.CreateRequest) error {
	faults := []error{req.Spec.Validate()}
	fault := func(kind error, format string, args ...any) {
		faults = append(faults, fmt.Errorf(format+": %w", append(args, kind)...))
	}
	if _, err := sandbox.ParseMark(req.Mark.String()); err != nil {
		faults = append(faults, fmt.Errorf("create without a proper mark: %w", err))
	}
	if err := p.window(req.Window, p.caps.MaxWindow+p.caps.StartAllowance); err != nil {
		faults = append(faults, err)
	}
	if len(req.Tags) > p.caps.MaxTags {
		fault(sandbox.ErrInvalid, "%d tags are more than %d", len(req.Tags), p.caps.MaxTags)
	}
	for _, k := range slices.Sorted(maps.Keys(req.Tags)) {
		switch {
		case k == "" || len(k) > p.caps.MaxTagKey:
			fault(sandbox.ErrInvalid, "tag %q is empty or longer than %d", k, p.caps.MaxTagKey)
		case len(req.Tags[k]) > p.caps.MaxTagValue:
			fault(sandbox.ErrInvalid, "value of tag %q is longer than %d", k, p.caps.MaxTagValue)
		case k == sandbox.MarkKey || strings.HasPrefix(k, sandbox.MarkKey+"-"):
			fault(sandbox.ErrInvalid, "tag %q belongs to the mark", k)
		}
	}
	if len(req.Spec.Ports) > 0 && !p.caps.Endpoints {
		fault(errors.ErrUnsupported, "ports")
	}
	switch o := req.Spec.Native.(type) {
	case nil:
	case *Options:
		if o != nil {
			faults = append(faults, o.validate())
		}
	default:
		fault(sandbox.ErrInvalid, "native options of type %T instead of *sandboxtest.Options", o)
	}
	return errors.Join(faults...)
}

// window reports what is wrong with the window d.
func (p *Provider) window(d, longest time.Duration) error {
	switch {
	case d <= 0 || d < p.caps.MinWindow || longest > 0 && d > longest:
		return fmt.Errorf("window %v is not within %v and %v: %w", d, p.caps.MinWindow, longest, sandbox.ErrInvalid)
	case p.caps.Step > 0 && d%p.caps.Step != 0:
		return fmt.Errorf("window %v is no multiple of %v: %w", d, p.caps.Step, sandbox.ErrInvalid)
	}
	return nil
}

// Get implements [sandbox.Provider].
func (p *Provider) Get(ctx context.Context, id string) (_ sandbox.Info, err error) {
	call, err := p.arrive(ctx, Call{Op: sandbox.OpGet, ID: id})
	if err != nil {
		return sandbox.Info{}, err
	}
	defer p.leave(call, &err)
	r, err := p.svc.Get(ctx, id)
	if err != nil {
		return sandbox.Info{}, p.failure(sandbox.OpGet, id, err)
	}
	return p.answer(r), nil
}

// List implements [sandbox.Provider].
func (p *Provider) List(ctx context.Context, f sandbox.Filter) iter.Seq2[sandbox.Info, error] {
	return func(yield func(sandbox.Info, error) bool) {
		var q fake.Query
		if f.Fleet != "" {
			q.Tags = append(q.Tags, fake.Tag{Key: sandbox.FleetKey, Value: f.Fleet})
		}
		if f.Nonce != "" {
			q.Tags = append(q.Tags, fake.Tag{Key: sandbox.NonceKey, Value: f.Nonce})
		}
		seen := map[string]bool{}
		for {
			page, err := p.page(ctx, f, q)
			if err != nil {
				yield(sandbox.Info{}, err)
				return
			}
			for _, r := range page.Records {
				if !yield(p.answer(r), nil) {
					return
				}
			}
			if page.Next == "" {
				return
			}
			if seen[page.Next] {
				loop := &sandbox.APIError{Message: "a cursor leads back to an earlier page"}
				yield(sandbox.Info{}, p.failure(sandbox.OpList, "", loop))
				return
			}
			seen[page.Next] = true
			q.Cursor = page.Next
		}
	}
}

// page asks for one page of a list.
func (p *Provider) page(ctx context.Context, f sandbox.Filter, q fake.Query) (_ fake.Page, err error) {
	call, err := p.arrive(ctx, Call{Op: sandbox.OpList, Nonce: f.Nonce})
	if err != nil {
		return fake.Page{}, err
	}
	defer p.leave(call, &err)
	page, err := p.svc.List(ctx, q)
	if err != nil {
		return fake.Page{}, p.failure(sandbox.OpList, "", err)
	}
	return page, nil
}

// Extend implements [sandbox.Provider]. Where there is nothing to change, it is a Get.
func (p *Provider) Extend(ctx context.Context, cur sandbox.Info, window time.Duration) (_ sandbox.Info, err error) {
	by := window
	if p.caps.Extend == sandbox.ExtendNone {
		return p.Get(ctx, cur.ID)
	}
	if err := p.window(window, p.caps.MaxWindow); err != nil {
		return sandbox.Info{}, p.refusal(sandbox.OpExtend, cur.ID, err)
	}
	if p.caps.Extend == sandbox.ExtendAdd {
		if cur.Deadline.IsZero() {
			if cur, err = p.Get(ctx, cur.ID); err != nil || cur.Deadline.IsZero() {
				return cur, err // to add to what is not known could go too far
			}
		}
		by = window - cur.Left()
		if p.caps.Step > 0 {
			by -= by % p.caps.Step
		}
		if by <= 0 || by < p.caps.MinWindow {
			return p.Get(ctx, cur.ID)
		}
	}
	call, err := p.arrive(ctx, Call{Op: sandbox.OpExtend, ID: cur.ID, Window: window})
	if err != nil {
		return sandbox.Info{}, err
	}
	defer p.leave(call, &err)
	r, err := p.svc.Extend(ctx, cur.ID, by)
	if err != nil {
		return sandbox.Info{}, p.failure(sandbox.OpExtend, cur.ID, err)
	}
	return p.granted(r, window), nil
}

// Delete implements [sandbox.Provider].
func (p *Provider) Delete(ctx context.Context, id string) (err error) {
	call, err := p.arrive(ctx, Call{Op: sandbox.OpDelete, ID: id})
	if err != nil {
		return err
	}
	defer p.leave(call, &err)
	return p.failure(sandbox.OpDelete, id, p.svc.Delete(ctx, id))
}

// Check implements [sandbox.Checker]. The account is told PlanLifetime, MaxLive and Skew of [Behaviour]; with NoDelete
// the error matches [sandbox.ErrPermission]. The request is an [sandbox.OpGet] without an id.
func (p *Provider) Check(ctx context.Context) (_ sandbox.Account, err error) {
	call, err := p.arrive(ctx, Call{Op: sandbox.OpGet})
	if err != nil {
		return sandbox.Account{}, err
	}
	defer p.leave(call, &err)
	if err := p.svc.Ping(ctx, sandbox.OpGet); err != nil {
		return sandbox.Account{}, p.failure(sandbox.OpGet, "", err)
	}
	b := p.svc.Behaviour()
	a := sandbox.Account{ID: p.name, MaxLifetime: b.PlanLifetime, MaxLive: b.MaxLive, Skew: time.Until(p.svc.Now()), SkewKnown: true}
	if b.NoDelete {
		e := Status(403)
		e.Message = "the key may not delete"
		return a, p.failure(sandbox.OpGet, "", e)
	}
	return a, nil
}

// shortener is a Provider whose leases can be set.
type shortener struct{ *Provider }

var _ sandbox.Shortener = shortener{}

// Shorten implements [sandbox.Shortener].
func (s shortener) Shorten(ctx context.Context, id string, left time.Duration) (err error) {
	p := s.Provider
	if err := p.window(left, p.caps.MaxWindow); err != nil {
		return p.refusal(sandbox.OpShorten, id, err)
	}
	call, err := p.arrive(ctx, Call{Op: sandbox.OpShorten, ID: id, Window: left})
	if err != nil {
		return err
	}
	defer p.leave(call, &err)
	return p.failure(sandbox.OpShorten, id, p.svc.Shorten(ctx, id, left))
}

// info returns all that is true of r.
func (p *Provider) info(r fake.Record) sandbox.Info {
	i := sandbox.Info{
		ID: r.ID, State: r.State, Created: r.Created, Deadline: r.Deadline, AsOf: r.AsOf, Run: r.Run, Detail: r.Detail,
		Tags: maps.Clone(r.Tags),
	}
	m, err := sandbox.ParseMark(r.Tags[sandbox.MarkKey])
	if err == nil && (!p.svc.Behaviour().UniqueNames || r.Name == m.Name()) {
		i.Mark = m
	}
	for _, k := range []string{sandbox.MarkKey, sandbox.FleetKey, sandbox.NonceKey} {
		delete(i.Tags, k)
	}
	return i
}

// answer returns what a look tells of r.
func (p *Provider) answer(r fake.Record) sandbox.Info {
	i := p.info(r)
	if !p.caps.ReadsDeadline {
		i.Deadline = time.Time{}
	}
	return i
}

// granted returns what a create or extend tells of r; where the service does not tell the deadline, it is a sum.
func (p *Provider) granted(r fake.Record, window time.Duration) sandbox.Info {
	i := p.answer(r)
	if !p.caps.ReadsDeadline && (r.State == sandbox.StateStarting || r.State == sandbox.StateRunning) {
		i.Deadline = r.AsOf.Add(window)
	}
	return i
}

// failure completes an error of the service.
func (p *Provider) failure(op sandbox.Op, id string, err error) error {
	e, ok := err.(*sandbox.APIError)
	if !ok {
		return err
	}
	done := *e
	if done.Provider == "" {
		done.Provider = p.name
	}
	if done.Op == "" {
		done.Op = op
	}
	if done.ID == "" {
		done.ID = id
	}
	return &done
}

// refusal is the error of a call that is not made.
func (p *Provider) refusal(op sandbox.Op, id string, err error) error {
	return &sandbox.APIError{Provider: p.name, Op: op, ID: id, Refused: true, Err: err}
}
