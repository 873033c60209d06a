package docker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/moby/moby/client"

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

// kill ends a command that was told to begin, and all that belongs to it, or finds that it has ended. Root finds by
// kinship and may signal everybody; it is only the command's own user, though, who may read the environment of its
// processes.
func (r *running) kill(ctx context.Context) error {
	users := []string{"0:0"}
	if name, _, _ := strings.Cut(r.user, ":"); name != "0" && name != "root" {
		users = append(users, r.user)
	}
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, 500*time.Millisecond) {
		var failed error
		for _, user := range users {
			if err := r.killAs(ctx, user); err != nil {
				failed = errors.Join(failed, err)
			}
		}
		if failed == nil || r.gone(ctx) {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), failed)
		case <-time.After(pause): // with a full table of processes, the next try may find room
		}
	}
}

// gone reports whether the whole sandbox has ended.
func (r *running) gone(ctx context.Context) bool {
	info, err := r.h.p.look(ctx, sandbox.OpExec, r.h.id, false)
	return errors.Is(err, sandbox.ErrNotFound) || err == nil && info.State == sandbox.StateEnding
}

// killAs runs the killer once.
func (r *running) killAs(ctx context.Context, user string) error {
	created, err := r.h.p.engine.ExecCreate(ctx, r.h.id, client.ExecCreateOptions{
		User: user, AttachStdout: true,
		Cmd: []string{
			"/bin/sh", "-c", killer.Script(), "sandglass-kill", markVar + "=" + r.mark, strconv.FormatInt(r.out.head.pid(), 10),
		},
	})
	if err != nil {
		return err
	}
	conn, err := r.h.p.engine.ExecAttach(ctx, created.ID, client.ExecAttachOptions{})
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, conn.Close)()
	said := make([]byte, 0, 256)
	buf := make([]byte, 256)
	out := &stdout{r: conn.Reader}
	for len(said) < 4<<10 {
		n, err := out.Read(buf)
		said = append(said, buf[:n]...)
		if strings.HasSuffix(string(said), "done\n") {
			return nil
		}
		if err != nil {
			break
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("killer as user %q: %q", user, said)
}
