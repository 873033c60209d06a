package sandbox

import (
	"crypto/rand"
	"encoding/base32"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
	"time"
)

// MarkKey is the tag, label or metadata key under which adapters keep the mark. Where there is room, FleetKey and
// NonceKey stand beside it, so that the service can filter. A mark counts only on the object it was written for:
// where the service lets us choose the name, the name must be [Mark.Name] (forks and committed images inherit tags).
const (
	MarkKey  = "sandglass"
	FleetKey = "sandglass-fleet"
	NonceKey = "sandglass-nonce"
)

// Mark is the ownership written on a sandbox when it is made.
type Mark struct {
	Fleet, Owner string        // at most 32 characters each of letters, digits, '.' and '-'
	Nonce        string        // 16 characters of a-z and 2-7; unique to one scope: also its id in journal and events
	Created      time.Time     // by the owner's clock, whole seconds; for people
	Lifetime     time.Duration // MaxLifetime + Grace + CleanupTimeout + KeepOnError, whole milliseconds: a duration, so that no clock of ours is in it
}

const (
	markVersion = "1"
	wordLen     = 32 // longest fleet or owner
	nonceLen    = 16 // 80 bits in base32
)

// Name is the name for the marked sandbox where the service lets us choose one: letters, digits and '-', 26 characters.
func (m Mark) Name() string { return "sandglass-" + m.Nonce }

// String returns the mark in at most 120 characters of [A-Za-z0-9.-], the last of them a checksum over the rest.
//
//	1.<length of fleet>.<fleet>.<owner>.<nonce>.<created, s>.<lifetime, ms>.<CRC-32>
//
// The numbers are in base 36. The fleet's length makes the form unambiguous, since names may hold dots.
func (m Mark) String() string {
	body := strings.Join([]string{
		markVersion, strconv.FormatInt(int64(len(m.Fleet)), 36), m.Fleet, m.Owner, m.Nonce,
		strconv.FormatInt(m.Created.Unix(), 36), strconv.FormatInt(m.Lifetime.Milliseconds(), 36),
	}, ".")
	return body + "." + checksum(body)
}

func checksum(s string) string { return fmt.Sprintf("%08x", crc32.ChecksumIEEE([]byte(s))) }

// ParseMark reverses [Mark.String]. It accepts exactly what String writes: a mark that was cut, edited or is of
// another version is an error matching [ErrInvalid], and whoever carries it is foreign.
func ParseMark(s string) (Mark, error) {
	fault := func(what string) (Mark, error) { return Mark{}, fmt.Errorf("mark with %s: %w", what, ErrInvalid) }
	body, sum, _ := cutLast(s)
	if len(s) > 120 || sum != checksum(body) {
		return fault("a wrong length or checksum")
	}
	rest, life, _ := cutLast(body)
	rest, created, _ := cutLast(rest)
	rest, nonce, _ := cutLast(rest)
	version, rest, _ := strings.Cut(rest, ".")
	size, rest, _ := strings.Cut(rest, ".")
	if version != markVersion {
		return fault("an unknown version")
	}
	n, err := strconv.ParseInt(size, 36, 32)
	if err != nil || n < 0 || int(n) >= len(rest) || rest[n] != '.' {
		return fault("no fleet")
	}
	at, err1 := strconv.ParseInt(created, 36, 64)
	ms, err2 := strconv.ParseInt(life, 36, 64)
	m := Mark{Fleet: rest[:n], Owner: rest[n+1:], Nonce: nonce, Created: time.Unix(at, 0).UTC(), Lifetime: time.Duration(ms) * time.Millisecond}
	if err1 != nil || err2 != nil || !word(m.Fleet) || !word(m.Owner) || !isNonce(nonce) || ms <= 0 || m.String() != s {
		return fault("unreadable fields")
	}
	return m, nil
}

// cutLast is [strings.Cut] at the last dot.
func cutLast(s string) (before, after string, found bool) {
	i := strings.LastIndexByte(s, '.')
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}

// word reports whether s may be a fleet or an owner.
func word(s string) bool {
	return s != "" && len(s) <= wordLen && strings.IndexFunc(s, func(r rune) bool { return !markRune(r) }) < 0
}

func markRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '-'
}

func isNonce(s string) bool {
	return len(s) == nonceLen && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz234567") == ""
}

// newNonce draws from the kernel each time: a cloned process must not draw the same as its twin.
func newNonce() string {
	var b [10]byte
	rand.Read(b[:]) // never fails: the process ends if the kernel has no randomness
	return strings.ToLower(base32.StdEncoding.EncodeToString(b[:]))
}
