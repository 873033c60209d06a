package sandboxtest

import (
	"net/http"
	"time"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// A Fault is what goes wrong with calls of one operation; see [Provider.Fault]. The zero Fault is one ordinary call.
//
//	Fault{Err: Status(500), Times: 3}                 // three times refused, nothing done
//	Fault{Err: Status(500), After: true}              // done, and then an error: the answer was lost
//	Fault{Hang: true, After: true}                    // done, and then silence until the caller gives up
//	Fault{Hang: true, Deaf: true}                     // silence, and the caller's context is ignored; ends with Heal
//	Fault{Err: Status(504), Late: true, Delay: 5*s}   // an error now, and done five seconds later
//	Fault{Effect: EffectNone}                         // success is claimed, and nothing done
type Fault struct {
	// Err is the call's error. An [*sandbox.APIError] gets the Provider, Op and ID that it lacks; [Status] makes one.
	// What is no APIError is returned as it is.
	Err error

	After bool // Err, Hang and Panic come after the effect; false: instead of it

	// Delay passes before the effect. A caller that gives up meanwhile is never heard: there is no effect.
	Delay time.Duration

	// Late makes the effect come Delay after the call arrived even if the caller is gone by then. With Err and
	// without After the caller has its error at once.
	Late bool

	Hang bool // no answer until the caller's context ends, then its cause
	Deaf bool // Delay and Hang ignore the caller's context; a Deaf Hang lasts until [Provider.Heal], then the call goes on

	Effect Effect // what the call does in place of its ordinary effect

	Times int // calls hit; 0: one; negative: all
	Skip  int // calls let through first, counted from when the faults before this one were used up

	Panic any // the provider panics with it; nil: not
}

func (f Fault) fake() fake.Fault {
	return fake.Fault{
		Err: f.Err, After: f.After, Delay: f.Delay, Late: f.Late, Hang: f.Hang, Deaf: f.Deaf,
		Effect: fake.Effect(f.Effect), Times: f.Times, Skip: f.Skip, Panic: f.Panic,
	}
}

// Effect is what a call does instead of what it should do.
type Effect int

// Effects. One that does not concern the operation is none: the call does what it should.
const (
	// EffectDone is the ordinary effect.
	EffectDone Effect = iota

	// EffectNone claims success and does nothing: a create answers an id that nobody knows, a list is empty, a
	// delete or extend is forgotten, even if the sandbox is gone.
	EffectNone

	// EffectEmptyID is a create that is done, and answered without id and without error.
	EffectEmptyID

	// EffectTwin is a create whose request arrives twice. Without [Behaviour.UniqueNames] and Keys that makes two
	// sandboxes, of which the caller is told one.
	EffectTwin

	// EffectUnfit is a create that is done and answered with the id next to Fault.Err, or to a 500 if there is none.
	EffectUnfit

	// EffectShorten is an extend that sets the deadline to half of what was asked, though it was further away.
	EffectShorten

	// EffectPending is a delete that is accepted and stays in [sandbox.StateEnding] for [Behaviour.PendingTime];
	// the machine runs until then.
	EffectPending

	// EffectBlocked is EffectPending without an end: only another delete, the lease or the platform ends it.
	EffectBlocked

	// EffectRevive is a delete that works; [Behaviour.ReviveAfter] later the sandbox runs again under the same id,
	// as another run and with the lease that it had when it was made.
	EffectRevive

	// EffectOrphan is a delete that drops the record and leaves the machine running: no call sees it any more, and
	// [Provider.Live] does, until [Behaviour.OrphanTime] is over.
	EffectOrphan
)

// Status returns the error of an HTTP answer with the given status, for [Fault]: 404 is [sandbox.ErrNotFound], 409
// [sandbox.ErrConflict], 429 [sandbox.ErrRateLimited], 401, 403 and 400 likewise, 500 and above
// [sandbox.ErrUnavailable]. Refused is set below 500, for then the service did nothing. Another status has no Kind.
// The caller may change the result, to set a RetryAfter or a Code.
func Status(code int) *sandbox.APIError {
	e := &sandbox.APIError{Status: code, Refused: code >= 400 && code < 500}
	switch {
	case code == http.StatusBadRequest || code == http.StatusUnprocessableEntity:
		e.Kind = sandbox.ErrInvalid
	case code == http.StatusUnauthorized:
		e.Kind = sandbox.ErrUnauthenticated
	case code == http.StatusForbidden:
		e.Kind = sandbox.ErrPermission
	case code == http.StatusNotFound || code == http.StatusGone:
		e.Kind = sandbox.ErrNotFound
	case code == http.StatusConflict:
		e.Kind = sandbox.ErrConflict
	case code == http.StatusTooManyRequests:
		e.Kind = sandbox.ErrRateLimited
	case code >= 500:
		e.Kind = sandbox.ErrUnavailable
	}
	return e
}
