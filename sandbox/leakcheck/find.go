package leakcheck

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sandglass-dev/sandglass/internal/contain"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// Why a check fails. An error may match several.
var (
	ErrLeak      = errors.New("sandboxes are left")
	ErrBlind     = errors.New("could not see everything")
	ErrNoWitness = errors.New("nothing seen, and nothing shows that there was anything to be seen with")
)

// CanaryFleet is the fleet of a [Canary]. One that an earlier check left past its lease is a leak of every check.
const CanaryFleet = "sandglass-leakcheck"

const (
	lookTime = 30 * time.Second // limit of one look
	listTime = 5 * time.Minute  // limit of one list
	lateness = 30 * time.Second // where a provider does not tell how late its service acts on deadlines
)

// A Class says why a sandbox counts.
type Class string

// Classes.
const (
	Ours     Class = "ours"     // made by this process
	OfFleet  Class = "fleet"    // of the fleet, past its lease
	Unmarked Class = "unmarked" // nothing says whose it is
)

// A Leak is one sandbox that is left.
type Leak struct {
	Class Class
	Info  sandbox.Info
	Site  string // file and line of the WithSandbox that made it, where a [Record] saw that; else empty
}

// An Error names what is left. It matches [ErrLeak].
type Error struct {
	Provider string
	Leaks    []Leak
	Unmarked []sandbox.Info // seen beside them, for people: nothing says that they are leaks
}

// Error names each leak with id, class, state, age, owner, deadline, and the place where this process made it.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d %v:", e.Provider, len(e.Leaks), ErrLeak)
	for _, l := range e.Leaks {
		fmt.Fprintf(&b, "\n\t%s (%s)", describe(l.Info), l.Class)
		if l.Site != "" {
			fmt.Fprintf(&b, "\n\t\tmade at %s", l.Site)
		}
	}
	if len(e.Unmarked) > 0 {
		fmt.Fprintf(&b, "\n%d more without any mark, which may be anybody's:", len(e.Unmarked))
		for _, i := range e.Unmarked {
			fmt.Fprintf(&b, "\n\t%s", describe(i))
		}
	}
	return b.String()
}

// Is reports whether target is [ErrLeak].
func (e *Error) Is(target error) bool { return target == ErrLeak }

func describe(i sandbox.Info) string {
	age, end, owner := "of unknown age", "with no known deadline", ""
	if !i.Created.IsZero() && !i.AsOf.IsZero() {
		age = i.AsOf.Sub(i.Created).Round(time.Second).String() + " old"
	}
	if !i.Deadline.IsZero() {
		end = "with its deadline " + i.Deadline.UTC().Format(time.RFC3339)
		if left := i.Left().Round(time.Second); left < 0 {
			end += fmt.Sprintf(", %v ago", -left)
		} else {
			end += fmt.Sprintf(", in %v", left)
		}
	}
	if m := i.Mark; m != (sandbox.Mark{}) {
		owner = fmt.Sprintf(", owner %s of fleet %s, nonce %s", m.Owner, m.Fleet, m.Nonce)
	}
	return fmt.Sprintf("sandbox %s is %s, %s, %s%s", i.ID, i.State, age, end, owner)
}

// A check is one run of Find.
type check struct {
	p         sandbox.Provider
	caps      sandbox.Capabilities
	fleet     string
	ids       map[string]bool // of what must be gone
	nonces    map[string]bool
	sites     map[string]string // by nonce: where it was made
	witnesses []string
	sources   []func(context.Context) ([]string, error)
	canary    *sandbox.Spec
	patience  time.Duration

	unwitnessed, strict bool
	canaryID            string
}

func (c *check) known(i sandbox.Info) {
	if i.ID != "" {
		c.ids[i.ID] = true
	}
	if i.Mark.Nonce != "" {
		c.nonces[i.Mark.Nonce] = true
	}
}

