package vercelfake

import (
	"cmp"
	"net/http"
	"time"
)

// A Fault is what goes wrong with the answers of one operation. Faults of the life cycle itself are [fake.Fault].
type Fault struct {
	Status  int         // the answer's status, with an error body of the service's form; 0: as it would be
	Code    string      // in the error body
	Message string      // in the error body
	Body    string      // instead of the body, as it is
	Header  http.Header // set in the answer
	After   bool        // the request is processed first; false: it has no effect
	Ignore  bool        // an extend, stop or delete is answered as if it were done or under way, and nothing is done

	Drop  bool          // the connection is closed without an answer
	Cut   int           // the connection is closed after so many bytes of the body, of a stream too; 0: not
	Hang  bool          // no answer until the client leaves or [Server.Heal] is called, and then none
	Delay time.Duration // passes before the answer, after the effect if there is one

	Times int // requests hit; 0: one; negative: all
	Skip  int // requests let through first
}

// Fault queues faults for an operation, such as "createSandbox", or for any: "". [Server.Operations] names them.
func (s *Server) Fault(operation string, faults ...Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range faults {
		if f.Times == 0 {
			f.Times = 1
		}
		s.faults[operation] = append(s.faults[operation], &f)
	}
}

// Heal drops all faults that wait and breaks the connections of those that hang. It leaves those of the state machine.
func (s *Server) Heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.faults)
	if s.healing != nil {
		close(s.healing)
		s.healing = nil
	}
}

// fault takes the fault of one request.
func (s *Server) fault(operation string) Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range []string{operation, ""} {
		queue := s.faults[name]
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
				s.faults[name] = queue[1:]
			}
		}
		return *f
	}
	return Fault{}
}

// instead reports whether the fault stands in place of the effect.
func (f Fault) instead() bool {
	return !f.After && (f.Status != 0 || f.Body != "" || f.Drop || f.Hang)
}

// meet waits as f says, and does not return if there is to be no answer.
func (c *call) meet(s *Server) {
	f := c.fault
	if f.Delay > 0 {
		t := time.NewTimer(f.Delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-c.Context().Done():
			panic(http.ErrAbortHandler)
		case <-s.base.Done():
			panic(http.ErrAbortHandler)
		}
	}
	if f.Hang {
		s.mu.Lock()
		if s.healing == nil {
			s.healing = make(chan struct{})
		}
		healing := s.healing
		s.mu.Unlock()
		select {
		case <-healing:
		case <-c.Context().Done():
		case <-s.base.Done():
		}
	}
	if f.Hang || f.Drop {
		panic(http.ErrAbortHandler)
	}
}

// spoil puts what f says in the place of an answer.
func (c *call) spoil() {
	f := c.fault
	if f.Status != 0 || f.Body != "" {
		c.follow = nil
	}
	if f.Status != 0 {
		c.answer(problemOf(&problem{status: f.Status, code: f.Code, message: cmp.Or(f.Message, http.StatusText(f.Status))}))
	}
	if f.Body != "" {
		c.out = []byte(f.Body)
		c.status = cmp.Or(c.status, http.StatusOK)
	}
}
