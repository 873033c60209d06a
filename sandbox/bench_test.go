package sandbox_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxtest"
)

// BenchmarkScope compares a scope with the two bare calls that it is made around. Both numbers are of one run; what
// counts is their ratio, and how small the difference is beside one request over a network.
func BenchmarkScope(b *testing.B) {
	ctx := context.Background()
	b.Run("bare create and delete", func(b *testing.B) {
		p := sandboxtest.New(sandbox.Capabilities{})
		m := mark()
		for i := range b.N {
			m.Nonce = nonce(i)
			info, err := p.Create(ctx, sandbox.CreateRequest{Mark: m, Window: time.Minute})
			require.NoError(b, err)
			require.NoError(b, p.Delete(ctx, info.ID))
		}
	})
	b.Run("scope", func(b *testing.B) {
		m, err := sandbox.NewManager(sandboxtest.New(sandbox.Capabilities{}), sandbox.Config{Fleet: "bench"})
		require.NoError(b, err)
		for range b.N {
			require.NoError(b, m.WithSandbox(ctx, ok))
		}
	})
	b.Run("scopes in parallel", func(b *testing.B) {
		m, err := sandbox.NewManager(sandboxtest.New(sandbox.Capabilities{}), sandbox.Config{Fleet: "bench"})
		require.NoError(b, err)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				require.NoError(b, m.WithSandbox(ctx, ok))
			}
		})
	})
}

func nonce(i int) string {
	b := []byte("aaaaaaaaaaaaaaaa")
	for at := len(b) - 1; i > 0; at, i = at-1, i/26 {
		b[at] = 'a' + byte(i%26)
	}
	return string(b)
}

func BenchmarkParseMark(b *testing.B) {
	s := mark().String()
	for range b.N {
		_, err := sandbox.ParseMark(s)
		require.NoError(b, err)
	}
}
