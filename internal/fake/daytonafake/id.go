package daytonafake

import (
	"fmt"
	"strconv"
	"strings"
)

// idForm is the UUID of a sandbox; the number is the state machine's.
const idForm = "5a9d1a55-0000-4000-8000-%012x"

// WireID returns the UUID under which clients know the sandbox that the state machine calls id, such as sb-1. What is
// no such id is returned as it is.
func WireID(id string) string {
	n, err := strconv.ParseUint(strings.TrimPrefix(id, "sb-"), 10, 48)
	if err != nil || !strings.HasPrefix(id, "sb-") {
		return id
	}
	return fmt.Sprintf(idForm, n)
}

// MachineID reverses [WireID]. It returns "" for what is no id of a sandbox, such as a name.
func MachineID(id string) string {
	head := idForm[:strings.IndexByte(idForm, '%')]
	digits, ok := strings.CutPrefix(strings.ToLower(id), head)
	n, err := strconv.ParseUint(digits, 16, 48)
	if !ok || err != nil || len(digits) != 12 {
		return ""
	}
	return "sb-" + strconv.FormatUint(n, 10)
}

// machine is the state machine's id of the sandbox in the path; "" if the path has a name instead.
func (c *call) machine() string { return MachineID(c.PathValue("id")) }
