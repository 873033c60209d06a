package daytonafake

import (
	"cmp"
	"net/http"

	"github.com/sandglass-dev/sandglass/internal/fake/wire"
)

// A Fault is what goes wrong with the answers of one operation.
type Fault = wire.Fault

// A Request is one that arrived, and its answer. Operation is the operationId of the official API description, such as
// "createSandbox" or "ExecuteCommand". Of an answer that was a stream there is no body.
type Request = wire.Request

// spoil puts what the fault says in the place of an answer.
func (c *call) spoil(s *Server) {
	f := c.fault
	if f.Status != 0 {
		c.fill(s.problem(c, control, &problem{status: f.Status, message: f.Message}))
	}
	if f.Body != "" {
		c.out.body.Reset()
		c.out.body.WriteString(f.Body)
		c.out.status = cmp.Or(c.out.status, http.StatusOK)
	}
}
