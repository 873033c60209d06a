package vercelfake

import (
	"cmp"
	"net/http"

	"github.com/sandglass-dev/sandglass/internal/fake/wire"
)

// A Fault is what goes wrong with the answers of one operation.
type Fault = wire.Fault

// A Request is one that arrived, and its answer. Operation is one of [Server.Operations].
type Request = wire.Request

// spoil puts what the fault says in the place of an answer.
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
