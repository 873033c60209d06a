package daytonafake

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// dialect is how much of a log's structure a client is shown, which the daemon decides by the SDK version that a
// client names.
type dialect int

const (
	mergedLog dialect = iota // no markers: before 0.27.0, or no version named
	markedLog                // lines behind markers
	splitLog                 // streams apart, where an answer is JSON: from 0.167.0 on
)

func dialectOf(h http.Header) dialect {
	switch v := h.Get("X-Daytona-SDK-Version"); {
	case atLeast(v, 0, 167):
		return splitLog
	case atLeast(v, 0, 27) || h.Get("X-Daytona-Split-Output") == "true":
		return markedLog
	}
	return mergedLog
}

// atLeast reports whether a version is major.minor or later.
func atLeast(version string, major, minor int) bool {
	parts := strings.Split(strings.TrimPrefix(version, "v"), ".")
	if len(parts) < 2 {
		return false
	}
	a, err1 := strconv.Atoi(parts[0])
	b, err2 := strconv.Atoi(parts[1])
	return err1 == nil && err2 == nil && (a > major || a == major && b >= minor)
}

// logs answers with a command's log as it is, or follows it over a WebSocket.
func (s *Server) logs(c *call) (int, any, error) {
	n, cmd, err := s.command(c)
	if err != nil {
		return 0, nil, err
	}
	how := dialectOf(c.Header)
	if isUpgrade(c.Request) {
		use, err := s.svc.Use(c.Context(), sandbox.Op("follow"), c.machine()) // no fault is queued for it
		if err != nil {
			return 0, nil, err
		}
		defer use.Release()
		conn, err := s.upgrade(c)
		if err != nil {
			return 0, nil, err
		}
		ctx, end := context.WithCancelCause(n.ctx)
		watched := make(chan struct{})
		if !s.spawn(func() {
			defer close(watched)
			if err := use.Watch(ctx); err != nil {
				end(err)
			}
		}) {
			close(watched)
		}
		s.follow(ctx, conn, cmd, how, c.URL.Query().Get("follow") == "true", use.Hold)
		end(nil)
		<-watched
		return 0, nil, nil
	}
	log, _, _ := cmd.log.from(0)
	if how == splitLog {
		stdout, stderr := split(log)
		return http.StatusOK, map[string]any{"output": string(merge(log)), "stdout": stdout, "stderr": stderr}, nil
	}
	if how == mergedLog {
		log = merge(log)
	}
	c.out.header.Set("Content-Type", "text/plain; charset=utf-8")
	c.out.body.Write(log)
	return http.StatusOK, nil, nil
}

// follow sends a log until it ends, the client leaves, or ctx ends: with the session, with the server, or with the
// sandbox, which the proxy does not notice for a while.
func (s *Server) follow(ctx context.Context, conn *socket, cmd *command, how dialect, on bool, hold func(context.Context)) {
	defer conn.close()
	sent := 0
	for {
		more, ended, changed := cmd.log.from(sent)
		sent += len(more)
		if how == mergedLog {
			more = merge(more)
		}
		size := s.quirk().FrameSize
		if size <= 0 {
			size = 32 << 10
		}
		for len(more) > 0 {
			hold(ctx)
			n := min(size, len(more))
			if !conn.send(opBinary, more[:n]) {
				return
			}
			more = more[n:]
		}
		if ended || !on {
			conn.bye()
			return
		}
		select {
		case <-changed:
		case <-conn.gone:
			return
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), errClosed) {
				conn.bye()
			} else {
				s.linger(conn)
			}
			return
		}
	}
}

// linger leaves a connection open and silent, and then breaks it.
func (s *Server) linger(conn *socket) {
	t := time.NewTimer(s.quirk().StreamLinger)
	defer t.Stop()
	select {
	case <-conn.gone:
	case <-t.C:
	case <-s.base.Done():
	}
}
