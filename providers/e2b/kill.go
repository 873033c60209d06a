package e2b

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/sandglass-dev/sandglass/internal/killer"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// abandon kills a command that its caller has left.
func (r *running) abandon(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTime)
	defer cancel()
	if err := r.kill(ctx); err != nil {
		r.h.p.log.WarnContext(ctx, "command not seen to be killed; it ends with its sandbox", slog.String("provider", r.h.p.name),
			slog.String("sandbox_id", r.h.id), slog.String("op", string(sandbox.OpExec)), slog.Any("error", err))
	}
}

// kill ends a command that was told to begin, and all that belongs to it, or finds that the sandbox has ended. The
// daemon's own signals reach the command alone and spare its children.
func (r *running) kill(ctx context.Context) error {
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := r.killOnce(ctx)
		if err == nil || r.over(ctx) {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-time.After(pause): // where no process can be made, the next try may find room
		}
	}
}

// over reports whether nothing runs any more in the sandbox.
func (r *running) over(ctx context.Context) bool {
	info, err := r.h.p.get(ctx, sandbox.OpExec, r.h.id)
	return errors.Is(err, sandbox.ErrNotFound) || err == nil && !info.State.MayRun()
}

// killOnce runs the killer, as root: only root may signal everybody and read all environments. Without the process id,
// it goes by the environment alone.
func (r *running) killOnce(ctx context.Context) error {
	req, err := r.request(startBody{Process: processBody{
		Cmd: "/bin/sh", Args: []string{"-c", killer.Script(), "sandglass-kill", markVar + "=" + r.mark, fmt.Sprint(r.pid.Load())},
	}}, "root", killTime)
	if err != nil {
		return err
	}
	b, err := r.h.p.inside.Open(ctx, req)
	if err != nil {
		return err
	}
	defer func() { _ = b.Close() }()
	var said []byte
	for len(said) < 4<<10 {
		m, err := next(b)
		if err != nil {
			return fmt.Errorf("killer: %q: %w", said, err)
		}
		if m.Event.Data != nil {
			said = append(said, m.Event.Data.Stdout...)
		}
		if strings.HasSuffix(string(said), "done\n") {
			return nil
		}
		if m.Event.End != nil {
			break
		}
	}
	return fmt.Errorf("killer: %q", said)
}
