package sandboxtest_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxtest"
)

// bubble runs f as a subtest in a bubble.
func bubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

// everything returns a provider that does all, with habits as f changes them.
func everything(f func(*sandboxtest.Behaviour)) *sandboxtest.Provider {
	p := sandboxtest.New(sandbox.Capabilities{})
	if f != nil {
		p.Behave(f)
	}
	return p
}

// extending returns a provider whose leases are extended as e says.
func extending(e sandbox.ExtendMode, f func(*sandboxtest.Behaviour)) *sandboxtest.Provider {
	caps := sandboxtest.Everything()
	caps.Extend = e
	p := sandboxtest.New(caps)
	if f != nil {
		p.Behave(f)
	}
	return p
}

// nonce returns a nonce that ends in a letter.
func nonce(last string) string { return strings.Repeat("a", 15) + last }

// order asks for a sandbox with the nonce that ends in last, a lease of 3 min and a hard end after 1 h.
func order(last string) sandbox.CreateRequest {
	return sandbox.CreateRequest{
		Mark:   sandbox.Mark{Fleet: "test", Owner: "owner", Nonce: nonce(last), Created: time.Now(), Lifetime: time.Hour},
		Tags:   map[string]string{"job": "7"},
		Window: 3 * time.Minute,
	}
}

// made makes a sandbox.
func made(t *testing.T, p sandbox.Provider, last string) sandbox.Info {
	t.Helper()
	i, err := p.Create(t.Context(), order(last))
	require.NoError(t, err)
	require.NotEmpty(t, i.ID)
	return i
}

// listed returns what a list tells, and its error.
func listed(p sandbox.Provider, f sandbox.Filter) (ids []string, err error) {
	for i, e := range p.List(context.Background(), f) {
		if e != nil {
			return ids, e
		}
		ids = append(ids, i.ID)
	}
	return ids, nil
}

// ids returns the ids of infos.
func ids(infos []sandbox.Info) (ids []string) {
	for _, i := range infos {
		ids = append(ids, i.ID)
	}
	return ids
}

// state returns what Get says.
func state(t *testing.T, p sandbox.Provider, id string) sandbox.State {
	t.Helper()
	i, err := p.Get(t.Context(), id)
	if err != nil {
		require.ErrorIs(t, err, sandbox.ErrNotFound)
		return sandbox.StateGone
	}
	return i.State
}

// within returns a context that ends after d.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
