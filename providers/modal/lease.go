package modal

import (
	"bytes"
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/sandglass-dev/sandglass/sandbox"
)

var (
	//go:embed watchdog.sh
	watchdog string

	//go:embed beat.sh
	beater string
)

const (
	leaseOver = 97               // the watchdog's exit code
	beatTime  = 20 * time.Second // the service's limit of a beat's command
	maxWords  = 4 << 10          // bytes that are read of what a beat says
)

func random() string { return strings.ToLower(rand.Text()) }

// Extend is a beat: a short command that tells the watchdog of the new end, and that is the use which restarts the
// service's own idle time. The watchdog counts by the sandbox's clock, from when it hears of it, never beyond the hard
// end; window is at most that of the create. A beat that is overtaken by a later one of the same Provider counts for
// nothing.
func (p *Provider) Extend(ctx context.Context, cur sandbox.Info, window time.Duration) (sandbox.Info, error) {
	if !idForm.MatchString(cur.ID) {
		return sandbox.Info{}, p.noSuch(sandbox.OpExtend, cur.ID, errors.New("not a sandbox's id"))
	}
	if window < minWindow || window > maxLife {
		return sandbox.Info{}, p.refuse(sandbox.OpExtend, cur.ID, sandbox.ErrInvalid, fmt.Errorf("window %v is not in %v to %v", window, minWindow, maxLife))
	}
	if expired(ctx) {
		return sandbox.Info{}, context.Cause(ctx)
	}
	k := p.recall(cur.ID)
	if !k.learned {
		tctx, cancel := context.WithTimeout(ctx, readTime)
		tags, err := p.service.tags(tctx, cur.ID)
		cancel()
		if err != nil {
			return sandbox.Info{}, p.fail(ctx, sandbox.OpExtend, cur.ID, err)
		}
		k.beat, k.learned = beatOf(tags), true
		p.learn(cur.ID, k)
	}
	left, asked, err := p.beat(ctx, cur.ID, k.beat, window.Truncate(time.Second))
	if err != nil {
		return sandbox.Info{}, p.noBeat(ctx, cur.ID, err)
	}
	return granted(cur, left, asked), nil
}

// granted is info after a beat that was asked for at a time. As little as possible is promised: the answer may have been
// long on its way.
func granted(info sandbox.Info, left time.Duration, asked time.Time) sandbox.Info {
	info.State, info.Detail, info.AsOf = sandbox.StateRunning, "running", time.Now()
	info.Deadline = info.AsOf.Add(max(0, left-info.AsOf.Sub(asked)))
	return info
}

// noBeat says why a beat failed: because the sandbox has ended, or for itself.
func (p *Provider) noBeat(ctx context.Context, id string, err error) error {
	if expired(ctx) {
		return context.Cause(ctx)
	}
	if gone := p.over(ctx, sandbox.OpExtend, id); gone != nil {
		return gone
	}
	e := p.told(sandbox.OpExtend, id, err)
	if e.Kind == sandbox.ErrNotFound { // of a command: the sandbox itself was just seen
		e.Kind = nil
	}
	return e
}

// over returns an error that tells how the sandbox has ended, or nil if that is not known.
func (p *Provider) over(ctx context.Context, op sandbox.Op, id string) error {
	wctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	end, err := p.service.wait(wctx, id, 0)
	switch {
	case err != nil && codeIs(err, codeNotFound) && wctx.Err() == nil:
		p.forget(id)
		return p.told(op, id, err)
	case err != nil || !end.over:
		return nil
	}
	p.forget(id)
	return &sandbox.APIError{
		Provider: p.name, Op: op, ID: id, Code: end.word, Kind: sandbox.ErrNotFound, Err: fmt.Errorf("it has ended: %s", end),
	}
}

// beat runs one beat, and returns what was left when the watchdog heard it, and a time before that.
func (p *Provider) beat(ctx context.Context, id string, without []string, window time.Duration) (left time.Duration, asked time.Time, err error) {
	n, asked := p.beats.Add(1), time.Now()
	if len(without) > 0 {
		if _, _, err := p.errand(ctx, id, command{args: without, limit: beatTime, mute: true}); err != nil {
			return 0, asked, err
		}
		return window, asked, nil // whatever its exit code: something has run
	}
	code, said, err := p.errand(ctx, id, command{args: []string{
		"sh", "-c", beater, "sandglass-beat", p.owner, strconv.FormatUint(n, 10), strconv.FormatInt(int64(window/time.Second), 10),
	}, limit: beatTime})
	if err != nil {
		return 0, asked, err
	}
	left, ok := readLeft(said)
	if code != 0 || !ok {
		return 0, asked, fmt.Errorf("the watchdog does not answer (code %d)", code)
	}
	return min(left, window), asked, nil
}

// readLeft reads what beat.sh prints.
func readLeft(said string) (time.Duration, bool) {
	hundredths, err := strconv.ParseUint(strings.TrimSuffix(said, "\n"), 10, 31)
	return time.Duration(hundredths) * 10 * time.Millisecond, err == nil
}

// errand runs a command of ours to its end and returns what it has written to its standard output, cut at the end.
func (p *Provider) errand(ctx context.Context, id string, c command) (code int, said string, err error) {
	proc, err := p.service.start(ctx, id, c)
	if err != nil {
		return 0, "", err
	}
	defer proc.stdout.Close()
	defer proc.stderr.Close()
	var out bytes.Buffer
	if !c.mute {
		read := make(chan error, 1)
		go func() {
			_, err := io.Copy(&out, io.LimitReader(proc.stdout, maxWords))
			read <- err
		}()
		select {
		case err = <-read:
		case <-ctx.Done():
			_ = proc.stdout.Close() // ends the reading
			<-read
			return 0, "", context.Cause(ctx)
		}
		if err != nil {
			return 0, "", err
		}
	}
	code, err = proc.wait(ctx)
	return code, out.String(), err
}
