package sweep

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/sandglass-dev/sandglass/internal/contain"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// What a pass did not achieve. The error of a pass matches each that applies.
var (
	ErrBlind   = errors.New("could not see everything")
	ErrLeft    = errors.New("could not delete everything that was to be deleted")
	ErrCapped  = errors.New("reached the limit of deletes")
	ErrRunning = errors.New("a pass of this sweeper is under way")
)

// OpSweep is the [sandbox.Event] at the end of a pass over one account, Err as in the pass's error. Each delete sends
// [sandbox.OpConfirm] beside.
const OpSweep sandbox.Op = "sweep"

// every is the time between two passes of Run.
const every = 15 * time.Minute

// A Sweeper makes passes over one fleet. It starts no goroutine outside of Sweep and Run, and remembers between passes
// what it kept. It is safe for concurrent use; a second pass at the same time is refused.
type Sweeper struct {
	cfg      Config
	accounts []*account

	mu      sync.Mutex
	running bool
}

// New returns a Sweeper. It makes no request. It reports every fault of cfg at once, each matching [sandbox.ErrInvalid].
func New(cfg Config) (*Sweeper, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("sweep: configuration: %w", err)
	}
	s := &Sweeper{cfg: cfg}
	for _, p := range cfg.Providers {
		s.accounts = append(s.accounts, &account{
			p: &paced{Provider: p}, name: p.Name(), caps: p.Capabilities(), memory: map[string]*memory{},
		})
	}
	return s, nil
}

// Sweep makes one pass over all accounts, side by side, and returns when all is done or ctx has ended. What it could not
// see, could not delete, or was not to delete in one pass is in the report, and the error matches [ErrBlind], [ErrLeft]
// or [ErrCapped]; a [*sandbox.LeakError] for each account names what is left. A dry run leaves everything, which is no
// error. While another pass of s is under way, the error is [ErrRunning]. A provider that does not return although its
// context has ended delays only its own sandbox, and keeps a goroutine until it does.
func (s *Sweeper) Sweep(ctx context.Context) (Report, error) {
	if !s.enter() {
		return Report{}, fmt.Errorf("sweep: %w", ErrRunning)
	}
	defer s.leave()
	r := Report{Fleet: s.cfg.Fleet, DryRun: s.cfg.DryRun, Began: time.Now(), Accounts: make([]Account, len(s.accounts))}
	errs := make([]error, len(s.accounts))
	var wg sync.WaitGroup
	for i, a := range s.accounts {
		wg.Go(func() { r.Accounts[i], errs[i] = s.account(ctx, a) })
	}
	wg.Wait()
	r.Ended = time.Now()
	return r, errors.Join(errs...)
}

// Run makes a pass at once and then one after every so much time (0: 15 minutes), up to a quarter sooner or later so
// that several sweepers come apart. It returns the cause of ctx's end. The errors of passes go to Config.OnPass.
func (s *Sweeper) Run(ctx context.Context, interval time.Duration) error {
	if interval < 0 {
		return fmt.Errorf("sweep: interval %v is negative: %w", interval, sandbox.ErrInvalid)
	}
	if interval == 0 {
		interval = every
	}
	for {
		report, err := s.Sweep(ctx)
		if s.cfg.OnPass != nil {
			s.cfg.OnPass(report, err)
		}
		if err := contain.Sleep(ctx, interval*3/4+rand.N(max(interval/2, 1))); err != nil {
			return err
		}
	}
}

func (s *Sweeper) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	free := !s.running
	s.running = true
	return free
}

func (s *Sweeper) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = false
}

// account makes a pass over one account.
func (s *Sweeper) account(ctx context.Context, a *account) (Account, error) {
	p := &pass{cfg: &s.cfg, a: a, began: time.Now()}
	rows, errs := p.see(ctx)
	items := p.prepare(rows, len(errs) == 0)
	work := make(chan *item)
	var wg sync.WaitGroup
	for range min(s.cfg.Parallel, len(items)) {
		wg.Go(func() {
			for it := range work {
				p.handle(ctx, it)
			}
		})
	}
	for _, it := range items {
		work <- it
	}
	close(work)
	wg.Wait()
	a.remember(p, items, len(errs) == 0)

	report := p.report(rows, items)
	var fault error
	if len(errs) > 0 {
		fault = fmt.Errorf("%w: %w", ErrBlind, errors.Join(errs...))
		report.Error = fault.Error()
	}
	if err := errors.Join(fault, p.left(items)); err != nil {
		fault = fmt.Errorf("sweep: %s: %w", a.name, err)
	}
	s.cfg.observe(ctx, sandbox.Event{
		Op: OpSweep, Provider: a.name, Start: p.began, Took: time.Since(p.began), Attempt: 1, Err: fault, Final: true,
	})
	return report, fault
}

