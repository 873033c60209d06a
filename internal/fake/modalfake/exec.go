package modalfake

import (
	"context"
	"errors"
	"io"
	"maps"
	"strings"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/sandglass-dev/sandglass/internal/fake/shell"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// maxArgs is the most bytes that a command's arguments may have.
const maxArgs = 1 << 16

// TaskExecStart starts a command, unless one of the same id was started.
func (r *router) TaskExecStart(ctx context.Context, in *pb.TaskExecStartRequest) (*pb.TaskExecStartResponse, error) {
	s := r.s
	b, err := r.taskOf(ctx, in.GetTaskId())
	if err != nil {
		return nil, err
	}
	size := 0
	for _, a := range in.GetCommandArgs() {
		size += len(a)
	}
	switch {
	case in.GetExecId() == "" || len(in.GetCommandArgs()) == 0:
		return nil, invalid("exec id and command are required")
	case size > maxArgs:
		return nil, invalid("arguments have %d bytes, at most %d are allowed", size, maxArgs)
	case in.HasWorkdir() && !strings.HasPrefix(in.GetWorkdir(), "/"):
		return nil, invalid("workdir must be an absolute path")
	}
	s.mu.Lock()
	_, again := b.execs[in.GetExecId()]
	env, err := s.environ(in.GetSecretIds(), in.GetEnv(), in.GetSecretSources())
	s.mu.Unlock()
	if again || err != nil || ignored(ctx) {
		return &pb.TaskExecStartResponse{}, err
	}
	use, err := s.svc.Use(ctx, sandbox.OpExec, b.svc)
	if err != nil {
		if e, ok := errors.AsType[*sandbox.APIError](err); ok && (e.Code == "not_found" || e.Code == "not_running") {
			code := s.Quirks().ExecGone
			if code == codes.OK {
				code = codes.NotFound
			}
			return nil, refuse(code, "Task %s is not running", in.GetTaskId())
		}
		return nil, err
	}
	run, disk, err := s.place(b, in.GetContainerId())
	if err != nil {
		use.Release()
		return nil, err
	}
	run.Args = in.GetCommandArgs()
	maps.Copy(run.Env, env)
	if in.HasWorkdir() {
		run.Dir = in.GetWorkdir()
	}
	p := newProcess(b, run)
	p.id, p.container, p.disk, p.use = in.GetExecId(), in.GetContainerId(), disk, use
	p.limit = time.Duration(in.GetTimeoutSecs()) * time.Second
	p.out[0].none = in.GetStdoutConfig() == pb.TaskExecStdoutConfig_TASK_EXEC_STDOUT_CONFIG_DEVNULL
	p.out[1].none = in.GetStderrConfig() == pb.TaskExecStderrConfig_TASK_EXEC_STDERR_CONFIG_DEVNULL
	p.merged = in.GetStderrConfig() == pb.TaskExecStderrConfig_TASK_EXEC_STDERR_CONFIG_STDOUT
	s.mu.Lock()
	if _, again = b.execs[p.id]; !again {
		b.execs[p.id] = p
	}
	s.mu.Unlock()
	if again {
		use.Release()
		return &pb.TaskExecStartResponse{}, nil
	}
	if !s.launch(p, nil) {
		return nil, context.Canceled
	}
	if err := use.After(ctx); err != nil {
		return nil, err
	}
	return &pb.TaskExecStartResponse{}, nil
}

// place returns how and on which disk commands run, in the main container or another.
func (s *Server) place(b *box, container string) (shell.Command, *shell.FS, error) {
	if container == "" {
		return shell.Command{Env: maps.Clone(b.env), Dir: b.workdir()}, s.diskOf(b), nil
	}
	c, err := s.containerOf(b, container)
	if err != nil {
		return shell.Command{}, nil, err
	}
	return shell.Command{Env: maps.Clone(c.env), Dir: c.dir}, c.disk, nil
}

// execOf returns a command.
func (r *router) execOf(ctx context.Context, task, id string) (*process, error) {
	b, err := r.taskOf(ctx, task)
	if err != nil {
		return nil, err
	}
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	p := b.execs[id]
	if p == nil {
		return nil, refuse(codes.NotFound, "Exec %s not found", id)
	}
	return p, nil
}

// fate returns what became of a command that has ended.
func (s *Server) fate(p *process) (exit, signal int32, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if code := s.Quirks().DeadExec; p.lost != nil && code != codes.OK {
		return 0, 0, refuse(code, "Task %s has ended", p.box.task)
	}
	return p.exit, p.signal, nil
}

func (r *router) TaskExecWait(ctx context.Context, in *pb.TaskExecWaitRequest) (*pb.TaskExecWaitResponse, error) {
	p, err := r.execOf(ctx, in.GetTaskId(), in.GetExecId())
	if err != nil {
		return nil, err
	}
	if err := p.await(ctx, func() bool { return p.ended }); err != nil {
		return nil, err
	}
	exit, signal, err := r.s.fate(p)
	if err != nil {
		return nil, err
	}
	if signal != 0 {
		return pb.TaskExecWaitResponse_builder{Signal: &signal}.Build(), nil
	}
	return pb.TaskExecWaitResponse_builder{Code: &exit}.Build(), nil
}

func (r *router) TaskExecPoll(ctx context.Context, in *pb.TaskExecPollRequest) (*pb.TaskExecPollResponse, error) {
	p, err := r.execOf(ctx, in.GetTaskId(), in.GetExecId())
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	ended := p.ended
	p.mu.Unlock()
	if !ended {
		return &pb.TaskExecPollResponse{}, nil
	}
	exit, signal, err := r.s.fate(p)
	if err != nil {
		return nil, err
	}
	if signal != 0 {
		return pb.TaskExecPollResponse_builder{Signal: &signal}.Build(), nil
	}
	return pb.TaskExecPollResponse_builder{Code: &exit}.Build(), nil
}

// TaskExecStdioRead streams a command's output from an offset on until the command has ended.
func (r *router) TaskExecStdioRead(
	in *pb.TaskExecStdioReadRequest, st grpc.ServerStreamingServer[pb.TaskExecStdioReadResponse],
) error {
	p, err := r.execOf(st.Context(), in.GetTaskId(), in.GetExecId())
	if err != nil {
		return err
	}
	for offset := int(in.GetOffset()); ; {
		data, at, end, err := p.next(st.Context(), int(in.GetFileDescriptor()), offset, r.s.chunk())
		p.mu.Lock()
		lost := p.ended && p.lost != nil
		p.mu.Unlock()
		switch {
		case err != nil:
			return err
		case lost && (end || r.s.Quirks().LosesOutput):
			_, _, err := r.s.fate(p)
			return err
		case end:
			return nil
		}
		if err := st.Send(pb.TaskExecStdioReadResponse_builder{Data: data}.Build()); err != nil {
			return err
		}
		offset = at + len(data)
	}
}

func (r *router) TaskExecStdinWrite(ctx context.Context, in *pb.TaskExecStdinWriteRequest) (*pb.TaskExecStdinWriteResponse, error) {
	p, err := r.execOf(ctx, in.GetTaskId(), in.GetExecId())
	if err != nil {
		return nil, err
	}
	if _, err := p.feed(in.GetOffset(), in.GetData(), in.GetEof()); err != nil {
		return nil, err
	}
	r.s.svc.Touch(p.box.svc)
	return &pb.TaskExecStdinWriteResponse{}, nil
}

// takeover throws out who streams to standard input, and returns what is closed when the next one does so.
func (p *process) takeover() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.evict != nil {
		close(p.evict)
	}
	p.evict = make(chan struct{})
	return p.evict
}

