// Package leaktest is a small runner of scripts, and an example of how the tests of such a thing end: its TestMain, in
// leaktest_test.go, fails when a sandbox is left, however well the tests did.
package leaktest

import (
	"context"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// A Runner runs scripts, each in a sandbox of its own. It is safe for concurrent use.
type Runner struct {
	Manager *sandbox.Manager // required; Shutdown is its owner's affair
}

// Run has sh run the script and returns what that wrote to standard output. Exit codes other than 0 are errors, with the
// end of what was written to standard error. The sandbox is gone when Run returns, unless the error is a
// [*sandbox.LeakError].
func (r Runner) Run(ctx context.Context, script string) (string, error) {
	var out string
	err := r.Manager.WithSandbox(ctx, func(ctx context.Context, sb sandbox.Sandbox) error {
		res, err := sb.Exec(ctx, sandbox.Shell(script))
		if err != nil {
			return err
		}
		out = string(res.Stdout)
		return res.Err()
	})
	return out, err
}
