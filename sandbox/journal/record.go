package journal

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sandglass-dev/sandglass/sandbox"
)

const (
	version  = 1
	blockLen = 4096       // a slot is a multiple of it: what disks write at once at best
	slotMax  = 1 << 20    // longest slot
	spareLen = 1000 + 512 // room for what comes later: the id; Kept, the file's numbers, another writer
	seqLen   = 16
	sumLen   = 2 * sha256.Size
	magic    = "sandglass journal "
)

// A record is what stands in a slot: an entry, who wrote it, and into which file.
type record struct {
	Provider string            `json:"provider"`
	ID       string            `json:"id"`
	Mark     string            `json:"mark"`
	Tags     map[string]string `json:"tags,omitempty"`
	Kept     time.Time         `json:"kept,omitzero"`
	Order    []byte            `json:"order,omitempty"`
	Writer   writer            `json:"writer"`
	File     fileID            `json:"file"`
}

// A fileID tells a file from its copies. Zero: not known on this system.
type fileID struct {
	Inode uint64 `json:"inode"`
	Born  int64  `json:"born"` // Unix time in ns by the file system; no program can set it
}

// newRecord checks that e comes back as it is.
func newRecord(e sandbox.Entry, w writer) (record, error) {
	mark := e.Mark.String()
	if _, err := sandbox.ParseMark(mark); err != nil {
		return record{}, err
	}
	texts := []string{e.Provider, e.ID}
	for k, v := range e.Tags {
		texts = append(texts, k, v)
	}
	for _, s := range texts {
		if !utf8.ValidString(s) {
			return record{}, fmt.Errorf("%q is not UTF-8: %w", s, sandbox.ErrInvalid)
		}
	}
	kept := e.Kept
	if !kept.IsZero() {
		kept = kept.Round(0).UTC()
	}
	return record{Provider: e.Provider, ID: e.ID, Mark: mark, Tags: e.Tags, Kept: kept, Order: e.Order, Writer: w}, nil
}

// entry reverses newRecord.
func (r record) entry() (sandbox.Entry, error) {
	mark, err := sandbox.ParseMark(r.Mark)
	if err != nil {
		return sandbox.Entry{}, err
	}
	return sandbox.Entry{Provider: r.Provider, ID: r.ID, Mark: mark, Tags: r.Tags, Kept: r.Kept, Order: r.Order}, nil
}

// slotLen returns how large the slots of a new file must be to hold r and what may still come.
func (r record) slotLen() (int, error) {
	body, err := r.body()
	if err != nil {
		return 0, err
	}
	need := headLen() + len(body) + spareLen
	n := (need + blockLen - 1) / blockLen * blockLen
	if n > slotMax {
		return 0, fmt.Errorf("entry of %d bytes, at most %d fit: %w", need, slotMax, sandbox.ErrInvalid)
	}
	return n, nil
}

func (r record) body() ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "\t")
	err := enc.Encode(r)
	return b.Bytes(), err
}

// headLen is the length of a slot's first line, which has the same form in all versions of one digit.
func headLen() int { return len(magic) + len("1 ") + seqLen + len(" ") + sumLen + len("\n") }

// encode returns r as a slot of n bytes, the seq-th of its file.
func encode(r record, seq uint64, n int) ([]byte, error) {
	body, err := r.body()
	if err != nil {
		return nil, err
	}
	if need := headLen() + len(body); need > n {
		return nil, fmt.Errorf("entry of %d bytes, the file has %d for it: %w", need, n, sandbox.ErrInvalid)
	}
	head := fmt.Sprintf("%s%d %016x ", magic, version, seq)
	slot := bytes.Repeat([]byte{' '}, n)
	rest := slot[headLen():]
	copy(rest, body)
	rest[len(rest)-1] = '\n'
	copy(slot, head+checksum(head, rest)+"\n")
	return slot, nil
}

// checksum covers all of a slot but itself.
func checksum(head string, rest []byte) string {
	h := sha256.New()
	io.WriteString(h, head)
	h.Write(rest)
	return hex.EncodeToString(h.Sum(nil))
}

// errVersion is matched by intact slots that another version wrote.
var errVersion = errors.New("another version of the journal")

// decode reverses encode. It accepts exactly what encode writes.
func decode(slot []byte) (r record, seq uint64, err error) {
	if len(slot) < headLen() || slot[headLen()-1] != '\n' || !bytes.HasPrefix(slot, []byte(magic)) {
		return record{}, 0, errors.New("no entry")
	}
	head, rest := string(slot[:headLen()-sumLen-1]), slot[headLen():]
	if checksum(head, rest) != string(slot[len(head):headLen()-1]) {
		return record{}, 0, errors.New("wrong checksum")
	}
	v, count, _ := strings.Cut(strings.TrimSuffix(head[len(magic):], " "), " ")
	if v != strconv.Itoa(version) {
		return record{}, 0, fmt.Errorf("%w: %q, this program knows %d", errVersion, v, version)
	}
	if seq, err = strconv.ParseUint(count, 16, 64); err != nil {
		return record{}, 0, errors.New("no count")
	}
	dec := json.NewDecoder(bytes.NewReader(rest))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&r); err != nil {
		return record{}, 0, err
	}
	if len(bytes.TrimSpace(rest[dec.InputOffset():])) > 0 {
		return record{}, 0, errors.New("more than an entry")
	}
	if same, err := encode(r, seq, len(slot)); err != nil || !bytes.Equal(same, slot) {
		return record{}, 0, errors.New("another form than this program writes")
	}
	return r, seq, nil
}

// latest returns the newer of the readable slots of a file's content, and its place: 0 or 1.
func latest(content []byte) (r record, seq uint64, place int, err error) {
	n := len(content) / 2
	if n == 0 || n > slotMax || n%blockLen != 0 || len(content) != 2*n {
		return record{}, 0, 0, fmt.Errorf("broken entry: a length of %d bytes", len(content))
	}
	var faults [2]error
	found := false
	for i := range faults {
		cand, count, fault := decode(content[i*n : (i+1)*n])
		switch {
		case errors.Is(fault, errVersion): // whatever the other slot says, it is not the whole story
			return record{}, 0, 0, fault
		case fault != nil:
			faults[i] = fault
		case !found || count > seq:
			r, seq, place, found = cand, count, i, true
		}
	}
	if !found {
		return record{}, 0, 0, fmt.Errorf("broken entry: %w; and the copy before it: %w", faults[0], faults[1])
	}
	return r, seq, place, nil
}
