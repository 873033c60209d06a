//go:build unix && !linux && !freebsd

package child

import "syscall"

func dieWithParent(*syscall.SysProcAttr) {} // the guard alone sees to it
