package sandbox

import (
	"context"
	"log/slog"
	"time"
)

// An Observer is told every step as it ends. It must be quick and safe for concurrent use; it cannot change anything.
// ctx carries the values of the caller's context, such as a trace. An Observer that panics is contained.
type Observer func(ctx context.Context, e Event)

// Event is one attempt at one step of one scope.
//
// Info.Mark.Nonce is the same from first to last, except in a scope that attaches to a sandbox. There it stands for the
// scope alone, and no sandbox has it, up to the event of the first look that was answered. Then it is the sandbox's own, as
// in the events of its owner, and empty if nobody has marked it.
type Event struct {
	Op       Op
	Provider string
	Info     Info      // as known now
	Start    time.Time // of the attempt
	Took     time.Duration
	Attempt  int   // 1, 2, ...
	Err      error // nil: it succeeded
	Final    bool  // no further attempt follows
}

// Op names a step of a life, in events and errors.
type Op string

const (
	OpScope    Op = "scope" // sent twice: when it opens (Final false) and when it is over (Final true, Err as returned)
	OpCreate   Op = "create"
	OpFind     Op = "find"   // looked for a create without an answer
	OpReady    Op = "ready"  // waited until it ran
	OpExtend   Op = "extend" // one beat; Final when the beats end, Err then says why, such as ErrLeaseLost
	OpRun      Op = "run"    // the function; Err is the cause if the library ended it; repeated while the function outlives its sandbox
	OpExec     Op = "exec"   // a command
	OpUpload   Op = "upload"
	OpDownload Op = "download"
	OpEndpoint Op = "endpoint"
	OpKeep     Op = "keep"    // left for debugging, until Info.Deadline
	OpDelete   Op = "delete"  // asked for removal
	OpConfirm  Op = "confirm" // looked whether it is gone; Final with Err: a leak
	OpJournal  Op = "journal"
	OpShorten  Op = "shorten"  // brought the lease's end nearer, after a failed delete
	OpGet      Op = "get"      // in errors: a look
	OpList     Op = "list"     // in errors: a list
	OpSnapshot Op = "snapshot" // in errors: listing or deleting what was made from a sandbox
)

// LogTo returns an Observer that logs: beats and commands at Debug, the life at Info, retries at Warn, possible leaks at Error.
func LogTo(l *slog.Logger) Observer {
	return func(ctx context.Context, e Event) {
		level := e.level()
		if !l.Enabled(ctx, level) {
			return
		}
		attrs := []slog.Attr{
			slog.String("provider", e.Provider), slog.String("sandbox_id", e.Info.ID), slog.String("nonce", e.Info.Mark.Nonce),
			slog.Duration("took", e.Took), slog.Int("attempt", e.Attempt),
		}
		for k, v := range e.Info.Tags {
			attrs = append(attrs, slog.String("tag."+k, v))
		}
		if left := e.Info.Left(); left > 0 {
			attrs = append(attrs, slog.Duration("lease_left", left))
		}
		if e.Err != nil {
			attrs = append(attrs, slog.Any("error", e.Err))
		}
		l.LogAttrs(ctx, level, "sandbox "+string(e.Op), attrs...)
	}
}

func (e Event) level() slog.Level {
	switch e.Op {
	case OpConfirm:
		if e.Final && e.Err != nil {
			return slog.LevelError
		} else if !e.Final { // waiting, the usual thing
			return slog.LevelDebug
		}
	case OpExec, OpUpload, OpDownload, OpEndpoint, OpRun:
		if e.Op == OpRun && e.Err != nil && !e.Final { // it outlives its sandbox
			return slog.LevelWarn
		} else if e.Err != nil || e.Op == OpRun { // the task's own business, and in its error too
			return slog.LevelInfo
		}
		return slog.LevelDebug
	case OpExtend, OpGet, OpFind, OpJournal:
		if e.Err == nil {
			return slog.LevelDebug
		}
	}
	if e.Err != nil {
		return slog.LevelWarn
	}
	return slog.LevelInfo
}
