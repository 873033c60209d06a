package modalfake

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/sandglass-dev/sandglass/internal/fake/shell"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// start begins what runs in a sandbox from its start on: its entrypoint and its probe.
func (s *Server) start(b *box) {
	s.begin(func() {
		disk := s.diskOf(b)
		args := slices.Clone(b.def.GetEntrypointArgs())
		if len(args) == 0 {
			args = []string{"sleep", "172800"} // longer than any timeout
		}
		p := newProcess(b, shell.Command{Args: args, Env: maps.Clone(b.env), Dir: b.workdir()})
		p.disk = disk
		if kept := s.Quirks().StdioKept; kept > 0 {
			p.out[0].keep, p.out[1].keep = kept, kept
		}
		launched := make(chan struct{})
		ok := s.launch(p, func(exit int) {
			<-launched
			s.exited(b, exit)
		})
		s.mu.Lock()
		b.entry = p
		over := b.result != nil || b.cause != nil
		b.kills = append(b.kills, func() { p.end(errKilled) })
		b.wake()
		s.mu.Unlock()
		close(launched)
		if over && ok {
			p.end(errKilled)
		}
		s.probe(b, disk)
	})
}

// exited ends a sandbox whose entrypoint has.
func (s *Server) exited(b *box, exit int) {
	if s.base.Err() != nil {
		return
	}
	s.commit(s.base, b.def.GetVolumeMounts(), s.diskOf(b))
	if rec, _ := s.svc.Lookup(b.svc); rec.State != sandbox.StateRunning {
		return // that was why it exited
	}
	if s.Quirks().ExecsHoldEnd {
		err := s.await(s.base, b, func() bool {
			for _, p := range b.execs {
				if p.running() {
					return b.result != nil
				}
			}
			return true
		})
		if err != nil {
			return
		}
	}
	result := outcome(success, 0, "")
	if exit != 0 {
		result = outcome(failure, int32(exit), "")
	}
	s.finish(b, result)
}

// probe finds out when a sandbox is ready.
func (s *Server) probe(b *box, disk *shell.FS) {
	probe := b.def.GetReadinessProbe()
	every := time.Duration(probe.GetIntervalMs()) * time.Millisecond
	if every <= 0 {
		every = 100 * time.Millisecond
	}
	for s.base.Err() == nil {
		ready := true
		if argv := probe.GetExecCommand().GetArgv(); len(argv) > 0 {
			ready = shell.Run(s.base, disk, shell.Command{Args: argv, Env: maps.Clone(b.env), Dir: b.workdir()}) == 0
		}
		now := s.svc.Now()
		s.mu.Lock()
		if probe.HasTcpPort() {
			ready = s.ports[int(probe.GetTcpPort())] != nil
		}
		if ready && b.result == nil {
			b.ready = now
		}
		over := b.result != nil
		b.wake()
		s.mu.Unlock()
		if ready || over {
			return
		}
		_ = pass(s.base, every)
	}
}

// SandboxWaitUntilReady tells when a sandbox was ready.
func (r *router) SandboxWaitUntilReady(
	ctx context.Context, in *pb.SandboxWaitUntilReadyTcrRequest,
) (*pb.SandboxWaitUntilReadyTcrResponse, error) {
	b, err := r.taskOf(ctx, in.GetTaskId())
	if err != nil {
		return nil, err
	}
	at, err := r.s.untilReady(ctx, b, in.GetTimeout())
	if err != nil {
		return nil, err
	}
	return pb.SandboxWaitUntilReadyTcrResponse_builder{ReadyAt: at}.Build(), nil
}

func (c *control) SandboxWaitUntilReady(
	ctx context.Context, in *pb.SandboxWaitUntilReadyRequest,
) (*pb.SandboxWaitUntilReadyResponse, error) {
	b, err := c.s.find(in.GetSandboxId(), true)
	if err != nil {
		return nil, err
	}
	at, err := c.s.untilReady(ctx, b, in.GetTimeout())
	if err != nil {
		return nil, err
	}
	return pb.SandboxWaitUntilReadyResponse_builder{ReadyAt: at}.Build(), nil
}

func (s *Server) untilReady(ctx context.Context, b *box, timeout float32) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(float64(timeout)*float64(time.Second)))
	defer cancel()
	at, over := 0.0, false
	err := s.await(ctx, b, func() bool {
		at, over = seconds(b.ready), b.result != nil
		return at > 0 || over
	})
	switch {
	case err != nil:
		return 0, refuse(codes.DeadlineExceeded, "Sandbox %s did not become ready", b.id)
	case at == 0:
		return 0, refuse(codes.FailedPrecondition, "Sandbox %s finished before it was ready", b.id)
	}
	return at, nil
}

