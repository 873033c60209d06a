package e2bfake

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/sandbox"
)

func apiError(err error) *sandbox.APIError {
	e, _ := errors.AsType[*sandbox.APIError](err)
	return e
}

// wireError says how the service puts an error; status 0: it does not answer at all.
func wireError(err error) (status int, code, message string) {
	e := apiError(err)
	switch {
	case e == nil && errors.Is(err, context.DeadlineExceeded):
		return http.StatusGatewayTimeout, "", "request timed out"
	case e == nil || e.Status < 400:
		return 0, "", ""
	case e.Code == "image_unknown":
		return http.StatusNotFound, "", "template not found"
	}
	message = e.Message
	if message == "" {
		message = strings.ToLower(http.StatusText(e.Status))
	}
	if strings.HasPrefix(e.Code, "sandbox_") || e.Code == "internal_server_error" { // the others are the state machine's words
		code = e.Code
	}
	return e.Status, code, message
}

// missing is the state machine's word for a sandbox that there is not.
func missing() error {
	return &sandbox.APIError{Status: http.StatusNotFound, Message: "sandbox not found", Kind: sandbox.ErrNotFound}
}

// refusal is a failure that the service chose.
func refusal(status int, code, message string) error {
	return &sandbox.APIError{Status: status, Code: code, Message: message}
}

// seen reports whether the control plane has a record of what a sandbox is in: one whose start is not over and one that
// is being killed have none.
func seen(r fake.Record) bool {
	return !r.Lost && (r.State == sandbox.StateRunning || r.State == sandbox.StateDormant || r.State == sandbox.StateFailed)
}

var errTooLarge = errors.New("too large")

// readAll reads at most so many bytes.
func readAll(r io.Reader, most int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(b)) > most {
		err = errTooLarge
	}
	return b, err
}
