// Package history keeps what became of sandboxes, one line of JSON for each step that counts, in a file that a report
// reads later. The journal cannot serve for that: it forgets a sandbox as soon as that is seen to be gone.
//
// A line is written by one call to the system, so that many processes may write to one file, and none is lost when its
// process is killed. Lines are not forced to the disk: power loss may cost the latest. Times are the writing
// process's clock, and ends of leases are counted from it, so that no clock of a service is in them. A file holds no secret:
// ids, marks, tags, states, and the errors of deletes, which have theirs removed.
//
// The file is bounded. When it has a quarter of its limit it gets another name, which ends in the time, and the oldest of
// these are removed while all together have more than the limit.
package history

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandglass-dev/sandglass/heartbeat"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// By says who did what a line tells of.
type By string

// Who there is.
const (
	Scope   By = "scope"   // the process that made the sandbox, or took it over
	Replay  By = "replay"  // a later process, which found it in the journal
	Sweeper By = "sweeper" // a sweep
	Hand    By = "hand"    // somebody who asked for it by name
)

// What is what a line tells.
type What string

// What there is.
const (
	Asked What = "asked" // a create was not answered: there may be one
	Made  What = "made"  // a create was answered
	Lease What = "lease" // a beat moved the lease's end; at most one line in [Thin]
	Lost  What = "lost"  // the service says that it is gone, or nothing could be heard of it until its lease was over
	Kept  What = "kept"  // left for debugging
	Gone  What = "gone"  // seen to be gone
	Left  What = "left"  // could not be seen to be gone

	Dropped What = "dropped" // of no life: older lines were removed, for the file has a limit
)

// A Line is one step of one life.
type Line struct {
	Version  int               `json:"v"`
	At       time.Time         `json:"at"`              // when it was known
	Start    time.Time         `json:"start,omitzero"`  // when the step began, where it took time
	By       By                `json:"by,omitempty"`    //
	What     What              `json:"what"`            //
	Provider string            `json:"provider"`        // name of the account
	Nonce    string            `json:"nonce,omitempty"` // the same for a life's whole
	ID       string            `json:"id,omitempty"`    //
	Fleet    string            `json:"fleet,omitempty"` //
	Owner    string            `json:"owner,omitempty"` //
	Tags     map[string]string `json:"tags,omitempty"`  // of Made and Asked only
	Until    time.Time         `json:"until,omitzero"`  // when the lease ends it, if nothing else does; zero: not told, or nothing will
	Hard     time.Time         `json:"hard,omitzero"`   // when its mark says that nobody can want it any more
	State    string            `json:"state,omitempty"` // of Left: as last seen; of Lost: "gone" if the service says so
	Error    string            `json:"error,omitempty"` // of Lost and Left: why
	Missed   int               `json:"missed,omitempty"`
	// Missed is how many lines before this one could not be written.
}

// Thin is how far apart the lines of one lease are at least: a beat that follows sooner has none, so that the lease may
// run on for so long after the end that its last line tells.
const Thin = 30 * time.Second

const (
	version     = 1
	defaultMax  = 16 << 20
	mostError   = 400 // bytes
	stampLayout = "20060102T150405.000000000"
)

// A File is a history that is written to. It is safe for concurrent use, by many processes too.
type File struct {
	path string
	max  int64

	mu     sync.Mutex // never held over a file's operation
	missed int
	broken bool // the file may end within a line
	err    error
}

// Open returns the history at path, which it makes if it is not there, with mode 0600, so that what is wrong with it comes
// out now. max bounds its bytes, with the older files beside it; 0: 16 MiB. Nothing stays open.
func Open(path string, limit int64) (*File, error) {
	if limit <= 0 {
		limit = defaultMax
	}
	f := &File{path: path, max: limit}
	err := f.append(nil)
	if err == nil {
		f.broken, err = f.half()
	}
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	return f, nil
}

// half reports whether the file ends within a line, as a writer leaves it whose disk was full.
func (f *File) half() (bool, error) {
	file, err := os.Open(f.path)
	if errors.Is(err, os.ErrNotExist) { // it has just got another name
		return false, nil
	} else if err != nil {
		return false, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || info.Size() == 0 {
		return false, err
	}
	var last [1]byte
	_, err = file.ReadAt(last[:], info.Size()-1)
	return last[0] != '\n', err
}

// Err returns the first error of a line that could not be written, or nil. What is observed cannot fail for it.
func (f *File) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return fmt.Errorf("history: %w", f.err)
	}
	return nil
}

// Observer returns one for a Manager ([Scope]) or a Sweeper ([Sweeper]). What a Manager ends of which it had no scope is
// the journal's, and [Replay].
func (f *File) Observer(by By) sandbox.Observer {
	r := &recorder{by: by, known: map[string]time.Time{}}
	return func(_ context.Context, e sandbox.Event) {
		if l, ok := r.line(e); ok {
			f.write(l)
		}
	}
}

// Ended writes how a delete that nothing observes came out, such as [sandbox.Terminate]'s: err is its error.
func (f *File) Ended(by By, provider string, info sandbox.Info, err error) {
	f.write(ended(by, sandbox.Event{Provider: provider, Info: info, Err: err}))
}

// A recorder makes lines of events.
type recorder struct {
	by By

	mu    sync.Mutex
	known map[string]time.Time // by nonce, what this process has a scope of: when the last line of its lease was
}

