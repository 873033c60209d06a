//go:build linux || freebsd

package child

import "syscall"

// dieWithParent has the kernel kill the program when the thread that started it is gone.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
