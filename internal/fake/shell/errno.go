package shell

import "io/fs"

// errno is an error of the machine, in the words of its kernel.
type errno string

const (
	errNotExist   errno = "No such file or directory"
	errExist      errno = "File exists"
	errNotDir     errno = "Not a directory"
	errIsDir      errno = "Is a directory"
	errNotEmpty   errno = "Directory not empty"
	errAccess     errno = "Permission denied"
	errPerm       errno = "Operation not permitted"
	errInvalid    errno = "Invalid argument"
	errLoop       errno = "Too many levels of symbolic links"
	errNameLong   errno = "File name too long"
	errNoSpace    errno = "No space left on device"
	errBusy       errno = "Device or resource busy"
	errReadOnly   errno = "Read-only file system"
	errNoDevice   errno = "No such device or address"
	errBadFD      errno = "Bad file descriptor"
	errPipe       errno = "Broken pipe"
	errKilled     errno = "Killed"
	errNoMemory   errno = "Out of memory"
	errNoProcess  errno = "No such process"
	errExecFormat errno = "Exec format error"
	errCannotFork errno = "Cannot fork: Resource temporarily unavailable"
)

func (e errno) Error() string { return string(e) }

// Is makes the errors of package io/fs match.
func (e errno) Is(target error) bool {
	switch target {
	case fs.ErrNotExist:
		return e == errNotExist
	case fs.ErrExist:
		return e == errExist || e == errNotEmpty
	case fs.ErrPermission:
		return e == errAccess || e == errPerm
	case fs.ErrInvalid:
		return e == errInvalid
	}
	return false
}
