package daytonafake

import (
	"cmp"
	"net/http"
	"time"
)

// A Fault is what goes wrong with the answers of one operation. Faults of the life cycle itself, such as a delete that
// has no effect, are [fake.Fault].
type Fault struct {
	Status  int         // the answer's status, with an error body of the service's form; 0: as it would be
	Message string      // in the error body
	Body    string      // instead of the body, as it is
	Header  http.Header // set in the answer
	After   bool        // the request is processed first; false: it has no effect

	Drop  bool          // the connection is closed without an answer
	Cut   int           // the connection is closed after so many bytes of the body; 0: not
	Hang  bool          // no answer until the client leaves or [Server.Heal] is called, and then none
	Delay time.Duration // passes before the answer

	Times int // requests hit; 0: one; negative: all
	Skip  int // requests let through first
}

// Fault queues faults for an operation, which has the operationId of the official API description, such as
// "createSandbox" or "ExecuteCommand"; empty: for any.
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
func (s *Server) fault(operation string) (Fault, bool) {
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
		return *f, true
	}
	return Fault{}, false
}

// late reports whether the fault waits until the request was processed.
func (f Fault) late() bool {
	return f.After || f.Status == 0 && f.Body == "" && (f.Cut > 0 || f.Header != nil)
}

// spoil does to an answer what f says, and reports whether it was sent.
func (s *Server) spoil(c *call, f Fault) (sent bool) {
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
		panic(http.ErrAbortHandler)
	}
	if f.Drop {
		panic(http.ErrAbortHandler)
	}
	for k, v := range f.Header {
		c.out.header[k] = v
	}
	if f.Status == 0 && f.Body == "" && f.Cut == 0 {
		return false
	}
	if f.Status != 0 {
		c.fill(s.problem(c, control, &problem{status: f.Status, message: f.Message}))
	}
	if f.Body != "" {
		c.out.body.Reset()
		c.out.body.WriteString(f.Body)
		c.out.status = cmp.Or(c.out.status, http.StatusOK)
	}
	cut := -1
	if f.Cut > 0 {
		cut = f.Cut
	}
	c.send(s, cut)
	return true
}
