package wire

import (
	"context"
	"net/http"
	"sync"
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
type Faults struct {
	mu      sync.Mutex
	queues  map[string][]*Fault
	healing chan struct{}
}

// Fault queues faults for an operation, or for any: "".
func (q *Faults) Fault(operation string, faults ...Fault) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.queues == nil {
		q.queues = map[string][]*Fault{}
	}
	for _, f := range faults {
		if f.Times == 0 {
			f.Times = 1
		}
		q.queues[operation] = append(q.queues[operation], &f)
	}
}

// Heal drops all faults that wait and breaks the connections of those that hang. It leaves those of the state machine.
func (q *Faults) Heal() {
	q.mu.Lock()
	defer q.mu.Unlock()
	clear(q.queues)
	if q.healing != nil {
		close(q.healing)
		q.healing = nil
	}
}

// Take returns the fault of one request; the zero value if there is none.
func (q *Faults) Take(operation string) Fault {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, name := range []string{operation, ""} {
		queue := q.queues[name]
		if len(queue) == 0 {
			continue
		}
		f := queue[0]
		if f.Skip > 0 {
			f.Skip--
			continue
		}
		if f.Times > 0 {
			if f.Times--; f.Times == 0 {
				q.queues[name] = queue[1:]
			}
		}
		return *f
	}
	return Fault{}
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
		case <-q.healed():
		case <-client.Done():
		case <-closing:
		}
	}
	if f.Hang || f.Drop {
		panic(http.ErrAbortHandler)
	}
}

// healed is closed by the next Heal.
func (q *Faults) healed() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.healing == nil {
		q.healing = make(chan struct{})
	}
	return q.healing
}
