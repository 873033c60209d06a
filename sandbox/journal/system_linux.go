package journal

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"
)

// networkFS returns the name of the network file system that dir lies on, or "". What is not on the list counts as local.
func networkFS(dir string) (string, error) {
	var st syscall.Statfs_t
	for {
		err := syscall.Statfs(dir, &st)
		if err == nil {
			return networkName(uint32(st.Type)), nil
		}
		if err != syscall.EINTR {
			return "", &os.PathError{Op: "statfs", Path: dir, Err: err}
		}
	}
}

// networkName knows the type numbers of file systems on which another host, or a process of which the kernel knows
// nothing, may hold locks. FUSE can be either, and passes locks on only where its server wants to.
func networkName(magic uint32) string {
	switch magic {
	case 0x6969:
		return "NFS"
	case 0x517B, 0xFF534D42, 0xFE534D42:
		return "SMB"
	case 0x65735546:
		return "FUSE"
	case 0x01021997:
		return "9P"
	case 0x5346414F, 0x6B414653:
		return "AFS"
	case 0x00C36400:
		return "Ceph"
	case 0x0BD00BD0:
		return "Lustre"
	case 0x47504653:
		return "GPFS"
	case 0x01161970:
		return "GFS2"
	case 0x7461636F:
		return "OCFS2"
	case 0x19830326:
		return "BeeGFS"
	case 0x20030528:
		return "OrangeFS"
	case 0xAAD7AAEA:
		return "PanFS"
	case 0xBEEFDEAD:
		return "StorNext"
	case 0x73757245:
		return "Coda"
	case 0x564C:
		return "NCP"
	case 0xBACBACBC, 0x786F4256, 0x7C7C6013:
		return "a folder shared by a virtual machine's host"
	}
	return ""
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
	return fileID{Inode: uint64(st.Ino), Born: born(f)}, nil
}

// born asks for the time of birth, which only the statx call tells, and package syscall does not know that one.
func born(f *os.File) int64 {
	var trap uintptr
	switch runtime.GOARCH {
	case "amd64":
		trap = 332
	case "arm64", "riscv64", "loong64":
		trap = 291
	case "386", "ppc64", "ppc64le":
		trap = 383
	case "arm":
		trap = 397
	case "s390x":
		trap = 379
	default:
		return 0
	}
	const (
		emptyPath = 0x1000 // the file is the descriptor's own
		wantBorn  = 0x800
		bornAt    = 80 // in the answer: seconds, then nanoseconds
	)
	var (
		path   [1]byte
		answer [256]byte
	)
	_, _, errno := syscall.Syscall6(trap, f.Fd(),
		uintptr(unsafe.Pointer(&path)), emptyPath, wantBorn, uintptr(unsafe.Pointer(&answer)), 0)
	if errno != 0 || binary.NativeEndian.Uint32(answer[:])&wantBorn == 0 {
		return 0
	}
	return int64(binary.NativeEndian.Uint64(answer[bornAt:]))*1e9 + int64(binary.NativeEndian.Uint32(answer[bornAt+8:]))
}
