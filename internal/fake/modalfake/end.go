package modalfake

import (
	"context"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc/codes"
)

// terminate asks for the end of b and returns the result that it has already.
func (s *Server) terminate(ctx context.Context, b *box) (*pb.GenericResult, error) {
	s.catchUp(b)
	s.mu.Lock()
	result := b.result
	s.mu.Unlock()
	if result != nil || ignored(ctx) {
		return result, nil
	}
	err := s.svc.Delete(ctx, b.svc)
	if err != nil && codeOf(problemOf(err)) == codes.NotFound {
		s.catchUp(b)
		s.mu.Lock()
		defer s.mu.Unlock()
		if b.result != nil { // it ended just now
			return b.result, nil
		}
		return nil, refuse(codes.NotFound, "Sandbox %s not found", b.id)
	}
	return nil, err
}

func (s *Server) terminateCall(ctx context.Context, id string, v1 bool) (*pb.SandboxTerminateResponse, error) {
	b, err := s.find(id, v1)
	if err != nil {
		return nil, err
	}
	result, err := s.terminate(ctx, b)
	if err != nil {
		return nil, err
	}
	return pb.SandboxTerminateResponse_builder{ExistingResult: result}.Build(), nil
}

func (c *control) SandboxTerminateV2(ctx context.Context, in *pb.SandboxTerminateRequest) (*pb.SandboxTerminateResponse, error) {
	return c.s.terminateCall(ctx, in.GetSandboxId(), false)
}

func (c *control) SandboxTerminate(ctx context.Context, in *pb.SandboxTerminateRequest) (*pb.SandboxTerminateResponse, error) {
	return c.s.terminateCall(ctx, in.GetSandboxId(), true)
}