// entryOf returns the entrypoint's process, once there is one.
func (s *Server) entryOf(ctx context.Context, b *box) (*process, error) {
	var p *process
	if err := s.await(ctx, b, func() bool { p = b.entry; return p != nil || b.result != nil }); err != nil {
		return nil, err
	}
	if p == nil {
		return nil, refuse(codes.FailedPrecondition, "Sandbox %s ended before it started", b.id)
	}
	return p, nil
}

// SandboxStdinWriteV2 writes to an entrypoint's standard input.
func (r *router) SandboxStdinWriteV2(
	ctx context.Context, in *pb.SandboxStdinWriteV2Request,
) (*pb.SandboxStdinWriteV2Response, error) {
	b, err := r.taskOf(ctx, in.GetTaskId())
	if err != nil {
		return nil, err
	}
	p, err := r.s.entryOf(ctx, b)
	if err != nil {
		return nil, err
	}
	fresh, err := p.feed(in.GetOffset(), in.GetData(), in.GetEof())
	if err != nil {
		return nil, err
	}
	if fresh {
		r.s.svc.Touch(b.svc)
	}
	return &pb.SandboxStdinWriteV2Response{}, nil
}

// SandboxStdioReadV2 streams an entrypoint's output. It can be read when the sandbox has ended.
func (r *router) SandboxStdioReadV2(
	in *pb.SandboxStdioReadV2Request, st grpc.ServerStreamingServer[pb.SandboxStdioReadV2Response],
) error {
	b, err := r.taskOf(st.Context(), in.GetTaskId())
	if err != nil {
		return err
	}
	p, err := r.s.entryOf(st.Context(), b)
	if err != nil {
		return err
	}
	for offset := int(in.GetOffset()); ; {
		data, at, end, err := p.next(st.Context(), int(in.GetFileDescriptor()), offset, r.s.chunk())
		if err != nil {
			return err
		}
		if end {
			return nil
		}
		m := pb.SandboxStdioReadV2Response_builder{Data: data, StartingOffset: uint64(at)}.Build()
		if err := st.Send(m); err != nil {
			return err
		}
		offset = at + len(data)
	}
}

func (s *Server) chunk() int {
	if n := s.Quirks().ChunkSize; n > 0 {
		return n
	}
	return 64 << 10
}

// SandboxStdinWrite is the older backend's way to an entrypoint's standard input.
func (c *control) SandboxStdinWrite(ctx context.Context, in *pb.SandboxStdinWriteRequest) (*pb.SandboxStdinWriteResponse, error) {
	s := c.s
	b, err := s.find(in.GetSandboxId(), true)
	if err != nil {
		return nil, err
	}
	p, err := s.entryOf(ctx, b)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	again := in.GetIndex() <= b.stdinIndex
	b.stdinIndex = max(b.stdinIndex, in.GetIndex())
	s.mu.Unlock()
	if again {
		return &pb.SandboxStdinWriteResponse{}, nil
	}
	p.mu.Lock()
	at := p.written
	p.mu.Unlock()
	if _, err := p.feed(at, in.GetInput(), in.GetEof()); err != nil {
		return nil, err
	}
	s.svc.Touch(b.svc)
	return &pb.SandboxStdinWriteResponse{}, nil
}

// SandboxGetLogs is the older backend's stream of an entrypoint's output. An entry's id is where the next one starts.
func (c *control) SandboxGetLogs(in *pb.SandboxGetLogsRequest, st grpc.ServerStreamingServer[pb.TaskLogsBatch]) error {
	s := c.s
	b, err := s.find(in.GetSandboxId(), true)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(st.Context(), time.Duration(float64(in.GetTimeout())*float64(time.Second)))
	defer cancel()
	p, err := s.entryOf(ctx, b)
	if err != nil {
		if ctx.Err() != nil && st.Context().Err() == nil {
			return nil
		}
		return err
	}
	fd := 0
	if in.GetFileDescriptor() == pb.FileDescriptor_FILE_DESCRIPTOR_STDERR {
		fd = 1
	}
	first, _, _ := strings.Cut(in.GetLastEntryId(), "-")
	offset, _ := strconv.Atoi(first)
	for {
		data, at, end, err := p.next(ctx, fd, offset, s.chunk())
		switch {
		case ctx.Err() != nil && st.Context().Err() == nil:
			return nil // that was one round; the client asks for the next
		case err != nil:
			return err
		case end:
			return st.Send(pb.TaskLogsBatch_builder{TaskId: b.task, Eof: true, EntryId: fmt.Sprintf("%d-0", offset)}.Build())
		}
		offset = at + len(data)
		m := pb.TaskLogsBatch_builder{
			TaskId: b.task, EntryId: fmt.Sprintf("%d-0", offset),
			Items: []*pb.TaskLogs{pb.TaskLogs_builder{
				Data: strings.ToValidUTF8(string(data), "\uFFFD"), FileDescriptor: in.GetFileDescriptor(), Timestamp: seconds(s.svc.Now()),
			}.Build()},
		}.Build()
		if err := st.Send(m); err != nil {
			return err
		}
	}
}
