package modalfake

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
)

// A Fault is what goes wrong with calls of one method. Faults of the life cycle itself are [fake.Fault].
type Fault struct {
	Code       codes.Code    // of the answer; OK: as it would be. A broken connection is UNAVAILABLE
	Message    string        // of the answer
	RetryAfter time.Duration // in a policy with the answer, which has the SDKs try again
	After      bool          // the call is carried out first; else it has no effect
	Ignore     bool          // a terminate, a change of tags or a command is answered as if it were done, and nothing is done

	Hang  bool          // no answer until the client leaves or [Server.Heal] is called, and then UNAVAILABLE
	Delay time.Duration // passes before the answer, after the effect with After and before it without
	Cut   int           // of a stream: it breaks with UNAVAILABLE after so many messages; 0: not

	Times int // calls hit; 0: one; negative: all
	Skip  int // calls let through first
}

// Fault queues faults for a method, such as "SandboxCreateV2", or for any: "".
func (s *Server) Fault(method string, faults ...Fault) {
	for _, f := range faults {
		s.faults.Add(method, f, f.Times, f.Skip)
	}
}

// Heal drops all faults that wait and lets go those that hang. It leaves those of the state machine.
func (s *Server) Heal() { s.faults.Heal() }

// meet lives through the fault, before the effect or after it, and returns what is answered instead.
func (s *Server) meet(ctx context.Context, f Fault) error {
	if err := pass(ctx, f.Delay); err != nil {
		return problemOf(err)
	}
	if f.Hang {
		select {
		case <-s.faults.Healed():
		case <-ctx.Done():
		case <-s.base.Done():
		}
		return refuse(codes.Unavailable, "connection lost")
	}
	if f.Code != codes.OK {
		return throttled(f.Code, f.RetryAfter, f.Message)
	}
	return nil
}

type ignoreKey struct{}

// ignored reports whether a fault has the call do nothing.
func ignored(ctx context.Context) bool { return ctx.Value(ignoreKey{}) != nil }
