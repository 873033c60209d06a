package shell

import (
	"io"
	"strconv"
	"strings"
	"time"
)

// reading is how read reads.
type reading struct {
	raw     bool          // -r: backslashes are text
	count   int           // -n: so many characters at most; negative: no limit
	timeout time.Duration // -t; negative: none
	delim   byte          // -d; 0 is NUL, so that all is read
}

// readBuiltin reads a line, byte by byte, so that the next command finds what follows it.
func (s *shell) readBuiltin(args []string) int {
	how, names, err := s.readOptions(args[1:])
	if err != nil {
		return s.complain(2, "read: %v", err)
	}
	for _, name := range names {
		if !validName(name) {
			return s.complain(2, "read: %s: bad variable name", name)
		}
	}
	line, quoted, status := s.readLine(how)
	values := []string{string(line)}
	if len(names) == 0 {
		names = []string{"REPLY"}
	} else {
		values = splitRead(line, quoted, s.ifs(), len(names))
	}
	for i, name := range names {
		if err := s.assign(name, values[i]); err != nil {
			return s.complain(2, "read: %v", err)
		}
	}
	return status
}

func (s *shell) readOptions(args []string) (how reading, names []string, err error) {
	how = reading{count: -1, timeout: -1, delim: '\n'}
	for len(args) > 0 && len(args[0]) > 1 && args[0][0] == '-' {
		opt := args[0][1:]
		args = args[1:]
		if opt == "-" {
			break
		}
		for opt != "" {
			c := opt[0]
			opt = opt[1:]
			switch c {
			case 'r':
				how.raw = true
				continue
			case 's': // there is no terminal that would show the input
				continue
			}
			value := opt
			opt = ""
			if value == "" && len(args) > 0 {
				value, args = args[0], args[1:]
			}
			switch c {
			case 'p':
				_, err = s.write(2, []byte(value))
			case 'n':
				how.count, err = strconv.Atoi(value)
			case 'd':
				how.delim = append([]byte(value), 0)[0]
			case 't':
				var ok bool
				if how.timeout, ok = duration(value); !ok {
					err = errno("bad number: " + value)
				}
			default:
				err = errno("illegal option -" + string(c))
			}
			if err != nil {
				return how, nil, err
			}
		}
	}
	return how, args, nil
}

// readLine returns the bytes of a line and which of them were behind a backslash.
func (s *shell) readLine(how reading) (line []byte, quoted []bool, status int) {
	if how.timeout >= 0 {
		return s.readLineWithin(how)
	}
	return s.proc.readLine(how, func([]byte, []bool) {})
}

// readLine also shows what it has so far, since it may be killed.
func (p *proc) readLine(how reading, soFar func([]byte, []bool)) (line []byte, quoted []bool, status int) {
	buf := make([]byte, 1)
	escaped := false
	for count := how.count; count != 0; count-- {
		n, err := p.read(0, buf)
		if err != nil {
			if err != io.EOF {
				p.errorf("read: %v", err)
			}
			return line, quoted, 1
		}
		if n == 0 || buf[0] == 0 && how.delim != 0 {
			count++
			continue
		}
		c := buf[0]
		switch {
		case escaped && c == '\n':
			escaped = false
			count++
			continue
		case !escaped && c == '\\' && !how.raw:
			escaped = true
			count++
			continue
		case !escaped && c == how.delim:
			return line, quoted, 0
		}
		line, quoted = append(line, c), append(quoted, escaped)
		escaped = false
		soFar(line, quoted)
		if len(line) > maxValue {
			p.errorf("read: line too long")
			return nil, nil, 2
		}
	}
	return line, quoted, 0
}

// readLineWithin gives up after the timeout. The reader is a child process that is killed then, for a read cannot be
// left in another way.
func (s *shell) readLineWithin(how reading) (line []byte, quoted []bool, status int) {
	c, err := s.fork(false)
	if err != nil {
		return nil, nil, s.complain(2, "read: %v", err)
	}
	c.spawn(func() int {
		var st int
		line, quoted, st = c.readLine(how, func(l []byte, q []bool) { line, quoted = l, q })
		return st
	})
	t := time.NewTimer(how.timeout)
	defer t.Stop()
	select {
	case <-c.done:
		status = s.wait(c)
	case <-t.C:
		s.checkAlive()
		const alarm = 14
		c.cancel(signalKill)
		s.wait(c)
		status = 128 + alarm
	}
	return line, quoted, status
}

// splitRead divides a line into n values: the last one takes all that is left.
func splitRead(line []byte, quoted []bool, ifs string, n int) []string {
	isSep := func(i int) bool { return !quoted[i] && strings.IndexByte(ifs, line[i]) >= 0 }
	isSpace := func(i int) bool { return isSep(i) && strings.IndexByte(" \t\n", line[i]) >= 0 }
	values := make([]string, n)
	i := 0
	for i < len(line) && isSpace(i) {
		i++
	}
	for v := range n - 1 {
		start := i
		for i < len(line) && !isSep(i) {
			i++
		}
		values[v] = string(line[start:i])
		for i < len(line) && isSpace(i) {
			i++
		}
		if i < len(line) && isSep(i) {
			i++
			for i < len(line) && isSpace(i) {
				i++
			}
		}
	}
	end := len(line)
	for end > i && isSpace(end-1) {
		end--
	}
	// A separator that only ends the last value does not belong to it.
	if end > i && isSep(end-1) {
		more := false
		for j := i; j < end-1; j++ {
			more = more || isSep(j)
		}
		if !more {
			end--
		}
	}
	values[n-1] = string(line[i:end])
	return values
}
