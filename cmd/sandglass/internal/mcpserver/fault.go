package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// A told is an error for models, in whole sentences: what happened to which sandbox, and what to do.
type told string

func (t told) Error() string { return string(t) }

func tell(format string, args ...any) error { return told(fmt.Sprintf(format, args...)) }

// anew is what a model can do when its sandbox is over.
const anew = "Its files and processes are lost to this session. Call new_sandbox to go on in a new, empty one, and set that up again."

// ended is the error of a call whose sandbox is over.
func (s *session) ended(b *box) error {
	return tell("%s %s %s%s", s.name(b), fate(b.why()), s.remains(b), anew)
}

// fate says in a sentence what ended a sandbox.
func fate(why error) string {
	switch {
	case errors.Is(why, errOrdered):
		return "has been ended by end_sandbox."
	case errors.Is(why, sandbox.ErrLeaseLost):
		return "is lost: its lease could not be kept (" + why.Error() + "). What commands under way have done is not known."
	case errors.Is(why, sandbox.ErrStalled):
		return "was ended because no tool was called for too long (" + why.Error() + "). While you need a sandbox and call no other tool, call sandbox_info."
	case errors.Is(why, sandbox.ErrMaxLifetime):
		return "was ended because no sandbox lives longer here (" + why.Error() + ")."
	case errors.Is(why, errSilent):
		return "was ended because the client seemed to be dead (" + why.Error() + ")."
	default:
		return "was ended (" + why.Error() + ")."
	}
}

// remains says what is left of a sandbox that ends; empty: nothing, or it is still being deleted.
func (s *session) remains(b *box) string {
	if !b.isOver() {
		return ""
	}
	if left, ok := leak(b.err); ok {
		return "It could not be seen to be gone: " + left.Error() + ". Tell the user. "
	}
	return ""
}

func leak(err error) (*sandbox.LeakError, bool) { return errors.AsType[*sandbox.LeakError](err) }

// name is how texts call a sandbox.
func (s *session) name(b *box) string {
	return "The sandbox " + b.sb.ID() + " (" + s.cfg.Provider.Name() + ")"
}

// unmade is the error of a call that needed a sandbox which could not be made.
func (s *session) unmade(err error) error {
	text := fmt.Sprintf("No sandbox could be made with %s: %v.", s.cfg.Provider.Name(), err)
	if s.ctx.Err() != nil {
		return tell("This session is over, and its sandbox is deleted: %v.", context.Cause(s.ctx))
	}
	if hint := s.cfg.Hint(err); hint != "" {
		text += " The user can help: " + hint + "."
	}
	switch {
	case errors.Is(err, sandbox.ErrUnauthenticated), errors.Is(err, sandbox.ErrPermission), errors.Is(err, sandbox.ErrInvalid), errors.Is(err, errors.ErrUnsupported):
		text += " Trying again will not help before the settings are changed: tell the user."
	case errors.Is(err, errOrdered):
		text += " It was ended before it was ready."
	default:
		text += " Call the tool again to try once more."
	}
	return told(text)
}

// taken is the error of new_sandbox where there is one.
func (s *session) taken(b *box) error {
	select {
	case <-b.ready:
	default:
		return tell("A sandbox is being made already: call the tool that you need, it will wait. There is one at a time.")
	}
	return tell("%s is still there, and there is one at a time: go on with it, or call end_sandbox first, which deletes it with all its files.", s.name(b))
}

// failed is the error of a call that failed on a sandbox. doing is what was to be done, such as "running the command".
func (s *session) failed(ctx context.Context, b *box, doing string, err error) error {
	why := b.why()
	if why == nil && errors.Is(err, sandbox.ErrLeaseLost) { // heard of before the scope's own end
		why = err
	}
	if why != nil {
		return tell("%s failed, and its outcome is not known. %s %s %s%s", capital(doing), s.name(b), fate(why), s.remains(b), anew)
	}
	switch {
	case ctx.Err() != nil:
		killed := "it was killed"
		if !s.caps.Kill {
			killed = "the provider cannot kill it, so that it runs until its timeout"
		}
		return tell("%s was cancelled, and %s. %s lives on.", capital(doing), killed, s.name(b))
	case errors.Is(err, fs.ErrNotExist):
		return tell("%s failed: there is no such file. %s lives on.", capital(doing), s.name(b))
	case errors.Is(err, sandbox.ErrInvalid), errors.Is(err, errors.ErrUnsupported):
		return tell("%s was refused, and nothing was done: %v. %s lives on.", capital(doing), err, s.name(b))
	}
	text := fmt.Sprintf("%s failed, and what it has done is not known: %v. %s is presumed to live", capital(doing), err, s.name(b))
	if info, ok := s.info(b); ok && info.Left() > 0 {
		text += fmt.Sprintf(" (lease left: %v)", info.Left().Round(time.Second))
	}
	return told(text + ": look at its state before you try again.")
}

func capital(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

// info is what is known of b's sandbox without asking.
func (s *session) info(b *box) (sandbox.Info, bool) {
	for _, info := range s.cfg.Manager.Live() {
		if info.Mark.Nonce == b.nonce {
			return info, true
		}
	}
	return sandbox.Info{}, false
}
