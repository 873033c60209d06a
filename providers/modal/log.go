package modal

import (
	"context"
	"log/slog"
	"slices"
)

// A sieve lets through, of what the SDK logs, only attributes that cannot hold a secret: its own include whole commands
// and the service's words.
type sieve struct{ slog.Handler }

// harmless are the SDK's attributes that are passed on.
var harmless = []string{
	"app_id", "container_id", "delay", "elapsed", "exec_id", "expires_in", "image_id", "method", "offset", "refresh_in", "retries",
	"return_code", "sandbox_id", "serverDelay", "status", "task_id", "throttle_retries", "version",
}

func (s sieve) Handle(ctx context.Context, r slog.Record) error {
	kept := slog.NewRecord(r.Time, r.Level, "official SDK: "+r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		if slices.Contains(harmless, a.Key) {
			kept.AddAttrs(a)
		}
		return true
	})
	return s.Handler.Handle(ctx, kept)
}

func (s sieve) WithAttrs(attrs []slog.Attr) slog.Handler {
	kept := slices.DeleteFunc(slices.Clone(attrs), func(a slog.Attr) bool { return !slices.Contains(harmless, a.Key) })
	return sieve{s.Handler.WithAttrs(kept)}
}

func (s sieve) WithGroup(name string) slog.Handler { return sieve{s.Handler.WithGroup(name)} }