// Find returns nil if a witness shows that the account could be seen and nothing is left there. Otherwise the error matches
// [ErrLeak], with an [*Error] that names what is left, [ErrBlind] or [ErrNoWitness]; and [sandbox.LeakError] names a canary that
// could not be deleted. It returns within its patience and two lists, or when ctx ends.
func Find(ctx context.Context, p sandbox.Provider, opts ...Option) error {
	if p == nil {
		return fmt.Errorf("leakcheck: no provider: %w", sandbox.ErrInvalid)
	}
	c := &check{p: p, caps: p.Capabilities(), ids: map[string]bool{}, nonces: map[string]bool{}, sites: map[string]string{}, patience: -1}
	for _, o := range opts {
		o(c)
	}
	if c.patience < 0 {
		c.patience = min(5*time.Second+4*c.caps.ReadLag, time.Minute)
	}
	var err error
	if c.canary == nil {
		err = c.rounds(ctx)
	} else {
		err = c.withCanary(ctx)
	}
	if err == nil && !c.unwitnessed && c.canary == nil && len(c.witnesses)+len(c.sources) == 0 {
		err = fmt.Errorf("%s: %w", p.Name(), ErrNoWitness)
	}
	if err != nil {
		return fmt.Errorf("leakcheck: %w", err)
	}
	return nil
}

// withCanary checks while a sandbox of the check's own is there. A scope makes and deletes it, like any other.
func (c *check) withCanary(ctx context.Context) error {
	m, err := sandbox.NewManager(c.p, sandbox.Config{
		Fleet: CanaryFleet, Owner: "leakcheck", Unmarked: true,
		Scope:     sandbox.Scope{Spec: *c.canary},
		Observers: []sandbox.Observer{func(context.Context, sandbox.Event) {}}, // the error says all
	})
	if err != nil {
		return err
	}
	var found error
	err = m.WithSandbox(ctx, func(ctx context.Context, sb sandbox.Sandbox) error {
		c.canaryID = sb.ID()
		found = c.rounds(ctx)
		return nil
	})
	if err != nil {
		err = fmt.Errorf("%w: the canary: %w", ErrBlind, err)
	}
	return errors.Join(found, err)
}

// rounds looks at the account until two looks in a row have shown nothing, for one row may be missing from one list, or
// until patience is over.
func (c *check) rounds(ctx context.Context) error {
	began := time.Now()
	pause := max(c.caps.ReadLag, 500*time.Millisecond)
	for clean := 0; ; {
		err := c.round(ctx)
		if err == nil {
			clean++
		} else {
			clean = 0
		}
		switch over := time.Since(began)+pause > c.patience; {
		case clean >= 2:
			return nil
		case err != nil && (over || !c.passing(err)):
			return err
		}
		if stop := contain.Sleep(ctx, pause); stop != nil {
			if err == nil {
				err = fmt.Errorf("%s: %w: %w", c.p.Name(), ErrBlind, stop)
			}
			return err
		}
	}
}

// passing reports whether another look may show something else.
func (c *check) passing(err error) bool {
	return !errors.Is(err, sandbox.ErrUnauthenticated) && !errors.Is(err, sandbox.ErrPermission)
}

// round looks once at everything.
func (c *check) round(ctx context.Context) error {
	blind := func(err error) error { return fmt.Errorf("%s: %w: %w", c.p.Name(), ErrBlind, err) }
	rows, err := c.list(ctx)
	if err != nil {
		return blind(err)
	}
	var errs []error
	listed := map[string]bool{}
	for _, i := range rows {
		listed[i.ID] = i.State != sandbox.StateGone
	}
	must, err := c.expected(ctx)
	if err != nil {
		errs = append(errs, blind(err))
	}
	for _, id := range must {
		if !listed[id] {
			errs = append(errs, blind(fmt.Errorf("sandbox %s is known to be there, and not listed", id)))
		}
	}

	found := &Error{Provider: c.p.Name()}
	for _, i := range rows {
		class := c.class(i)
		switch {
		case class == "":
			continue
		case class == Unmarked && !c.strict:
			i.Native = nil
			found.Unmarked = append(found.Unmarked, i)
			continue
		}
		now, there, err := c.look(ctx, i.ID) // a list may be behind the times
		switch {
		case err != nil:
			errs = append(errs, blind(err))
		case there && c.class(now) != "":
			found.Leaks = append(found.Leaks, Leak{Class: c.class(now), Info: now, Site: c.sites[now.Mark.Nonce]})
		}
	}
	for id := range c.ids {
		if listed[id] {
			continue
		}
		switch now, there, err := c.look(ctx, id); {
		case err != nil:
			errs = append(errs, blind(err))
		case there:
			found.Leaks = append(found.Leaks, Leak{Class: Ours, Info: now, Site: c.sites[now.Mark.Nonce]})
			if now.State != sandbox.StateEnding { // on its way out it may be hidden
				errs = append(errs, blind(fmt.Errorf("sandbox %s is there, and not listed", id)))
			}
		}
	}
	if len(found.Leaks) > 0 {
		slices.SortFunc(found.Leaks, func(a, b Leak) int { return strings.Compare(a.Info.ID, b.Info.ID) })
		errs = append([]error{found}, errs...)
	}
	return errors.Join(errs...)
}

