package modalfake

import (
	"context"
	"errors"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/sandbox"
)

func refuse(code codes.Code, format string, args ...any) error {
	return status.Errorf(code, format, args...)
}

func invalid(format string, args ...any) error { return refuse(codes.InvalidArgument, format, args...) }

// throttled is an error with a policy that says when to try again, if retryAfter does.
func throttled(code codes.Code, retryAfter time.Duration, message string) error {
	st := status.New(code, message)
	if retryAfter > 0 {
		policy := pb.RPCRetryPolicy_builder{RetryAfterSecs: float32(retryAfter.Seconds())}.Build()
		if with, err := st.WithDetails(policy); err == nil {
			st = with
		}
	}
	return st.Err()
}

// problemOf is an error of the state machine's, or of a context, on the wire.
func problemOf(err error) error {
	if err == nil {
		return nil
	}
	e, ok := errors.AsType[*sandbox.APIError](err)
	if !ok {
		if _, is := status.FromError(err); is {
			return err
		}
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			return refuse(codes.DeadlineExceeded, "deadline exceeded")
		case errors.Is(err, context.Canceled):
			return refuse(codes.Canceled, "canceled")
		}
		return refuse(codes.Internal, "%v", err)
	}
	code := codes.Unavailable
	switch {
	case e.Code == fake.NameTaken:
		code = codes.AlreadyExists
	case e.Status == 400:
		code = codes.InvalidArgument
	case e.Status == 401:
		code = codes.Unauthenticated
	case e.Status == 403:
		code = codes.PermissionDenied
	case e.Status == 404:
		code = codes.NotFound
	case e.Status == 409:
		code = codes.FailedPrecondition
	case e.Status == 429:
		code = codes.ResourceExhausted
	case e.Status == 500:
		code = codes.Internal
	case e.Status == 504:
		code = codes.DeadlineExceeded
	}
	message := e.Message
	if message == "" {
		message = code.String()
	}
	return throttled(code, e.RetryAfter, message)
}

// missing is the answer about an id that is not known.
func (s *Server) missing(id string) error {
	code := s.Quirks().LookupCode
	if code == codes.OK {
		code = codes.NotFound
	}
	return refuse(code, "Sandbox %s not found", id)
}
