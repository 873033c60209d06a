package contain_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/sandglass-dev/sandglass/internal/contain"
)

func TestCallReturnsWithinItsLimitEvenIfTheCallIsDeaf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		began := time.Now()
		_, err := contain.Call(context.Background(), time.Second, func(context.Context) (int, error) { <-release; return 1, nil })
		assert.ErrorIs(t, err, contain.ErrDeaf)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.LessOrEqual(t, time.Since(began), time.Second+50*time.Millisecond)
		close(release)
	})
}

func TestCallThatHearsTheEndOfItsContextHasTheLastWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine := errors.New("mine")
		v, err := contain.Call(context.Background(), time.Second, func(ctx context.Context) (int, error) {
			<-ctx.Done()
			assert.ErrorContains(t, context.Cause(ctx), "no answer within 1s")
			return 7, mine
		})
		assert.Equal(t, 7, v)
		assert.ErrorIs(t, err, mine)
	})
}

func TestPanicAndGoexitAreErrors(t *testing.T) {
	for name, call := range map[string]func(context.Context) error{
		"panicked: boom":               func(context.Context) error { panic("boom") },
		"the call ended its goroutine": func(context.Context) error { runtime.Goexit(); return nil },
	} {
		assert.ErrorContains(t, contain.Do(context.Background(), time.Minute, call), name)
	}
}

func TestSleepEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		assert.NoError(t, contain.Sleep(context.Background(), time.Hour))
		why := errors.New("enough")
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(why)
		assert.ErrorIs(t, contain.Sleep(ctx, time.Hour), why)
	})
}
