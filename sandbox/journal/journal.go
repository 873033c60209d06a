package journal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/sandglass-dev/sandglass/sandbox"
)

var (
	// ErrOwnerAlive is matched when somebody else holds the lock of an entry. It matches [sandbox.ErrConflict].
	ErrOwnerAlive = fmt.Errorf("its owner is alive: %w", sandbox.ErrConflict)
	// ErrOwnerUnknown is matched by errors of [Journal.Orphans] where a lock that could be taken proves nothing.
	ErrOwnerUnknown = errors.New("owner unknown")
)

// Options say how to open a journal. The zero value is what [Open] uses.
type Options struct {
	// AllowNetwork accepts a folder on a network file system. Its locks do not prove that an owner is dead, so Orphans
	// then yields each entry that is not locked as an error matching [ErrOwnerUnknown]: the journal serves people and
	// the living only, and sandboxes are left to lease and sweeper.
	AllowNetwork bool
}

// A Journal is a [sandbox.Journal] in a spool folder. It is safe for concurrent use, by many Journals and processes
// on one folder too. Use [Open]. It starts no goroutine.
type Journal struct {
	dir     string
	network string // the network file system that dir lies on; empty: it is local
	self    writer

	mu     sync.Mutex
	held   map[string]*file // by nonce: entries whose lock is ours, or about to be
	closed bool
}

var _ sandbox.Journal = (*Journal)(nil)

// DefaultDir returns the user's own spool folder: on Linux and BSD $XDG_STATE_HOME/sandglass/journal or else
// ~/.local/state/sandglass/journal, on macOS and Windows sandglass/journal where applications keep local data.
func DefaultDir() (string, error) {
	base, err := "", error(nil)
	switch runtime.GOOS {
	case "darwin":
		base, err = os.UserConfigDir()
	case "windows":
		base, err = os.UserCacheDir() // %LocalAppData%: of this host only
	default:
		if base = os.Getenv("XDG_STATE_HOME"); !filepath.IsAbs(base) {
			base, err = os.UserHomeDir()
			base = filepath.Join(base, ".local", "state")
		}
	}
	if err != nil {
		return "", err
	}
	return filepath.Join(base, "sandglass", "journal"), nil
}

// Open returns the journal in dir; empty: in [DefaultDir]. It makes the folder, with mode 0700, if it is not there.
// A folder into which others may write is an error, and so is one on a network file system (see [Options]); the
// latter matches [errors.ErrUnsupported].
func Open(dir string) (*Journal, error) { return Options{}.Open(dir) }

// Open is [Open] with options.
func (o Options) Open(dir string) (*Journal, error) { return o.open(dir, networkFS) }

