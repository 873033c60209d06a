package journal

import (
	"os"
	"strings"
)

func bootID() string { return read("/proc/sys/kernel/random/boot_id") }

// processStart is in clock ticks after the boot: the 20th field after the command, which may hold anything.
func processStart() string {
	stat := read("/proc/self/stat")
	if fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:]); len(fields) > 19 {
		return fields[19]
	}
	return ""
}

// machineIDs returns the hardware's id, which root may read and a machine's template does not copy, and the system's,
// which a well-made template does not copy.
func machineIDs() (hardware, machine string) {
	return read("/sys/class/dmi/id/product_uuid"), read("/etc/machine-id")
}

func read(name string) string {
	b, _ := os.ReadFile(name) // not there, or not for us: not known
	return strings.TrimSpace(string(b))
}
