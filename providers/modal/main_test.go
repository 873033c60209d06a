package modal_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	_ "unsafe" // for go:linkname

	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/sandglass-dev/sandglass/internal/memnet"
)

// The SDK dials the router of commands by itself and takes no options for that. gRPC has options for all connections of
// a process, for its own kin only: this is how these tests get at them, to have the SDK dial in memory and so live in a
// bubble of testing/synctest. Nothing but tests does so.
//
//go:linkname addGlobalDialOptions google.golang.org/grpc/internal.AddGlobalDialOptions
var addGlobalDialOptions any // func(...grpc.DialOption)

func TestMain(m *testing.M) {
	addGlobalDialOptions.(func(...grpc.DialOption))(grpc.WithContextDialer(dialMemory))
	goleak.VerifyTestMain(m)
}

// networks are those in memory, by the one address that somebody listens at.
var (
	networks sync.Map
	ports    atomic.Int64
)

// newAddress returns an address on n that no other network has.
func newAddress(n *memnet.Network) string {
	address := fmt.Sprintf("127.0.0.1:%d", 20_000+ports.Add(1))
	networks.Store(address, n)
	return address
}

func dialMemory(ctx context.Context, address string) (net.Conn, error) {
	if n, ok := networks.Load(address); ok {
		return n.(*memnet.Network).DialContext(ctx, "tcp", address)
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", address)
}