// observe tells everybody. An observer that panics must not end the pass.
func (c *Config) observe(ctx context.Context, e sandbox.Event) {
	e.Info.Native = nil
	if len(c.Observers) == 0 && e.Op == sandbox.OpConfirm && e.Err != nil {
		sandbox.LogTo(slog.Default())(ctx, e)
	}
	for _, o := range c.Observers {
		func() {
			defer func() {
				if r := recover(); r != nil {
					slog.Default().ErrorContext(ctx, "sandbox observer panicked", "op", string(e.Op), "panic", r)
				}
			}()
			o(ctx, e)
		}()
	}
}

// left returns what the pass was to delete and did not.
func (p *pass) left(items []*item) error {
	leak := &sandbox.LeakError{Provider: p.a.name}
	var why, unseen []error
	var capped int
	const told = 10 // reasons; the report has all of them
	var uncleared []error
	for _, it := range items {
		if it.unlisted != nil && len(unseen) < told {
			unseen = append(unseen, it.unlisted)
		}
		uncleared = append(uncleared, it.uncleared...)
		switch it.outcome {
		case Left:
			leak.Sandboxes = append(leak.Sandboxes, it.leftover())
			if len(why) < told {
				why = append(why, it.err)
			}
		case Unseen:
			if len(unseen) < told {
				unseen = append(unseen, fmt.Errorf("sandbox %s: %w", it.look.info.ID, it.err))
			}
		case Capped:
			capped++
		}
	}
	var errs []error
	if len(leak.Sandboxes) > 0 {
		leak.Err = errors.Join(why...)
		errs = append(errs, fmt.Errorf("%w: %w", ErrLeft, leak))
	}
	if len(uncleared) > 0 {
		errs = append(errs, fmt.Errorf("%w: %w", ErrLeft, errors.Join(uncleared[:min(told, len(uncleared))]...)))
	}
	if len(unseen) > 0 {
		errs = append(errs, fmt.Errorf("%w: %w", ErrBlind, errors.Join(unseen...)))
	}
	if capped > 0 {
		errs = append(errs, fmt.Errorf("%w: %d, and %d more were to be deleted", ErrCapped, p.limit, capped))
	}
	return errors.Join(errs...)
}

// prepare makes items of the rows of our fleet, in the order in which to work on them: first what is to be deleted, and
// of that first what no lease ends and then what has most of it left, so that what is cut off ends soonest by itself. Then
// what takes a question first.
func (p *pass) prepare(rows []look, complete bool) []*item {
	first := origins(rows)
	named := p.a.caps.CreateOnce && p.a.caps.MarkAtCreate // the adapter has told copies by their names already
	var items []*item
	for _, l := range rows {
		if l.info.Mark.Fleet != p.cfg.Fleet || l.info.State == sandbox.StateGone {
			continue
		}
		m := p.a.memory[l.info.ID]
		it := &item{look: l}
		it.fork = m != nil && m.fork || first[l.info.Mark.Nonce] != l.info.ID || !complete && !named && !(m != nil && m.sole)
		it.passes, it.residue = m.residue(l.info, l.at)
		it.verdict = Decide(p.facts(it, l, nil, Unknown))
		items = append(items, it)
	}
	p.limit = p.cfg.MaxDeletes
	if p.limit == 0 {
		p.limit = max(100, len(items)/5)
	}
	slices.SortStableFunc(items, func(a, b *item) int { return p.urgency(a).compare(p.urgency(b)) })
	return items
}

// origins returns for each nonce the id of the sandbox that the mark was written for, or "" where that cannot be told:
// copies are made later than what they are copies of.
func origins(rows []look) map[string]string {
	type oldest struct {
		id      string
		created time.Time
	}
	seen := map[string]oldest{}
	ids := map[string]string{}
	for _, l := range rows {
		nonce := l.info.Mark.Nonce
		o, twin := seen[nonce]
		switch {
		case !twin:
			seen[nonce], ids[nonce] = oldest{l.info.ID, l.info.Created}, l.info.ID
		case l.info.Created.IsZero() || o.created.IsZero() || l.info.Created.Equal(o.created):
			ids[nonce] = ""
		case l.info.Created.Before(o.created):
			seen[nonce], ids[nonce] = oldest{l.info.ID, l.info.Created}, l.info.ID
		}
	}
	return ids
}
