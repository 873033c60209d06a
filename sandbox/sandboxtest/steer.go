package sandboxtest

import (
	"time"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// Fault queues faults for op: [sandbox.OpCreate], OpGet, OpList, OpExtend, OpDelete, OpExec, OpUpload, OpDownload or
// OpEndpoint. They are used up in order, and the faults of later calls of Fault follow. A list makes one call a page; a
// create where Capabilities.MarkAtCreate is false makes two, of which the second writes the mark; shortening a lease
// is an OpExtend.
func (p *Provider) Fault(op sandbox.Op, f ...Fault) {
	for _, f := range f {
		p.svc.Fault(op, f.fake())
	}
}

// Heal drops all faults that wait and lets Deaf hangs go on. Behaviour stays.
func (p *Provider) Heal() { p.svc.Heal() }

// Behave changes the service's habits: change gets the present ones and may change any of them. Sandboxes that
// exist are affected too. change must not call p.
func (p *Provider) Behave(change func(*Behaviour)) {
	p.svc.Behave(func(b *fake.Behaviour) {
		own := Behaviour(*b)
		change(&own)
		*b = fake.Behaviour(own)
	})
}

// Live returns the sandboxes that may run by the service's own truth now, whatever its answers say: starting, running,
// ending and failed ones, and machines whose record is lost. Oldest first; marks are read, deadlines told.
func (p *Provider) Live() []sandbox.Info { return p.all(sandbox.State.MayRun) }

// Residue returns the sandboxes that do not run and still have a record, oldest first.
func (p *Provider) Residue() []sandbox.Info {
	return p.all(func(s sandbox.State) bool { return !s.MayRun() })
}

func (p *Provider) all(want func(sandbox.State) bool) []sandbox.Info {
	var found []sandbox.Info
	for _, r := range p.svc.All() {
		if want(r.State) {
			found = append(found, p.info(r))
		}
	}
	return found
}

// A Change is a new state or deadline of a sandbox.
type Change struct {
	At   time.Time // by the service's clock, when it happened
	Info sandbox.Info
}

// Watch has f called for every change of a sandbox's state or deadline from now on, in order, one at a time, without
// locks held: f may call p. The service looks at its clock when it is asked something, so that f hears of an expiry
// with the next call of any method; Change.At then says when it was. A call that changes something while another
// goroutine is in f returns without waiting for f to hear of it.
func (p *Provider) Watch(f func(Change)) {
	p.svc.Watch(func(c fake.Change) { f(Change{c.At, p.info(c.Record)}) })
}

// Expire moves the service's clock on until every lease that is alive now has ended and the service has acted on it,
// and until what is starting or ending now has done so. Sandboxes without a lease, frozen ones, those whose
// deadlines are not enforced and, where activity extends, busy ones stay.
func (p *Provider) Expire() { p.svc.Expire() }

// Advance moves the service's clock on by d, as if so much time had passed there and none here.
func (p *Provider) Advance(d time.Duration) { p.svc.Advance(d) }

// Now returns the service's clock.
func (p *Provider) Now() time.Time { return p.svc.Now() }

// Kill has the platform kill the machine: nothing is kept. Like the acts below it reports whether it could: a sandbox
// that is not there, or not in the right state, is left alone.
func (p *Provider) Kill(id string) bool { return p.svc.Kill(id) }

// Fail has the platform give the machine up: [sandbox.StateFailed], with detail as its reason. It may run on, and
// takes no commands.
func (p *Provider) Fail(id, detail string) bool { return p.svc.Fail(id, detail) }

// Pause has a third party pause a running sandbox: commands die, the record is dormant and has no lease any more, unless
// [Behaviour.PausedLease]. Its files stay.
func (p *Provider) Pause(id string) bool { return p.svc.Pause(id) }

// Resume has a third party resume a dormant sandbox: it is another run under the same id, with a lease of
// [Behaviour.ResumeWindow].
func (p *Provider) Resume(id string) bool { return p.svc.Resume(id) }

// Freeze stops a running machine as it is, and its lease with it: commands in flight do not answer until
// [Provider.Thaw]. Answers call it dormant.
func (p *Provider) Freeze(id string) bool { return p.svc.Freeze(id) }

// Thaw has a frozen sandbox go on: the same run, with the deadline that it had.
func (p *Provider) Thaw(id string) bool { return p.svc.Thaw(id) }

// Fork has a third party make a copy of a sandbox, under another id and name and without its files: tags and mark are
// inherited, which is why a mark alone proves nothing. It returns the new id, or "" if there is no sandbox id.
func (p *Provider) Fork(id string) string {
	return p.svc.Fork(id, func(data any) any { return newMachine(data.(*machine).spec) })
}

// Rename gives a sandbox another name. With [Behaviour.UniqueNames] its mark no longer counts: it was written for the
// old one.
func (p *Provider) Rename(id, name string) bool { return p.svc.Rename(id, name) }

// DropTags removes tags of a sandbox by key, the mark's ([sandbox.MarkKey] and its companions) too; without keys,
// all of them.
func (p *Provider) DropTags(id string, keys ...string) bool { return p.svc.DropTags(id, keys...) }

// Touch is traffic of somebody else: where activity extends, it restarts the idle clock.
func (p *Provider) Touch(id string) bool { return p.svc.Touch(id) }