func (r *router) TaskExecStdinStatus(
	ctx context.Context, in *pb.TaskExecStdinStatusRequest,
) (*pb.TaskExecStdinStatusResponse, error) {
	p, err := r.execOf(ctx, in.GetTaskId(), in.GetExecId())
	if err != nil {
		return nil, err
	}
	p.takeover()
	p.mu.Lock()
	defer p.mu.Unlock()
	return pb.TaskExecStdinStatusResponse_builder{NumBytesWritten: p.written, Closed: p.shut}.Build(), nil
}

// TaskExecStdinWriteStream takes a command's standard input as a stream. Without an end it stays open.
func (r *router) TaskExecStdinWriteStream(
	st grpc.ClientStreamingServer[pb.TaskExecStdinWriteStreamRequest, pb.TaskExecStdinWriteStreamResponse],
) error {
	first, err := st.Recv()
	if err != nil {
		return err
	}
	start := first.GetStart()
	if start == nil {
		return invalid("the first message must be a start")
	}
	p, err := r.execOf(st.Context(), start.GetTaskId(), start.GetExecId())
	if err != nil {
		return err
	}
	evicted := p.takeover()
	offset := start.GetOffset()
	for {
		m, err := st.Recv()
		if err == io.EOF {
			return invalid("the stream ended without an end")
		}
		if err != nil {
			return err
		}
		select {
		case <-evicted:
			return refuse(codes.Aborted, "another stream took over")
		default:
		}
		data, end := m.GetData(), m.HasEnd()
		if _, err := p.feed(offset, data, end); err != nil {
			return err
		}
		r.s.svc.Touch(p.box.svc)
		offset += uint64(len(data))
		if end {
			return st.SendAndClose(&pb.TaskExecStdinWriteStreamResponse{})
		}
	}
}
