package journal

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// A file is one entry's file, open and locked. All but orphan and kept belongs to whoever has put his token into busy.
type file struct {
	busy   chan struct{}
	f      *os.File // nil: not held
	path   string   // the name that it has now
	id     fileID
	slot   int       // length of one of its two slots
	place  int       // which of them is the latest
	seq    uint64    // and its count
	orphan bool      // taken from the dead, by an iteration; guarded by Journal.mu
	kept   time.Time // of an orphan: Entry.Kept; set before it is one
}

func (f *file) held() bool { return f.f != nil }

// close gives up the lock, if it is held.
func (f *file) close() {
	if f.f != nil {
		f.f.Close() // nothing is unwritten: every write was synced
		f.f = nil
	}
}

// take opens the file and takes its lock for good. It matches [ErrOwnerAlive] if somebody has it, and
// [fs.ErrNotExist] if there is no such file, or no longer.
func (f *file) take(path string) error { return f.open(path, true) }

func (f *file) open(path string, exclusive bool) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is no regular file", path)
	}
	if f.f, err = openFile(path, os.O_RDWR); err != nil {
		return err
	}
	f.path = path
	return f.lock(exclusive)
}

// lock takes the lock of the open file, or closes it.
func (f *file) lock(exclusive bool) error {
	err := lock(f.f, exclusive)
	if err == nil {
		f.id, err = identify(f.f)
	}
	if err == nil && !f.named() { // who had the lock before us has removed it
		err = &fs.PathError{Op: "lock", Path: f.path, Err: fs.ErrNotExist}
	}
	if err != nil {
		f.close()
	}
	return err
}

// named reports whether the file still has its name.
func (f *file) named() bool {
	there, err1 := os.Lstat(f.path)
	here, err2 := f.f.Stat()
	return err1 == nil && err2 == nil && os.SameFile(there, here)
}

// read returns the latest record of the file.
func (f *file) read() (record, error) {
	content, err := io.ReadAll(io.NewSectionReader(f.f, 0, 2*slotMax+1))
	if err != nil {
		return record{}, err
	}
	r, seq, place, err := latest(content)
	if err != nil {
		return record{}, fmt.Errorf("%s: %w", f.path, err)
	}
	f.slot, f.seq, f.place = len(content)/2, seq, place
	return r, nil
}

// write puts r into the slot that is not the latest, so that a crash in the middle leaves the latest as it is.
// It needs no new space.
func (f *file) write(r record) error {
	r.File = f.id
	slot, err := encode(r, f.seq+1, f.slot)
	if err != nil {
		return err
	}
	place := 1 - f.place
	if _, err := f.f.WriteAt(slot, int64(place*f.slot)); err != nil {
		return err
	}
	if err := f.f.Sync(); err != nil {
		return err
	}
	f.seq, f.place = f.seq+1, place
	return nil
}

// create makes the file with r in both slots, under a temporary name first. On error nothing is left.
func (f *file) create(ctx context.Context, path string, r record) error {
	var err error
	if f.slot, err = r.slotLen(); err != nil {
		return err
	}
	for range 10 {
		err = f.createOnce(ctx, path, r)
		if !errors.Is(err, errSwept) {
			break
		}
	}
	return err
}

// errSwept says that somebody took a new file for a dead writer's, in the moment before it was locked.
var errSwept = errors.New("temporary file lost to somebody who cleared away")

func (f *file) createOnce(ctx context.Context, path string, r record) (err error) {
	dir, name := filepath.Split(path)
	temp := filepath.Join(dir, tempPrefix+strings.TrimSuffix(name, suffix)+"-"+rand.Text()+tempSuffix)
	opened, err := openFile(temp, os.O_RDWR|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(temp)
			f.close()
		}
	}()
	f.f = opened
	if err := lock(opened, true); err != nil {
		if errors.Is(err, ErrOwnerAlive) {
			return errSwept
		}
		return err
	}
	if f.id, err = identify(opened); err != nil {
		return err
	}
	r.File = f.id
	for place := range 2 {
		slot, err := encode(r, uint64(place), f.slot)
		if err != nil {
			return err
		}
		if _, err := opened.WriteAt(slot, int64(place*f.slot)); err != nil {
			return err
		}
	}
	if err := opened.Sync(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	switch err := publish(temp, path); {
	case errors.Is(err, fs.ErrNotExist):
		return errSwept
	case errors.Is(err, fs.ErrExist):
		return fmt.Errorf("%w: %w", err, ErrOwnerAlive)
	case err != nil:
		if f.path = path; f.named() { // the name is there, but perhaps not for good
			os.Remove(path)
		}
		return err
	}
	f.path, f.seq, f.place = path, 1, 1
	return nil
}

const tempPrefix, tempSuffix = ".", ".new"

func isTemp(name string) bool {
	return strings.HasPrefix(name, tempPrefix) && strings.HasSuffix(name, tempSuffix)
}

// sweep removes a temporary file whose writer has died. Its Put had not returned, so no create was sent. It may be the
// second name of an entry: that one stays.
func sweep(path string) {
	f := &file{}
	if f.take(path) == nil {
		os.Remove(path)
		f.close()
	}
}
