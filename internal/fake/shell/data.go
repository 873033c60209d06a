package shell

import (
	"bufio"
	"compress/gzip"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"math"
	"strconv"
	"strings"
)

// dataApplet finds the utilities about bytes.
func dataApplet(name string) applet {
	switch name {
	case "base64":
		return base64Main
	case "cmp":
		return cmpMain
	case "dd":
		return ddMain
	case "gzip", "gunzip", "zcat":
		return gzipMain
	case "md5sum":
		return func(t *tool) int { return sumMain(t, md5.New) }
	case "sha1sum":
		return func(t *tool) int { return sumMain(t, sha1.New) }
	case "sha256sum":
		return func(t *tool) int { return sumMain(t, sha256.New) }
	case "sha512sum":
		return func(t *tool) int { return sumMain(t, sha512.New) }
	case "od":
		return odMain
	case "tar":
		return tarMain
	}
	return nil
}

func sumMain(t *tool, newHash func() hash.Hash) int {
	f, args, err := t.flags("cbt", "check=c")
	if err != nil {
		return 1
	}
	sum := func(r io.Reader) (string, error) {
		h := newHash()
		_, err := io.Copy(h, r)
		return hex.EncodeToString(h.Sum(nil)), err
	}
	if !f.has('c') {
		return t.inputs(args, func(name string, r io.Reader) error {
			text, err := sum(r)
			if err == nil {
				t.say(text + "  " + name)
			}
			return err
		})
	}
	wrong := 0
	status := t.inputs(args, func(_ string, r io.Reader) error {
		return t.lines(r, func(line []byte, _ bool) bool {
			want, name, ok := strings.Cut(string(line), " ")
			if name = strings.TrimLeft(name, " *"); !ok || name == "" {
				wrong++
				return true
			}
			verdict := "FAILED"
			if r, done, err := t.openInput(name); err == nil {
				if got, err := sum(r); err == nil && strings.EqualFold(got, want) {
					verdict = "OK"
				}
				done()
			}
			if verdict != "OK" {
				wrong++
			}
			t.say(name + ": " + verdict)
			return true
		})
	})
	if wrong > 0 {
		return t.complain("%d sums did not match", wrong)
	}
	return status
}

func base64Main(t *tool) int {
	f, args, err := t.flags("dw:i", "decode=d", "wrap=w", "ignore-garbage=i")
	if err != nil {
		return 1
	}
	width := 76
	if f.has('w') {
		if width, err = strconv.Atoi(f.last('w')); err != nil || width < 0 {
			return t.complain("invalid number '%s'", f.last('w'))
		}
	}
	return t.inputs(args, func(_ string, r io.Reader) error {
		if f.has('d') {
			if err := t.pass(base64.NewDecoder(base64.StdEncoding, r)); err != nil {
				return errno("invalid input")
			}
			return nil
		}
		w := &wrapper{w: t.out, width: width}
		enc := base64.NewEncoder(base64.StdEncoding, w)
		if _, err := io.Copy(enc, r); err != nil {
			return err
		}
		_ = enc.Close()
		if w.col > 0 && width > 0 {
			_ = t.out.WriteByte('\n')
		}
		return nil
	})
}

// wrapper breaks its text into lines.
type wrapper struct {
	w          *bufio.Writer
	width, col int
}

func (w *wrapper) Write(b []byte) (int, error) {
	for _, c := range b {
		if err := w.w.WriteByte(c); err != nil {
			return 0, err
		}
		if w.col++; w.col == w.width {
			_ = w.w.WriteByte('\n')
			w.col = 0
		}
	}
	return len(b), nil
}

