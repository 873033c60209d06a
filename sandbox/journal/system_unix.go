//go:build linux || darwin || freebsd

package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// openFile opens a file with close-on-exec, as package os always does. It follows no symbolic link.
func openFile(name string, flag int) (*os.File, error) {
	return os.OpenFile(name, flag|syscall.O_NOFOLLOW, 0o600)
}

// lock takes the lock on f without waiting, or returns ErrOwnerAlive. It belongs to this opening of the file: whoever opens
// it again, be it in the same process, is refused.
func lock(f *os.File, exclusive bool) error {
	how := syscall.LOCK_SH
	if exclusive {
		how = syscall.LOCK_EX
	}
	for {
		switch err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB); {
		case err == nil:
			return nil
		case errors.Is(err, syscall.EWOULDBLOCK):
			return ErrOwnerAlive
		case !errors.Is(err, syscall.EINTR):
			return &fs.PathError{Op: "lock", Path: f.Name(), Err: err}
		}
	}
}

// publish gives the file temp its own name, where nobody may be yet.
func publish(temp, name string) error {
	err := os.Link(temp, name)
	switch {
	case err == nil:
		os.Remove(temp) // a second name that stays is swept by the next who looks for orphans
		return syncDir(filepath.Dir(name))
	case errors.Is(err, fs.ErrExist), errors.Is(err, fs.ErrNotExist):
		return err
	}
	// A file system without links.
	if _, err := os.Lstat(name); err == nil {
		return &fs.PathError{Op: "rename", Path: name, Err: fs.ErrExist}
	}
	if err := os.Rename(temp, name); err != nil {
		return err
	}
	return syncDir(filepath.Dir(name))
}

// syncDir makes names in a folder durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// private returns an error if others may write into the folder: what they put there would be acted on.
func private(dir string, info fs.FileInfo) error {
	const todo = "its entries decide what is deleted; use a folder of your own with mode 0700, such as one below it"
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%s belongs to user %d: %s", dir, st.Uid, todo)
	}
	if perm := info.Mode().Perm(); perm&0o022 != 0 {
		return fmt.Errorf("others may write into %s, mode %04o: %s", dir, perm, todo)
	}
	return nil
}
