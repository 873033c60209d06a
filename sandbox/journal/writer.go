package journal

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
)

// A writer is the process that wrote an entry. All of it is for people, except that a Hardware or Machine that differs
// makes a dead owner an unknown one. Empty: not known on this system.
type writer struct {
	Pid      int    `json:"pid"` // in its own pid namespace
	Started  string `json:"started,omitempty"`
	Boot     string `json:"boot,omitempty"`
	Host     string `json:"host,omitempty"`
	Hardware string `json:"hardware,omitempty"` // hashes: such ids are not to be handed around
	Machine  string `json:"machine,omitempty"`
}

// self returns this process as a writer.
func self() writer {
	host, _ := os.Hostname() // for people only
	hardware, machine := machineIDs()
	return writer{
		Pid: os.Getpid(), Started: processStart(), Boot: bootID(), Host: host,
		Hardware: hashID(hardware), Machine: hashID(machine),
	}
}

func hashID(id string) string {
	if id = strings.TrimSpace(id); id == "" {
		return ""
	}
	sum := sha256.Sum256([]byte("sandglass host " + strings.ToLower(id)))
	return hex.EncodeToString(sum[:12])
}

// elsewhere reports whether w is known to be another host than here. Under one boot it never is: one kernel then holds
// all locks, and containers under it may well have machine ids of their own.
func (w writer) elsewhere(here writer) bool {
	differ := func(a, b string) bool { return a != "" && b != "" && a != b }
	if w.Boot != "" && w.Boot == here.Boot {
		return false
	}
	return differ(w.Hardware, here.Hardware) || differ(w.Machine, here.Machine)
}

func (w writer) String() string {
	known := func(s string) string {
		if s == "" {
			return "unknown"
		}
		return s
	}
	return fmt.Sprintf("pid %d, started %s, boot %s, host %s", w.Pid, known(w.Started), known(w.Boot), known(w.Host))
}
