package boatfake

import (
	"crypto/rand"
	"encoding/hex"
	"strconv"
	"strings"
)

const (
	idPrefix = "bx_"
	idDigits = "23456789abcdefghjkmnpqrstuvwxyz"
	idLength = 8
)

// idCount is how many ids there are, and idStride spreads those of one server over them: the two have no common factor, and
// idUnstride is its inverse.
const (
	idCount    = 31 * 31 * 31 * 31 * 31 * 31 * 31 * 31
	idStride   = 1 << 20
	idUnstride = 183029270094
)

// WireID returns the id under which clients know the sandbox that the state machine calls id, such as sb-1. What is no
// such id is returned as it is.
func WireID(id string) string {
	digits, ok := strings.CutPrefix(id, "sb-")
	n, err := strconv.ParseUint(digits, 10, 32)
	if !ok || err != nil {
		return id
	}
	n = multiply(n, idStride)
	wire := make([]byte, idLength)
	for i := range wire {
		wire[idLength-1-i] = idDigits[n%uint64(len(idDigits))]
		n /= uint64(len(idDigits))
	}
	return idPrefix + string(wire)
}

// MachineID reverses [WireID]. It returns "" for what is no id of a sandbox.
func MachineID(id string) string {
	digits, ok := strings.CutPrefix(id, idPrefix)
	if !ok || len(digits) != idLength {
		return ""
	}
	var n uint64
	for i := range len(digits) {
		d := strings.IndexByte(idDigits, digits[i])
		if d < 0 {
			return ""
		}
		n = n*uint64(len(idDigits)) + uint64(d)
	}
	return "sb-" + strconv.FormatUint(multiply(n, idUnstride), 10)
}

// multiply returns a*b mod idCount. Both are below 2^40, so that their product needs two words.
func multiply(a, b uint64) uint64 {
	var product uint64
	for ; b > 0; b >>= 1 {
		if b&1 == 1 {
			product = (product + a) % idCount
		}
		a = 2 * a % idCount
	}
	return product
}

// randomHex returns 32 digits, as ids of operations and requests have.
func randomHex() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
