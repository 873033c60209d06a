//go:build unix

package journal_test

import (
	"fmt"
	"os"
	"syscall"
)

// execAgain replaces this process by another program of the same pid.
func execAgain() {
	exe, err := os.Executable()
	if err == nil {
		err = os.Setenv(roleVar, "wait -")
	}
	if err == nil {
		err = syscall.Exec(exe, os.Args, os.Environ())
	}
	fmt.Println("failed:", err)
	os.Exit(1)
}