func (o Options) open(dir string, network func(string) (string, error)) (*Journal, error) {
	fail := func(err error) (*Journal, error) { return nil, fmt.Errorf("journal: open: %w", err) }
	var err error
	if dir == "" {
		if dir, err = DefaultDir(); err != nil {
			return fail(err)
		}
	}
	if dir, err = filepath.Abs(dir); err != nil { // a later change of the working directory must not move it
		return fail(err)
	}
	if err := makeDir(dir); err != nil {
		return fail(err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return fail(err)
	}
	if err := private(dir, info); err != nil {
		return fail(err)
	}
	j := &Journal{dir: dir, self: self(), held: map[string]*file{}}
	if j.network, err = network(dir); err != nil {
		return fail(err)
	}
	if j.network != "" && !o.AllowNetwork {
		return fail(fmt.Errorf("%s lies on %s, whose locks do not prove that an owner is dead; name a folder on a local disk: %w",
			dir, j.network, errors.ErrUnsupported))
	}
	return j, nil
}

// makeDir makes the folder and those above it, where they are missing, and makes their names durable.
func makeDir(dir string) error {
	var above []string
	for p := dir; p != filepath.Dir(p); p = filepath.Dir(p) {
		if _, err := os.Stat(p); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		above = append(above, filepath.Dir(p))
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, p := range above {
		if err := syncDir(p); err != nil && !errors.Is(err, fs.ErrPermission) { // a folder may be ours to write and not to read
			return err
		}
	}
	return nil
}

// Dir returns the spool folder.
func (j *Journal) Dir() string { return j.dir }

// Put implements [sandbox.Journal]. It makes this Journal the owner of e's entry, until Remove, Release or Close; also
// of an orphan, which it then keeps when the iteration moves on. An entry that somebody else holds matches
// [ErrOwnerAlive]. What would not come back as it is matches [sandbox.ErrInvalid]; Kept comes back in UTC.
//
// A new entry takes a file of at least 8 KiB, with room for an id of up to 1,000 bytes: a second Put that adds the id
// or Kept needs no more space on the disk. If Put fails, no new entry is left, and an old one is as it was before.
// ctx is minded between the steps; no step of the disk itself can be broken off.
func (j *Journal) Put(ctx context.Context, e sandbox.Entry) error {
	nonce := e.Mark.Nonce
	rec, err := newRecord(e, j.self)
	if err == nil {
		err = j.with(ctx, nonce, func(f *file) error { return j.put(ctx, f, nonce, rec) })
	}
	if err != nil {
		return fmt.Errorf("journal: put %s: %w", nonce, err)
	}
	return nil
}

func (j *Journal) put(ctx context.Context, f *file, nonce string, rec record) error {
	if f.held() && !f.named() { // somebody has removed it from under us
		f.close()
	}
	if f.held() {
		if err := f.write(rec); err != nil {
			return err
		}
		j.setOrphan(f, false)
		return nil
	}
	j.setOrphan(f, false)
	err := patiently(ctx, func() error { return f.take(j.path(nonce)) })
	if errors.Is(err, fs.ErrNotExist) {
		return f.create(ctx, j.path(nonce), rec)
	}
	if err != nil {
		return err
	}
	if _, err = f.read(); err == nil {
		err = f.write(rec)
	}
	if err != nil {
		f.close()
	}
	return err
}

// Remove implements [sandbox.Journal]. The entry of somebody else, which cannot be locked, stays and matches
// [ErrOwnerAlive]. Entries that Orphans reported as errors may be removed so too, whatever is in them.
func (j *Journal) Remove(ctx context.Context, nonce string) error {
	if !isNonce(nonce) {
		return nil
	}
	err := j.with(ctx, nonce, func(f *file) error {
		if f.held() && !f.named() {
			f.close()
		}
		taken := !f.held()
		if taken {
			err := patiently(ctx, func() error { return f.take(j.path(nonce)) })
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil {
				return err
			}
		}
		if err := os.Remove(j.path(nonce)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			if taken {
				f.close()
			}
			return err
		}
		f.close()
		return syncDir(j.dir)
	})
	if err != nil {
		return fmt.Errorf("journal: remove %s: %w", nonce, err)
	}
	return nil
}

// Release gives up the ownership of an entry and keeps the entry: from now on it is an orphan, which anybody may finish.
// It is for scopes that are over in a process that lives on. An entry that is not held is no error.
func (j *Journal) Release(ctx context.Context, nonce string) error {
	err := j.with(ctx, nonce, func(f *file) error {
		f.close()
		return nil
	})
	if err != nil {
		return fmt.Errorf("journal: release %s: %w", nonce, err)
	}
	return nil
}

// Orphans implements [sandbox.Journal]. It yields the entries that are there when it starts, in the order of their
// nonces, and holds the lock on each while the loop's body works on it: two who replay never get the same one at the
// same time. When the body is done, an entry that was neither removed nor put again is unlocked, for the next replay.
//
// Entries of living owners are passed over in silence. An error names a file that was kept: it is broken, of another
// version, not to be read, or its owner is unknown ([ErrOwnerUnknown]; see the package comment). Hidden files are left
// alone, except that intents of which no create was sent yet when their writer died are cleared away.
func (j *Journal) Orphans(ctx context.Context) iter.Seq2[sandbox.Entry, error] {
	return func(yield func(sandbox.Entry, error) bool) {
		fault := func(err error) bool { return yield(sandbox.Entry{}, fmt.Errorf("journal: orphans: %w", err)) }
		files, err := os.ReadDir(j.dir)
		if err != nil && !fault(err) {
			return
		}
		var refused []string
		for _, entry := range files {
			name := entry.Name()
			nonce, ours := strings.CutSuffix(name, suffix)
			if ctx.Err() != nil {
				fault(context.Cause(ctx))
				return
			}
			switch {
			case isTemp(name):
				sweep(filepath.Join(j.dir, name))
			case strings.HasPrefix(name, "."):
			case !ours || !isNonce(nonce):
				if !fault(fmt.Errorf("%s is no entry", filepath.Join(j.dir, name))) {
					return
				}
			default:
				more, err := j.orphan(nonce, yield)
				if errors.Is(err, ErrOwnerAlive) {
					refused = append(refused, nonce)
				} else if err != nil {
					more = fault(err)
				}
				if !more {
					return
				}
			}
		}
		// Who looks whether an owner is alive holds its lock for a moment, and must not hide an orphan.
		if len(refused) > 0 && pause(ctx) != nil {
			fault(context.Cause(ctx))
			return
		}
		for _, nonce := range refused {
			more, err := j.orphan(nonce, yield)
			if err != nil && !errors.Is(err, ErrOwnerAlive) {
				more = fault(err)
			}
			if !more {
				return
			}
		}
	}
}

// orphan yields one entry if its lock can be taken, and holds the lock meanwhile.
func (j *Journal) orphan(nonce string, yield func(sandbox.Entry, error) bool) (more bool, err error) {
	f := j.enter(nonce)
	if f == nil {
		return true, nil // ours, or somebody's turn within this process
	}
	e, err := func() (sandbox.Entry, error) {
		defer j.leave(nonce, f)
		if err := f.take(j.path(nonce)); err != nil {
			return sandbox.Entry{}, err
		}
		rec, err := f.read()
		if err == nil {
			err = j.doubt(rec, f)
		}
		var e sandbox.Entry
		if err == nil {
			e, err = rec.entry()
		}
		if err == nil && e.Mark.Nonce != nonce {
			err = fmt.Errorf("%s is the entry of another sandbox, %s", j.path(nonce), e.Mark.Nonce)
		}
		if err != nil {
			f.close()
			return sandbox.Entry{}, err
		}
		f.kept = e.Kept
		j.setOrphan(f, true)
		return e, nil
	}()
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil // finished by somebody else meanwhile
	}
	if err != nil {
		return true, err
	}
	defer func() { // also if the body panics
		f.busy <- struct{}{}
		if j.isOrphan(nonce, f) {
			f.close()
		}
		j.leave(nonce, f)
	}()
	return yield(e, nil), nil
}

// Owner tells whether the owner of an entry is alive, for what asks by nonce: a held lock is a living owner, a lock that
// could be taken is a dead one. Who has left the sandbox for debugging wants it until Entry.Kept, and counts as alive for
// so long. It is not known where there is no entry, or where the lock proves nothing; then err says why, unless there is
// simply none. It writes nothing, and holds the lock for a moment only.
func (j *Journal) Owner(nonce string) (alive, known bool, err error) {
	if !isNonce(nonce) {
		return false, false, nil
	}
	j.mu.Lock()
	f := j.held[nonce]
	orphan := f != nil && f.orphan && !time.Now().Before(f.kept)
	j.mu.Unlock()
	if f != nil {
		return !orphan, true, nil
	}
	probe := &file{}
	err = probe.open(j.path(nonce), false)
	defer probe.close()
	switch {
	case errors.Is(err, ErrOwnerAlive):
		return true, true, nil
	case errors.Is(err, fs.ErrNotExist):
		return false, false, nil
	}
	var rec record
	if err == nil {
		if rec, err = probe.read(); err == nil {
			err = j.doubt(rec, probe)
		}
	}
	if err != nil {
		return false, false, fmt.Errorf("journal: owner of %s: %w", nonce, err)
	}
	return time.Now().Before(rec.Kept), true, nil
}

// Close gives up the ownership of all entries that are still held: they become orphans, so close a journal after the
// Shutdown of its Managers. It waits for calls under way. Later calls match [os.ErrClosed], further Closes do nothing.
// A process that ends need not call it.
func (j *Journal) Close() error {
	j.mu.Lock()
	j.closed = true
	held := make(map[string]*file, len(j.held))
	for nonce, f := range j.held {
		held[nonce] = f
	}
	j.mu.Unlock()
	for nonce, f := range held {
		f.busy <- struct{}{}
		f.close()
		j.leave(nonce, f)
	}
	return nil
}

// doubt says why nobody can be called dead, although the lock was taken.
func (j *Journal) doubt(rec record, f *file) error {
	switch {
	case j.network != "":
		return fmt.Errorf("%s lies on %s: %w (%s)", f.path, j.network, ErrOwnerUnknown, rec.Writer)
	case rec.File != f.id:
		return fmt.Errorf("%s is a copy of its owner's file: %w (%s)", f.path, ErrOwnerUnknown, rec.Writer)
	case rec.Writer.elsewhere(j.self):
		return fmt.Errorf("%s was written on another host: %w (%s)", f.path, ErrOwnerUnknown, rec.Writer)
	}
	return nil
}

const suffix = ".entry"

func (j *Journal) path(nonce string) string { return filepath.Join(j.dir, nonce+suffix) }

// isNonce keeps out of file names what is none.
func isNonce(s string) bool {
	return len(s) == 16 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz234567") == ""
}

// with runs work while nobody else of this Journal works on nonce's entry.
func (j *Journal) with(ctx context.Context, nonce string, work func(*file) error) error {
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		f := j.enter(nonce)
		if f == nil {
			j.mu.Lock()
			f = j.held[nonce]
			closed := j.closed
			j.mu.Unlock()
			if closed {
				return os.ErrClosed
			}
			if f == nil {
				continue
			}
			select {
			case f.busy <- struct{}{}:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			if !j.has(nonce, f) { // given up while we waited
				<-f.busy
				continue
			}
		}
		defer j.leave(nonce, f)
		return work(f)
	}
}

// enter returns a new file for nonce with our turn on it, or nil if there is one already, or the journal is closed.
func (j *Journal) enter(nonce string) *file {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed || j.held[nonce] != nil {
		return nil
	}
	f := &file{busy: make(chan struct{}, 1)}
	f.busy <- struct{}{}
	j.held[nonce] = f
	return f
}

// leave ends our turn on f, and forgets it if its lock is not held.
func (j *Journal) leave(nonce string, f *file) {
	j.mu.Lock()
	if !f.held() && j.held[nonce] == f {
		delete(j.held, nonce)
	}
	j.mu.Unlock()
	<-f.busy
}

func (j *Journal) has(nonce string, f *file) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.held[nonce] == f
}

func (j *Journal) isOrphan(nonce string, f *file) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.held[nonce] == f && f.orphan
}

func (j *Journal) setOrphan(f *file, orphan bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	f.orphan = orphan
}

// patiently tries again while a lock is refused: it may be held for a moment only, to ask who is alive.
func patiently(ctx context.Context, try func() error) error {
	for range 4 {
		if err := try(); !errors.Is(err, ErrOwnerAlive) {
			return err
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
	return try()
}

func pause(ctx context.Context) error {
	timer := time.NewTimer(5 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
