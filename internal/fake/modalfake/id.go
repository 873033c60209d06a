package modalfake

import "crypto/rand"

const (
	ulidLetters = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
	idLetters   = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)

// newID returns a random id as those of the newer backend are: a prefix and 26 letters and digits.
func newID(prefix string) string { return prefix + random(ulidLetters, 26) }

// newV1ID returns one as the older backend's are.
func newV1ID(prefix string) string { return prefix + random(idLetters, 22) }

func random(letters string, n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	for i := range b {
		b[i] = letters[int(b[i])%len(letters)] // not even, which no one minds here
	}
	return string(b)
}