// class returns why a sandbox counts, or "" if it does not.
func (c *check) class(i sandbox.Info) Class {
	switch {
	case i.State == sandbox.StateGone || slices.Contains(c.witnesses, i.ID):
		return ""
	case c.ids[i.ID] || i.Mark.Nonce != "" && c.nonces[i.Mark.Nonce]:
		return Ours
	case i.Mark == sandbox.Mark{}:
		return Unmarked
	case (i.Mark.Fleet == c.fleet || i.Mark.Fleet == CanaryFleet) && c.pastLease(i):
		return OfFleet
	}
	return ""
}

// pastLease reports whether nobody can have a claim on a sandbox any more. What does not run has no lease left that would
// end it, unless it lies in the future.
func (c *check) pastLease(i sandbox.Info) bool {
	late := c.caps.Lateness
	if late <= 0 {
		late = lateness
	}
	if i.AsOf.IsZero() {
		return false
	}
	past := !i.Created.IsZero() && i.Mark.Lifetime > 0 && i.AsOf.Sub(i.Created.Add(i.Mark.Lifetime)) > late
	switch {
	case past:
		return true
	case i.Deadline.After(i.AsOf):
		return false
	case i.State == sandbox.StateDormant || i.State == sandbox.StateFailed:
		return true
	default:
		return c.caps.ReadsDeadline && !i.Deadline.IsZero() && -i.Left() > late
	}
}

// expected returns what must be listed.
func (c *check) expected(ctx context.Context) (ids []string, err error) {
	if c.canaryID != "" {
		ids = append(ids, c.canaryID)
	}
	var errs []error
	for _, id := range c.witnesses {
		switch _, there, err := c.look(ctx, id); {
		case err != nil:
			errs = append(errs, fmt.Errorf("the witness %s: %w", id, err))
		case !there:
			errs = append(errs, fmt.Errorf("the witness %s does not answer", id))
		default:
			ids = append(ids, id)
		}
	}
	for _, s := range c.sources {
		more, err := contain.Call(ctx, listTime, s)
		if err != nil {
			errs = append(errs, fmt.Errorf("the second source: %w", err))
		}
		ids = append(ids, more...)
	}
	return ids, errors.Join(errs...)
}

// list returns everything in the account, in every state.
func (c *check) list(ctx context.Context) ([]sandbox.Info, error) {
	return contain.Call(ctx, listTime, func(ctx context.Context) (rows []sandbox.Info, err error) {
		times := map[string]int{}
		for i, err := range c.p.List(ctx, sandbox.Filter{}) {
			if err != nil {
				return nil, fmt.Errorf("list, after %d rows: %w", len(rows), err)
			}
			times[i.ID]++
			switch {
			case times[i.ID] == 1:
				rows = append(rows, i)
			case times[i.ID] > 2: // rows move over a page's edge while it is turned, but not twice
				return nil, fmt.Errorf("sandbox %s is listed again and again", i.ID)
			}
		}
		return rows, nil
	})
}

// look asks for one sandbox by id.
func (c *check) look(ctx context.Context, id string) (i sandbox.Info, there bool, err error) {
	i, err = contain.Call(ctx, lookTime, func(ctx context.Context) (sandbox.Info, error) { return c.p.Get(ctx, id) })
	if errors.Is(err, sandbox.ErrNotFound) {
		return i, false, nil
	}
	if i.ID == "" {
		i.ID = id
	}
	i.Native = nil
	return i, err == nil && i.State != sandbox.StateGone, err
}
