package leakcheck_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/leakcheck"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxtest"
)

// An account in which nothing is left, twice: the first check cannot know that, and says so.
func ExampleFind() {
	ctx := context.Background()
	p := sandboxtest.New(sandbox.Capabilities{})

	err := leakcheck.Find(ctx, p)
	fmt.Println(errors.Is(err, leakcheck.ErrNoWitness))

	err = leakcheck.Find(ctx, p, leakcheck.Canary(sandbox.Spec{}))
	fmt.Println(err)
	// Output:
	// true
	// <nil>
}
