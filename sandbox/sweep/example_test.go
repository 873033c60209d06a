package sweep_test

import (
	"context"
	"fmt"
	"time"

	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxtest"
	"github.com/sandglass-dev/sandglass/sandbox/sweep"
)

// A service that did not act on a sandbox's deadline, and an owner that is no more.
func Example() {
	ctx := context.Background()
	p := sandboxtest.New(sandbox.Capabilities{})
	p.Behave(func(b *sandboxtest.Behaviour) { b.Unenforced = true })
	_, err := p.Create(ctx, sandbox.CreateRequest{
		Mark: sandbox.Mark{
			Fleet: "ci-agents", Owner: "host.1", Nonce: "aaaaaaaaaaaaaaaa", Created: time.Now(), Lifetime: time.Hour,
		},
		Window: 3 * time.Minute,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	p.Advance(10 * time.Minute)

	s, err := sweep.New(sweep.Config{Fleet: "ci-agents", Providers: []sandbox.Provider{p}})
	if err != nil {
		fmt.Println(err)
		return
	}
	report, err := s.Sweep(ctx)
	for _, item := range report.Accounts[0].Items {
		fmt.Println(item.ID, item.Outcome+":", item.Rule)
	}
	fmt.Println(err, len(p.Live()))
	// Output:
	// sb-1 deleted: lease passed
	// <nil> 0
}
