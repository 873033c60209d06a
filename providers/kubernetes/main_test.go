package kubernetes_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
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
	frail = sync.OnceValues(func() (*kubecluster.Cluster, error) { return start(true) })

	frailMu sync.Mutex // held by the one test that is on it

	endsMu sync.Mutex
	ends   []func() error
)

func start(node bool) (*kubecluster.Cluster, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	c, err := kubecluster.Start(ctx, kubecluster.Config{Node: node})
	if err != nil {
		return nil, err
	}
	end := c.Close
	if !node {
		end = play(c)
	}
	endsMu.Lock()
	defer endsMu.Unlock()
	ends = append(ends, end)
	return c, nil
}

// play has a puppet run the pods of a cluster without a node, and returns what ends both.
func play(c *kubecluster.Cluster) (end func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.RunPuppet(ctx) }()
	return func() error {
		cancel()
		err := <-done
		if errors.Is(err, context.Canceled) {
			err = nil
		}
		return errors.Join(err, c.Close())
	}
}

func TestMain(m *testing.M) {
	flag.Parse()
	atOnce := flag.Lookup("test.parallel") // what these tests do is wait, for deadlines of a real service
	if n, err := strconv.Atoi(atOnce.Value.String()); err != nil || n < 16 {
		_ = atOnce.Value.Set("16")
	}
	code := m.Run()
	for _, end := range ends {
		if err := end(); err != nil {
			fmt.Fprintln(os.Stderr, "end a cluster:", err)
			code = max(code, 1)
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
