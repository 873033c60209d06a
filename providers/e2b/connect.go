package e2b

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// The daemon inside speaks the Connect protocol with JSON: a stream is a sequence of envelopes, each a byte of flags,
// four bytes of length and a message. The last one ends the stream, with an error in it if it failed; without it, the
// stream has broken off.
const (
	flagCompressed = 1 // never asked for
	flagEnd        = 2
	maxEnvelope    = 4 << 20 // the service's pieces of output are of 32 KiB, before base64
)

// errBroken is matched by the error of a stream that ended without its last envelope.
var errBroken = errors.New("the stream broke off")

// A message is what one envelope of a process's stream holds. Of Event's fields at most one is set.
type message struct {
	Event struct {
		Start *struct {
			PID uint32 `json:"pid"`
		} `json:"start"`
		Data *struct {
			Stdout []byte `json:"stdout"`
			Stderr []byte `json:"stderr"`
		} `json:"data"`
		End *processEnd `json:"end"`
		// A keepalive has nothing to say but that it is there.
	} `json:"event"`
}

// processEnd is how a process ended. Fields that are zero are left out on the way: a success has no exit code.
type processEnd struct {
	ExitCode int32  `json:"exitCode"`
	Exited   bool   `json:"exited"`
	Status   string `json:"status"`
}

// A streamError is the failure that a stream's last envelope tells of.
type streamError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func (e *streamError) Error() string { return e.Code + ": " + e.Message }

// envelope returns v as the only envelope of a request.
func envelope(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	head := make([]byte, 5, 5+len(b))
	binary.BigEndian.PutUint32(head[1:], uint32(len(b)))
	return append(head, b...), nil
}

// next reads one message. At the regular end of the stream it returns [io.EOF], or the *streamError that ended it; a
// stream that breaks off, an envelope that is too large and one that cannot be read are other errors. It keeps no more
// in memory than one envelope, and of that no more than has arrived.
func next(r io.Reader) (message, error) {
	var m message
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return m, broken(err)
	}
	size := binary.BigEndian.Uint32(head[1:])
	if size > maxEnvelope {
		return m, fmt.Errorf("an envelope of %d bytes in the stream", size)
	}
	var body strings.Builder // grows as bytes come, so that a length alone costs nothing
	if n, err := io.Copy(&body, io.LimitReader(r, int64(size))); err != nil {
		return m, broken(err)
	} else if n < int64(size) {
		return m, broken(io.ErrUnexpectedEOF)
	}
	switch head[0] {
	case 0:
		if err := json.Unmarshal([]byte(body.String()), &m); err != nil {
			return message{}, fmt.Errorf("a message in the stream cannot be read: %w", err)
		}
		return m, nil
	case flagEnd:
		var end struct {
			Error *streamError `json:"error"`
		}
		if err := json.Unmarshal([]byte(body.String()), &end); err != nil {
			return m, fmt.Errorf("the end of the stream cannot be read: %w", err)
		}
		if end.Error != nil {
			return m, end.Error
		}
		return m, io.EOF
	}
	return m, fmt.Errorf("an envelope with flags %#x in the stream (%d is compression, which was not asked for)", head[0], flagCompressed)
}

func broken(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errBroken
	}
	return err
}

// exitCode returns the code as a shell would: 128+n after signal n.
func (e *processEnd) exitCode() (int, error) {
	if name, ok := strings.CutPrefix(e.Status, "signal: "); ok {
		name, _, _ = strings.Cut(name, " (") // "(core dumped)"
		n, err := signalNumber(name)
		return 128 + n, err
	}
	if !e.Exited && e.ExitCode == 0 && !strings.HasPrefix(e.Status, "exit status") || e.ExitCode < 0 {
		return 0, fmt.Errorf("the command ended in an unknown way: %q", e.Status)
	}
	return int(e.ExitCode), nil
}

// signalNumber reads Linux's numbers from the words that the daemon has for them.
func signalNumber(name string) (int, error) {
	names := [...]string{
		1: "hangup", 2: "interrupt", 3: "quit", 4: "illegal instruction", 5: "trace/breakpoint trap", 6: "aborted", 7: "bus error",
		8: "floating point exception", 9: "killed", 10: "user defined signal 1", 11: "segmentation fault", 12: "user defined signal 2",
		13: "broken pipe", 14: "alarm clock", 15: "terminated",
	}
	for n, known := range names {
		if known == name && n > 0 {
			return n, nil
		}
	}
	var n int
	if _, err := fmt.Sscanf(name, "signal %d", &n); err != nil || n < 1 || n > 64 {
		return 0, fmt.Errorf("the command was ended by the unknown signal %q", name)
	}
	return n, nil
}
