package journal

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"unsafe"
)

// What package syscall does not know of kernel32.
var (
	kernel32     = syscall.NewLazyDLL("kernel32.dll")
	lockFileEx   = kernel32.NewProc("LockFileEx")
	moveFileEx   = kernel32.NewProc("MoveFileExW")
	getDriveType = kernel32.NewProc("GetDriveTypeW")
)

// openFile opens a file such that it can be renamed and removed while it is open, which package os does not.
// The handle is not inherited by child processes.
func openFile(name string, flag int) (*os.File, error) {
	path, err := syscall.UTF16PtrFromString(name)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	how := uint32(syscall.OPEN_EXISTING)
	if flag&os.O_CREATE != 0 {
		how = syscall.CREATE_NEW
	}
	const reparsePoint = 0x00200000 // follow no link
	h, err := syscall.CreateFile(path, syscall.GENERIC_READ|syscall.GENERIC_WRITE,
		syscall.FILE_SHARE_READ|syscall.FILE_SHARE_WRITE|syscall.FILE_SHARE_DELETE, nil, how,
		syscall.FILE_ATTRIBUTE_NORMAL|reparsePoint, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(h), name), nil
}

// lock takes the lock on f without waiting, or returns ErrOwnerAlive. Such locks keep others from the bytes they cover, so it
// lies far behind the end of the file.
func lock(f *os.File, exclusive bool) error {
	const (
		failImmediately = 1
		exclusiveLock   = 2
		lockViolation   = syscall.Errno(33)
	)
	flags := uintptr(failImmediately)
	if exclusive {
		flags |= exclusiveLock
	}
	at := syscall.Overlapped{OffsetHigh: 1 << 30}
	ok, _, err := lockFileEx.Call(f.Fd(), flags, 0, 1, 0, uintptr(unsafe.Pointer(&at)))
	switch {
	case ok != 0:
		return nil
	case errors.Is(err, lockViolation), errors.Is(err, syscall.ERROR_IO_PENDING):
		return ErrOwnerAlive
	}
	return &fs.PathError{Op: "lock", Path: f.Name(), Err: err}
}

// publish gives the file temp its own name, where nobody may be yet, and waits until that is on the disk.
func publish(temp, name string) error {
	from, err1 := syscall.UTF16PtrFromString(temp)
	to, err2 := syscall.UTF16PtrFromString(name)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	const writeThrough = 8
	if ok, _, err := moveFileEx.Call(uintptr(unsafe.Pointer(from)), uintptr(unsafe.Pointer(to)), writeThrough); ok == 0 {
		return &os.LinkError{Op: "rename", Old: temp, New: name, Err: err}
	}
	return nil
}

// syncDir has nothing to do: NTFS keeps a log of its names, and publish waits for it. A removal that a crash of the
// system undoes is an orphan whose sandbox is seen to be gone.
func syncDir(string) error { return nil }

// private has nothing to check: a user's folder is private by its access list, which is inherited.
func private(string, fs.FileInfo) error { return nil }

// networkFS returns the name of the share that dir lies on, or "".
func networkFS(dir string) (string, error) {
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	volume := filepath.VolumeName(dir)
	if strings.HasPrefix(volume, `\\`) && !strings.HasPrefix(volume, `\\?\`) && !strings.HasPrefix(volume, `\\.\`) {
		return volume, nil
	}
	root, err := syscall.UTF16PtrFromString(volume + `\`)
	if err != nil {
		return "", err
	}
	const remote = 4
	if kind, _, _ := getDriveType.Call(uintptr(unsafe.Pointer(root))); kind == remote {
		return volume, nil
	}
	return "", nil
}

// identify returns what tells f from its copies.
func identify(f *os.File) (fileID, error) {
	var info syscall.ByHandleFileInformation
	if err := syscall.GetFileInformationByHandle(syscall.Handle(f.Fd()), &info); err != nil {
		return fileID{}, &fs.PathError{Op: "stat", Path: f.Name(), Err: err}
	}
	return fileID{
		Inode: uint64(info.FileIndexHigh)<<32 | uint64(info.FileIndexLow),
		Born:  info.CreationTime.Nanoseconds(),
	}, nil
}