func (r *recorder) line(e sandbox.Event) (l Line, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	nonce := e.Info.Mark.Nonce
	last, known := r.known[nonce]
	l = newLine(r.by, e)
	switch e.Op {
	case sandbox.OpScope:
		if e.Final {
			delete(r.known, nonce)
		}
		return l, false
	case sandbox.OpCreate:
		api, _ := errors.AsType[*sandbox.APIError](e.Err)
		switch {
		case e.Info.ID != "":
			l.What = Made
		case e.Err != nil && (api == nil || !api.Refused):
			l.What, l.Until = Asked, time.Time{}
		default:
			return l, false
		}
		l.Tags, r.known[nonce] = e.Info.Tags, l.At
		return l, true
	case sandbox.OpExtend:
		switch {
		case e.Final && (errors.Is(e.Err, heartbeat.ErrGone) || errors.Is(e.Err, heartbeat.ErrLost)):
			if l.What, l.Error = Lost, short(e.Err); errors.Is(e.Err, heartbeat.ErrGone) {
				l.State = sandbox.StateGone.String()
			}
			return l, true
		case e.Final || e.Err != nil || l.Until.IsZero() || known && l.At.Sub(last) < Thin:
			return l, false
		}
		l.What, r.known[nonce] = Lease, l.At
		return l, true
	case sandbox.OpKeep:
		l.What = Kept
		return l, e.Err == nil
	case sandbox.OpConfirm:
		if !e.Final {
			return l, false
		}
		by := r.by
		if by == Scope && !known {
			by = Replay
		}
		if e.Err == nil {
			delete(r.known, nonce)
		}
		return ended(by, e), true
	}
	return l, false
}

// newLine has what all lines have.
func newLine(by By, e sandbox.Event) Line {
	now := time.Now().UTC()
	m := e.Info.Mark
	l := Line{
		Version: version, At: now, Start: e.Start.UTC(), By: by, Provider: e.Provider,
		Nonce: m.Nonce, ID: e.Info.ID, Fleet: m.Fleet, Owner: m.Owner,
	}
	if left := e.Info.Left(); left > 0 {
		l.Until = now.Add(left)
	}
	if hard := e.Info.HardDeadline(); !hard.IsZero() {
		as := e.Info.AsOf
		if as.IsZero() || e.Info.Created.IsZero() { // then it counts from the mark's time, which is the owner's clock
			as = now
		}
		l.Hard = now.Add(hard.Sub(as))
	}
	return l
}

func ended(by By, e sandbox.Event) Line {
	l := newLine(by, e)
	if e.Err == nil {
		l.What, l.Until, l.Hard = Gone, time.Time{}, time.Time{}
		return l
	}
	if leak, ok := errors.AsType[*sandbox.LeakError](e.Err); ok && len(leak.Sandboxes) == 1 {
		info := leak.Sandboxes[0] // its deadline is by our own clock
		l.Until, e.Info.State = info.Deadline.UTC(), info.State
		if info.Deadline.IsZero() {
			l.Until = time.Time{}
		}
	}
	l.What, l.State, l.Error = Left, e.Info.State.String(), short(e.Err)
	return l
}

func short(err error) string {
	s := err.Error()
	return strings.ToValidUTF8(s[:min(len(s), mostError)], "")
}

// write appends a line. One that cannot be written is counted in the next that can.
func (f *File) write(l Line) {
	f.mu.Lock()
	l.Missed, f.missed = f.missed, 0
	broken := f.broken
	f.mu.Unlock()
	b, err := json.Marshal(l)
	if err == nil {
		b = append(b, '\n')
		if broken {
			b = append([]byte{'\n'}, b...)
		}
		err = f.append(b)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.broken = err != nil; err == nil {
		return
	}
	f.missed += l.Missed + 1
	if f.err == nil {
		f.err = err
	}
}

// append writes b to the file, in one call, and first gives the file another name if it would become too large.
func (f *File) append(b []byte) error {
	if info, err := os.Stat(f.path); err == nil && info.Size() > 0 && info.Size()+int64(len(b)) > f.max/4 {
		removed, err := f.turn()
		if err != nil {
			return err
		}
		if removed {
			note, err := json.Marshal(Line{Version: version, At: time.Now().UTC(), What: Dropped})
			if err != nil {
				return err
			}
			b = append(append(note, '\n'), b...)
		}
	}
	file, err := os.OpenFile(f.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file", f.path)
	}
	if err == nil {
		_, err = file.Write(b)
	}
	return errors.Join(err, file.Close())
}

// turn gives the file another name, and removes the oldest that have such names while there is too much. Two processes that
// do so at once make two files of it, and lose nothing.
func (f *File) turn() (removed bool, err error) {
	err = os.Rename(f.path, f.path+"."+time.Now().UTC().Format(stampLayout))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, err
	}
	old, err := older(f.path)
	if err != nil {
		return false, err
	}
	sum := f.max / 4 // of the one that is written to
	for _, name := range slices.Backward(old) {
		info, err := os.Stat(name)
		if err != nil {
			continue // another process has removed it
		}
		if sum += info.Size(); sum > f.max {
			if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
				return removed, err
			}
			removed = true
		}
	}
	return removed, nil
}

var stamped = regexp.MustCompile(`^\.\d{8}T\d{6}\.\d{9}$`)

// older returns the files that once were the one at path, oldest first.
func older(path string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	var found []string
	for _, e := range entries { // in the order of their names
		if rest, ok := strings.CutPrefix(e.Name(), filepath.Base(path)); ok && stamped.MatchString(rest) {
			found = append(found, filepath.Join(filepath.Dir(path), e.Name()))
		}
	}
	return found, nil
}
