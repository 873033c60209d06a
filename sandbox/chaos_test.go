package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxtest"
)

// Any mixture of faults, exits and cancels, at random instants, on every kind of service: in the end nothing lives, or
// the error names it. A seed that fails can be run alone.
func TestNoMixtureOfFaultsLeavesAnythingUnsaid(t *testing.T) {
	seeds := uint64(120)
	if testing.Short() {
		seeds = 20
	}
	for _, k := range append(sandboxtest.Kinds(), everything(), unkeyed()) {
		t.Run(k.Name, func(t *testing.T) {
			for seed := range seeds {
				t.Run(fmt.Sprint(seed), func(t *testing.T) {
					random := rand.New(rand.NewPCG(seed, 42))
					cfg := sandbox.Config{MaxLive: random.IntN(3)}
					inWorld(t, k, cfg, func(w *world) { chaos(w, random) })
				})
			}
		})
	}
}

func chaos(w *world, random *rand.Rand) {
	upTo := func(d time.Duration) time.Duration { return time.Duration(random.Int64N(int64(d))) }
	fault := func(op sandbox.Op) sandboxtest.Fault {
		statuses := []int{400, 401, 403, 409, 429, 500, 502, 503, 404}
		if op == sandbox.OpGet { // a look that finds nothing is the proof, and no lie
			statuses = statuses[:8]
		}
		f := sandboxtest.Fault{Skip: random.IntN(3), Times: 1 + random.IntN(6)}
		switch random.IntN(7) {
		case 0:
			f.Hang, f.After = true, random.IntN(2) == 0
		case 1:
			f.Delay = upTo(40 * sec)
		case 2:
			f.Err, f.After = errors.New("connection reset"), random.IntN(2) == 0
		case 3:
			f.Panic, f.After = "provider bug", random.IntN(2) == 0
		case 4:
			f.Hang, f.Deaf = true, true
		default:
			status := sandboxtest.Status(statuses[random.IntN(len(statuses))])
			f.Err = status
			if status.Status >= 500 { // below, the service says for certain that it did nothing
				f.After = random.IntN(2) == 0
			}
		}
		return f
	}
	for _, op := range []sandbox.Op{sandbox.OpCreate, sandbox.OpGet, sandbox.OpList, sandbox.OpExtend, sandbox.OpDelete} {
		for range random.IntN(3) {
			w.p.Fault(op, fault(op))
		}
	}
	exit, life := random.IntN(6), upTo(20*mins)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if random.IntN(3) == 0 {
		time.AfterFunc(upTo(10*mins), cancel)
	}
	if random.IntN(4) == 0 {
		time.AfterFunc(upTo(10*mins), func() {
			for _, info := range w.p.Live() {
				w.p.Kill(info.ID)
			}
		})
	}
	done := make(chan struct{})
	var err error
	left := true // stays so while a panic or Goexit unwinds
	go func() {
		defer close(done)
		defer func() { _ = recover() }()
		err = w.m.WithSandbox(ctx, func(ctx context.Context, _ sandbox.Sandbox) error {
			select {
			case <-ctx.Done():
			case <-time.After(life):
			}
			switch exit {
			case 0:
				panic("boom")
			case 1:
				runtime.Goexit()
			case 2:
				time.Sleep(mins) // a slow one
			case 3:
				return errTask
			}
			return nil
		})
		left = false
	}()
	<-done
	w.p.Heal()
	synctest.Wait()
	time.Sleep(5 * mins) // what was on its way arrives, what was late is deleted
	synctest.Wait()
	leak, _ := errors.AsType[*sandbox.LeakError](err)
	if left { // the event is all there is then
		for _, e := range w.seen(sandbox.OpConfirm, true) {
			if e.Err != nil {
				leak, _ = errors.AsType[*sandbox.LeakError](e.Err)
			}
		}
	}
	w.honest(leak)
	deletes := w.p.Calls(sandbox.OpDelete)
	for _, c := range w.p.Calls(sandbox.OpExtend) {
		for _, d := range deletes {
			assert.False(w.t, d.ID == c.ID && c.Start.After(d.Start), "an extend of %s was sent after its delete", c.ID)
		}
	}
}
