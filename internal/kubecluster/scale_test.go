package kubecluster_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAPuppetHasHundredsOfPodsRunAndEndAtTheirJobsDeadline(t *testing.T) {
	c := control.get(t)
	ns := c.Namespace(t)
	ctx, cancel := context.WithCancel(t.Context())
	var puppet sync.WaitGroup
	puppet.Go(func() { assert.ErrorIs(t, c.RunPuppet(ctx), context.Canceled) })
	began := time.Now()
	const n = 200
	var all sync.WaitGroup
	for worker := range 10 {
		all.Go(func() {
			for i := range n / 10 {
				assert.NoError(t, c.Do(ctx, "POST", jobs(ns), sleeper(fmt.Sprintf("job-%d-%d", worker, i), 120, "sleep", "300"), nil))
			}
		})
	}
	all.Wait()
	ran := map[string]bool{} // on a slow machine the first deadline may come before the last pod does
	eventually(t, "all have run", func() bool {
		objects, err := c.Objects(ctx, ns, "")
		require.NoError(t, err)
		for _, o := range objects {
			if o.Status.Phase == "Running" {
				ran[o.Metadata.UID] = true
			}
		}
		return len(ran) == n
	})
	t.Logf("%d pods had run after %v", n, time.Since(began).Round(time.Second))
	eventually(t, "nothing", func() bool { return empty(t, c, ns) })
	t.Logf("nothing was left after %v", time.Since(began).Round(time.Second))
	cancel()
	puppet.Wait()
}
