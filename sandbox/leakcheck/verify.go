package leakcheck

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// verifyTime is the limit of a whole check where nobody gives a context.
const verifyTime = 10 * time.Minute

// TB is what a check needs of a [testing.TB].
type TB interface {
	Helper()
	Error(args ...any)
}

// M is what a check needs of a [testing.M].
type M interface {
	Run() int
}

// VerifyNone fails the test if [Find] returns an error. It waits for up to 10 minutes, whatever the test's context says.
func VerifyNone(tb TB, p sandbox.Provider, opts ...Option) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), verifyTime)
	defer cancel()
	if err := Find(ctx, p, opts...); err != nil {
		tb.Error(err)
	}
}

// VerifyTestMain runs m's tests, then checks once for all of them, and ends the process: with the tests' exit code if they
// failed, with 1 if the check did. Its error goes to standard error. It does not return. Options are evaluated after the
// tests have run.
//
// The check is made after failed tests too: they leak most.
func VerifyTestMain(m M, p sandbox.Provider, opts ...Option) {
	code := m.Run()
	ctx, cancel := context.WithTimeout(context.Background(), verifyTime)
	err := Find(ctx, p, opts...)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		if code == 0 {
			code = 1
		}
	}
	os.Exit(code)
}
