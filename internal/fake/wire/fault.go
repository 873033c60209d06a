package wire

import (
	"context"
	"net/http"
	"time"
)

// A Fault is what goes wrong with the answers of one operation. Faults of the life cycle itself, such as a delete that
// has no effect, are those of the state machine.
type Fault struct {
	Status  int            // the answer's status, with an error body of the service's form; 0: as it would be
	Code    string         // in the error body, where its form has one; empty: made of the status
	Message string         // in the error body
	Details map[string]any // in the error body, where its form has them
	Body    string         // instead of the body, as it is
	Header  http.Header    // set in the answer
	After   bool           // the request is processed first; false: it has no effect
	Ignore  bool           // what extends, stops or deletes is answered as if it were done or under way, and nothing is done

	Drop  bool          // the connection is closed without an answer
	Cut   int           // the connection is closed after so many bytes of the body, of a stream too; 0: not
	Hang  bool          // no answer until the client leaves or Heal is called, and then none
	Delay time.Duration // passes before the answer, after the effect if there is one

	Times int // requests hit; 0: one; negative: all
	Skip  int // requests let through first
}

// Instead reports whether the fault stands in place of the effect.
func (f Fault) Instead() bool {
	return !f.After && (f.Status != 0 || f.Body != "" || f.Drop || f.Hang)
}

// Faults are those that wait for their requests. The zero value has none. It is safe for concurrent use.
type Faults struct{ Queue[Fault] }

// Fault queues faults for an operation, or for any: "".
func (q *Faults) Fault(operation string, faults ...Fault) {
	for _, f := range faults {
		q.Add(operation, f, f.Times, f.Skip)
	}
}

// Meet waits as f says, and breaks the connection off by a panic with [http.ErrAbortHandler] if there is to be no
// answer, the client has left, or the service closes.
func (q *Faults) Meet(client context.Context, f Fault, closing <-chan struct{}) {
	if f.Delay > 0 {
		t := time.NewTimer(f.Delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-client.Done():
			panic(http.ErrAbortHandler)
		case <-closing:
			panic(http.ErrAbortHandler)
		}
	}
	if f.Hang {
		select {
		case <-q.Healed():
		case <-client.Done():
		case <-closing:
		}
	}
	if f.Hang || f.Drop {
		panic(http.ErrAbortHandler)
	}
}
