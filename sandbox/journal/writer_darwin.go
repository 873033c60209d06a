package journal

import "syscall"

func bootID() string {
	id, _ := syscall.Sysctl("kern.bootsessionuuid")
	return id
}

func processStart() string { return "" }

// machineIDs knows none: the hardware's id is only to be had through a framework.
func machineIDs() (hardware, machine string) { return "", "" }