func cmpMain(t *tool) int {
	f, args, err := t.flags("s", "quiet=s", "silent=s")
	if err != nil || len(args) != 2 {
		if err == nil {
			t.complain("two files are needed")
		}
		return 2
	}
	var readers [2]*bufio.Reader
	for i, name := range args {
		r, done, err := t.openInput(name)
		if err != nil {
			t.failed(name, err)
			return 2
		}
		defer done()
		readers[i] = bufio.NewReader(r)
	}
	for pos, line := 1, 1; ; pos++ {
		a, errA := readers[0].ReadByte()
		b, errB := readers[1].ReadByte()
		switch {
		case errA == io.EOF && errB == io.EOF:
			return 0
		case errA == io.EOF || errB == io.EOF:
			short := args[0]
			if errB == io.EOF {
				short = args[1]
			}
			if !f.has('s') {
				t.complain("EOF on %s", short)
			}
			return 1
		case errA != nil || errB != nil:
			t.complain("cannot read")
			return 2
		case a != b:
			if !f.has('s') {
				t.say(fmt.Sprintf("%s %s differ: char %d, line %d", args[0], args[1], pos, line))
			}
			return 1
		}
		if a == '\n' {
			line++
		}
	}
}

func odMain(t *tool) int {
	f, args, err := t.flags("A:t:cxbvN:", "format=t", "address-radix=A", "read-bytes=N")
	if err != nil {
		return 1
	}
	format := f.last('t')
	switch {
	case f.has('c'):
		format = "c"
	case f.has('b'):
		format = "o1"
	}
	verb := map[string]string{"x1": " %02x", "o1": " %03o", "u1": " %3d", "d1": " %4d", "c": "%4s"}[format]
	radix, ok := map[string]string{"": "%07o", "o": "%07o", "x": "%06x", "d": "%07d", "n": ""}[f.last('A')]
	if verb == "" || !ok {
		return t.complain("only -c, -b, -t x1, o1, u1 and d1, and -A o, x, d and n are supported")
	}
	limit := int64(1) << 62
	if f.has('N') {
		if limit, ok = byteCount(f.last('N')); !ok {
			return t.complain("invalid number '%s'", f.last('N'))
		}
	}
	pos := 0
	address := func() {
		if radix != "" {
			fmt.Fprintf(t.out, radix, pos)
		}
	}
	status := t.inputs(args, func(_ string, r io.Reader) error {
		br := bufio.NewReader(io.LimitReader(r, limit))
		row := make([]byte, 16)
		for {
			n, err := io.ReadFull(br, row)
			if n > 0 {
				address()
				for _, c := range row[:n] {
					switch format {
					case "c":
						fmt.Fprintf(t.out, verb, odChar(c))
					case "d1":
						fmt.Fprintf(t.out, verb, int8(c))
					default:
						fmt.Fprintf(t.out, verb, c)
					}
				}
				if t.out.WriteByte('\n') != nil {
					return errPipe
				}
				pos += n
			}
			if err != nil {
				if err == io.EOF || err == io.ErrUnexpectedEOF {
					return nil
				}
				return err
			}
		}
	})
	if address(); radix != "" {
		_ = t.out.WriteByte('\n')
	}
	return status
}

func odChar(c byte) string {
	if s, ok := map[byte]string{0: `\0`, '\a': `\a`, '\b': `\b`, '\f': `\f`, '\n': `\n`, '\r': `\r`, '\t': `\t`, '\v': `\v`}[c]; ok {
		return s
	}
	if c >= ' ' && c < 0x7f {
		return string(rune(c))
	}
	return fmt.Sprintf("%03o", c)
}

