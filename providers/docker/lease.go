package docker

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/moby/moby/client"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// What the watchdog understands; see watchdog.sh.
const (
	opSet = "set"
	opCut = "cut"
	opAsk = "ask"
)

// Extend tells the watchdog to count anew, and returns when it has answered. It writes to the standard input of a
// process that is there already, by way of the engine: no process, no space on the disk and no network inside is needed.
func (p *Provider) Extend(ctx context.Context, cur sandbox.Info, window time.Duration) (sandbox.Info, error) {
	if !isID(cur.ID) {
		return sandbox.Info{}, p.noSuch(sandbox.OpExtend, cur.ID)
	}
	if window < minWindow || window > maxWindow || window%time.Second != 0 {
		err := fmt.Errorf("window %v is not in %v to %v in whole seconds", window, minWindow, maxWindow)
		return sandbox.Info{}, p.refuse(sandbox.OpExtend, sandbox.ErrInvalid, err)
	}
	said, failed := p.tell(ctx, cur.ID, opSet, window)
	if failed == nil {
		return p.granted(ctx, cur, said)
	}
	if ctx.Err() != nil {
		return sandbox.Info{}, context.Cause(ctx)
	}
	info, err := p.look(ctx, sandbox.OpExtend, cur.ID, false)
	switch {
	case err != nil:
		return sandbox.Info{}, err
	case info.State != sandbox.StateRunning:
		return info, nil // the state says it all: nothing was prolonged
	}
	return sandbox.Info{}, failed
}

// granted is cur after an answer of its watchdog, which is all the proof of life there can be. The engine is asked for
// its clock only: its word on the container waits for commands that are being started, as long as these may take.
func (p *Provider) granted(ctx context.Context, cur sandbox.Info, said answer) (sandbox.Info, error) {
	ctx, c := watch(ctx)
	if _, err := p.engine.Ping(ctx, client.PingOptions{}); err != nil {
		return sandbox.Info{}, p.fail(ctx, c, sandbox.OpExtend, cur.ID, err)
	}
	cur.AsOf = c.asOf()
	cur.State, cur.Detail = sandbox.StateRunning, "running"
	said.fill(&cur)
	return cur, nil
}

// Shorten tells the watchdog to end so soon, unless it would end sooner. The comparison is the watchdog's own, so that
// no race can make it longer.
func (p *Provider) Shorten(ctx context.Context, id string, left time.Duration) error {
	if !isID(id) {
		return p.noSuch(sandbox.OpExtend, id)
	}
	left = left.Truncate(time.Second)
	if left < minWindow || left > maxWindow {
		err := fmt.Errorf("%v is not in %v to %v", left, minWindow, maxWindow)
		return p.refuse(sandbox.OpExtend, sandbox.ErrInvalid, err)
	}
	if _, err := p.tell(ctx, id, opCut, left); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if _, gone := p.look(ctx, sandbox.OpExtend, id, false); errors.Is(gone, sandbox.ErrNotFound) {
			return gone
		}
		return err
	}
	return nil
}

// An answer is what the watchdog said.
type answer struct {
	left  time.Duration // of the lease, when it answered
	run   string        // a container that is started anew has another
	asked time.Time     // before it answered
}

// fill sets what info says of the lease. As little as possible is promised: the answer may have been long on its way.
func (a answer) fill(info *sandbox.Info) {
	info.Run = a.run
	info.Deadline = info.AsOf.Add(max(0, a.left-time.Since(a.asked)))
}

// tell sends the watchdog one line and returns its answer. After an error the line may yet be
// obeyed, but not later than the lease that it finds: the watchdog looks at the clock first. It does not wait longer
// than startTime, since engines do not always close the connection when the container has gone.
func (p *Provider) tell(ctx context.Context, id, op string, d time.Duration) (answer, error) {
	return p.tellWithin(ctx, startTime, id, op, d)
}

func (p *Provider) tellWithin(ctx context.Context, limit time.Duration, id, op string, d time.Duration) (answer, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errors.New("no answer from the watchdog"))
	defer cancel()
	ctx, c := watch(ctx)
	conn, err := p.engine.ContainerAttach(ctx, id, client.ContainerAttachOptions{Stream: true, Stdin: true, Stdout: true})
	if err != nil {
		return answer{}, p.fail(ctx, c, sandbox.OpExtend, id, err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, conn.Close)()

	// The shells read byte by byte, and forget what they have of a line when an orphan's end interrupts them. So the
	// line is sent again until it was heard: hearing it twice changes nothing.
	asked := time.Now()
	token := strings.ToLower(rand.Text())[:10]
	heard, sending := make(chan struct{}), make(chan struct{})
	defer func() {
		close(heard)
		conn.Close()
		<-sending
	}()
	go func() {
		defer close(sending)
		for pause := 50 * time.Millisecond; ; pause = min(2*pause, time.Second) {
			if _, err := fmt.Fprintf(conn.Conn, "%s %s %d\n", op, token, d/time.Second); err != nil {
				return // the reader sees it too
			}
			select {
			case <-heard:
				return
			case <-time.After(pause):
			}
		}
	}()
	// Answers to others come along this way too. Whoever is root inside can write here, so there is a limit.
	lines := bufio.NewScanner(io.LimitReader(&stdout{r: conn.Reader}, 1<<20))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) != 3 || fields[0] != token {
			continue
		}
		hundredths, err := strconv.ParseUint(fields[1], 10, 31)
		if err != nil {
			continue
		}
		return answer{time.Duration(hundredths) * 10 * time.Millisecond, fields[2], asked}, nil
	}
	if ctx.Err() != nil {
		return answer{}, context.Cause(ctx)
	}
	err = lines.Err()
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	err = fmt.Errorf("no answer from the watchdog: %w", err)
	return answer{}, &sandbox.APIError{Provider: p.name, Op: sandbox.OpExtend, ID: id, Err: err}
}

// A stdout reads standard output from the stream in which the engine mixes it with the rest: frames with a head of
// the stream's number, three zero bytes, and the length.
type stdout struct {
	r    io.Reader
	left uint32 // of the present frame
}

func (s *stdout) Read(p []byte) (int, error) {
	for s.left == 0 {
		var head [8]byte
		if _, err := io.ReadFull(s.r, head[:]); err != nil {
			return 0, err
		}
		size := binary.BigEndian.Uint32(head[4:])
		if head[0] != 1 {
			if _, err := io.CopyN(io.Discard, s.r, int64(size)); err != nil {
				return 0, err
			}
			continue
		}
		s.left = size
	}
	n, err := s.r.Read(p[:min(len(p), int(s.left))])
	s.left -= uint32(n)
	return n, err
}
