package modalfake

import (
	"context"
	"net/url"
	"slices"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// control answers for the control plane, router for the task command router. Both services have a method of the same
// name and different form, so they are two types.
type control struct {
	pb.UnimplementedModalClientServer
	s *Server
}

type router struct {
	pb.UnimplementedTaskCommandRouterServer
	s *Server
}

// wrap returns a service with every method logged, its caller checked and its faults met.
func (s *Server) wrap(d grpc.ServiceDesc, router bool) *grpc.ServiceDesc {
	d.Methods, d.Streams = slices.Clone(d.Methods), slices.Clone(d.Streams)
	for i := range d.Methods {
		m := &d.Methods[i]
		name, next := m.MethodName, m.Handler
		m.Handler = func(srv any, ctx context.Context, dec func(any) error, own grpc.UnaryServerInterceptor) (any, error) {
			return next(srv, ctx, dec, func(ctx context.Context, in any, info *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
				ours := func(ctx context.Context, in any) (any, error) { return s.unary(ctx, name, router, in, h) }
				if own != nil {
					return own(ctx, in, info, ours)
				}
				return ours(ctx, in)
			})
		}
	}
	for i := range d.Streams {
		m := &d.Streams[i]
		name, next := m.StreamName, m.Handler
		m.Handler = func(srv any, st grpc.ServerStream) error { return s.stream(name, router, srv, st, next) }
	}
	return &d
}

func (s *Server) unary(ctx context.Context, name string, router bool, in any, h grpc.UnaryHandler) (any, error) {
	ctx, cancel := s.alive(ctx)
	defer cancel()
	entry := s.note(ctx, name, router)
	message, _ := in.(proto.Message)
	s.noted(entry, func() { entry.Message = message })
	out, err := s.carryOut(ctx, name, router, func(ctx context.Context) (any, error) { return h(ctx, in) })
	err = problemOf(err)
	if s.Quirks().NoPolicy && err != nil {
		err = refuse(status.Code(err), "%s", status.Convert(err).Message())
	}
	s.noted(entry, func() {
		entry.Done, entry.Code = true, status.Code(err)
		if err == nil {
			entry.Answer, _ = out.(proto.Message)
		}
	})
	if w := s.Quirks().Warning; w != "" && !router {
		_ = grpc.SetTrailer(ctx, metadata.Pairs("x-modal-warning", url.PathEscape(w)))
	}
	return out, err
}

func (s *Server) carryOut(ctx context.Context, name string, router bool, do func(context.Context) (any, error)) (any, error) {
	f := s.faults.Take(name)
	if !f.After {
		if err := s.meet(ctx, f); err != nil {
			return nil, err
		}
	}
	if err := s.admit(ctx, name, router); err != nil {
		return nil, err
	}
	if f.Ignore {
		ctx = context.WithValue(ctx, ignoreKey{}, true)
	}
	out, err := do(ctx)
	if err == nil && f.After {
		err = s.meet(ctx, f)
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

// alive returns a context that ends with the server too.
func (s *Server) alive(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.base, cancel)
	return ctx, func() { stop(); cancel() }
}

// watched is a stream whose messages are counted, and which breaks when its fault says so.
type watched struct {
	grpc.ServerStream
	ctx   context.Context
	s     *Server
	entry *Request
	cut   int
	sent  int
}

func (w *watched) Context() context.Context { return w.ctx }

func (w *watched) RecvMsg(m any) error {
	if err := w.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	first := false
	w.s.noted(w.entry, func() {
		first = w.entry.Message == nil
		if first {
			w.entry.Message, _ = m.(proto.Message)
		}
	})
	if first {
		return nil
	}
	return w.step()
}

func (w *watched) SendMsg(m any) error {
	if err := w.step(); err != nil {
		return err
	}
	return w.ServerStream.SendMsg(m)
}

func (w *watched) step() error {
	w.s.noted(w.entry, func() { w.entry.Messages++ })
	if w.cut > 0 && w.sent >= w.cut {
		return refuse(codes.Unavailable, "connection lost")
	}
	w.sent++
	return nil
}

func (s *Server) stream(name string, router bool, srv any, st grpc.ServerStream, next grpc.StreamHandler) error {
	ctx, cancel := s.alive(st.Context())
	defer cancel()
	entry := s.note(ctx, name, router)
	f := s.faults.Take(name)
	err := func() error {
		if !f.After {
			if err := s.meet(ctx, f); err != nil {
				return err
			}
		}
		if err := s.admit(ctx, name, router); err != nil {
			return err
		}
		err := next(srv, &watched{ServerStream: st, ctx: ctx, s: s, entry: entry, cut: f.Cut})
		if err == nil && f.After {
			err = s.meet(ctx, f)
		}
		return err
	}()
	err = problemOf(err)
	s.noted(entry, func() { entry.Done, entry.Code = true, status.Code(err) })
	return err
}