func ddMain(t *tool) int {
	opt := map[string]string{"bs": "512", "count": "", "skip": "0", "seek": "0", "if": "-", "of": "-", "status": "", "conv": ""}
	for _, a := range t.args {
		k, v, ok := strings.Cut(a, "=")
		if _, known := opt[k]; !ok || !known {
			return t.complain("%s is not supported", a)
		}
		opt[k] = v
	}
	size := func(name string) int64 {
		n, ok := byteCount(opt[name])
		if !ok {
			t.complain("invalid number '%s'", opt[name])
			return -1
		}
		return n
	}
	bs, skip, seek, count := size("bs"), size("skip"), size("seek"), int64(-1)
	if opt["count"] != "" {
		if count = size("count"); count < 0 {
			return 1
		}
	}
	const maxBlock = 16 << 20
	if bs < 1 || bs > maxBlock || skip < 0 || seek < 0 || opt["conv"] != "" && opt["conv"] != "notrunc" {
		return t.complain("bs, skip, seek or conv is not supported")
	}
	if skip > math.MaxInt64/bs || seek > math.MaxInt64/bs {
		return t.complain("skip or seek is too large")
	}
	in, done, err := t.openInput(opt["if"])
	if err != nil {
		return t.failed(opt["if"], err)
	}
	defer done()
	var out io.Writer = fdWriter{t.proc, 1}
	if opt["of"] != "-" {
		mode := openTruncate
		if opt["conv"] == "notrunc" || seek > 0 {
			mode = 0
		}
		d, err := t.openFile(opt["of"], openWrite|openCreate|mode)
		if err != nil {
			return t.failed(opt["of"], err)
		}
		defer d.release()
		if r, ok := d.f.(regular); ok {
			r.h.seek(seek * bs)
		}
		out = toolOutput{t, d}
	}
	if _, err := io.CopyN(io.Discard, in, skip*bs); err != nil && err != io.EOF {
		return t.failed(opt["if"], err)
	}
	if err := t.charge(int(bs)); err != nil {
		return t.complain("%v", err)
	}
	buf := make([]byte, bs)
	full, part, total := 0, 0, int64(0)
	status := 0
	for count < 0 || int64(full+part) < count {
		n, err := in.Read(buf)
		if n > 0 {
			if int64(n) == bs {
				full++
			} else {
				part++
			}
			k, werr := out.Write(buf[:n])
			if total += int64(k); werr != nil {
				status = t.failed(opt["of"], werr)
				break
			}
		}
		if err != nil {
			if err != io.EOF {
				status = t.failed(opt["if"], err)
			}
			break
		}
	}
	if opt["status"] != "none" && opt["status"] != "noxfer" {
		t.errorf("%d+%d records in\n%d+%d records out\n%d bytes copied", full, part, full, part, total)
	}
	return status
}

func gzipMain(t *tool) int {
	f, args, err := t.flags("dckf123456789n", "decompress=d", "stdout=c", "to-stdout=c", "keep=k", "force=f")
	if err != nil {
		return 1
	}
	unpack := f.has('d') || t.name != "gzip"
	toStdout := f.has('c') || t.name == "zcat"
	status := 0
	for _, name := range withDefault(args, "-") {
		r, done, err := t.openInput(name)
		if err != nil {
			status = t.failed(name, err)
			continue
		}
		target := name + ".gz"
		if unpack {
			target = strings.TrimSuffix(name, ".gz")
		}
		out, finish := t.out, func() error { return nil }
		switch {
		case name == "-" || toStdout:
		case unpack && target == name:
			err = errno("unknown suffix")
		default:
			out, finish, err = t.openOutput(target, openTruncate)
		}
		if err == nil {
			err = gzipCopy(out, r, unpack)
			if err2 := finish(); err == nil {
				err = err2
			}
		}
		done()
		if err == nil && out != t.out && !f.has('k') {
			err = t.m.fs.remove(t.who(), t.abs(name), false)
		}
		if err != nil {
			status = t.failed(name, err)
		}
	}
	return status
}

// writerOnly hides ReadFrom, which would read into the buffer that reading flushes.
type writerOnly struct{ io.Writer }

func gzipCopy(out *bufio.Writer, r io.Reader, unpack bool) error {
	if unpack {
		z, err := gzip.NewReader(r)
		if err != nil {
			return errno("not in gzip format")
		}
		_, err = io.Copy(writerOnly{out}, z)
		return err
	}
	z := gzip.NewWriter(writerOnly{out})
	if _, err := io.Copy(z, r); err != nil {
		return err
	}
	return z.Close()
}
