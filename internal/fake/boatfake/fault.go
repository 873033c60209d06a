package boatfake

import (
	"cmp"
	"net/http"

	"github.com/sandglass-dev/sandglass/internal/fake/wire"
)

// A Fault is what goes wrong with the answers of one operation.
type Fault = wire.Fault

// A Request is one that arrived, and its answer. Operation is the operationId of the API description.
type Request = wire.Request

// spoil puts what the fault says in the place of an answer.
func (c *call) spoil(s *Server) {
	f := c.fault
	if f.Status != 0 {
		p := &problem{status: f.Status, code: f.Code, message: cmp.Or(f.Message, http.StatusText(f.Status)), details: f.Details}
		c.follow = nil
		c.answer(f.Status, s.envelope(p))
	}
	if f.Body != "" {
		c.follow = nil
		c.out = []byte(f.Body)
		c.status = cmp.Or(c.status, http.StatusOK)
	}
}
