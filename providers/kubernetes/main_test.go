package kubernetes_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sandglass-dev/sandglass/internal/kubecluster"
)

// The clusters of this test process, each started by the first test that needs it.
var (
	plain = sync.OnceValues(func() (*kubecluster.Cluster, error) { return start(false) })
	whole = sync.OnceValues(func() (*kubecluster.Cluster, error) { return start(true) })

	startedMu sync.Mutex
	started   []*kubecluster.Cluster
)

func start(node bool) (*kubecluster.Cluster, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	c, err := kubecluster.Start(ctx, kubecluster.Config{Node: node})
	if err == nil {
		startedMu.Lock()
		defer startedMu.Unlock()
		started = append(started, c)
	}
	return c, err
}

func TestMain(m *testing.M) {
	code := m.Run()
	for _, c := range started {
		if err := c.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "end a cluster:", err)
		}
	}
	var err error
	for range 40 { // what still ends a command in the background gives up within half a minute
		if err = goleak.Find(); err == nil || code != 0 {
			break
		}
		time.Sleep(time.Second)
	}
	if code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
