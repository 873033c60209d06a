//go:build darwin || freebsd

package journal

import (
	"fmt"
	"os"
	"syscall"
)

const flagLocal = 0x1000 // MNT_LOCAL

// networkFS returns the name of the file system that dir lies on, if the system does not call it local, or "".
func networkFS(dir string) (string, error) {
	var st syscall.Statfs_t
	for {
		err := syscall.Statfs(dir, &st)
		if err == nil {
			break
		}
		if err != syscall.EINTR {
			return "", &os.PathError{Op: "statfs", Path: dir, Err: err}
		}
	}
	if uint64(st.Flags)&flagLocal != 0 {
		return "", nil
	}
	var name []byte
	for _, c := range st.Fstypename {
		if c == 0 {
			break
		}
		name = append(name, byte(c))
	}
	return string(name), nil
}

// identify returns what tells f from its copies.
func identify(f *os.File) (fileID, error) {
	info, err := f.Stat()
	if err != nil {
		return fileID{}, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fileID{}, fmt.Errorf("no inode of %s", f.Name())
	}
	return fileID{Inode: st.Ino, Born: syscall.TimespecToNsec(st.Birthtimespec)}, nil
}
