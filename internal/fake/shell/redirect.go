package shell

import (
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// redirection remembers what redirections have replaced. Either undo or keep has to be called.
type redirection struct {
	p   *proc
	fds []int
	old []*desc
}

// put lets a descriptor refer to d, of which the caller gives away a reference; nil closes it.
func (r *redirection) put(fd int, d *desc) {
	before := r.p.fds[fd]
	if before != nil {
		before.dup()
	}
	r.fds, r.old = append(r.fds, fd), append(r.old, before)
	r.p.set(fd, d)
}

// undo puts back what was there before.
func (r *redirection) undo() {
	for i := len(r.fds) - 1; i >= 0; i-- {
		r.p.set(r.fds[i], r.old[i])
	}
}

// keep lets the redirections stay.
func (r *redirection) keep() {
	for _, d := range r.old {
		if d != nil {
			d.release()
		}
	}
}

// redirect applies redirections in order, up to the first that fails.
func (s *shell) redirect(list []*syntax.Redirect) (*redirection, error) {
	done := &redirection{p: s.proc}
	for _, r := range list {
		if err := s.redirectOne(r, done.put); err != nil {
			return done, err
		}
	}
	return done, nil
}

func (s *shell) redirectOne(r *syntax.Redirect, put func(int, *desc)) error {
	fd := 1
	switch r.Op {
	case syntax.RdrIn, syntax.RdrInOut, syntax.DplIn, syntax.Hdoc, syntax.DashHdoc, syntax.WordHdoc:
		fd = 0
	}
	if r.N != nil {
		n, err := strconv.Atoi(r.N.Value)
		if err != nil || n > 255 {
			return fail(1, r.N.Value+": "+errBadFD.Error())
		}
		fd = n
	}
	switch r.Op {
	case syntax.Hdoc, syntax.DashHdoc:
		text, err := s.hereDocument(r)
		if err == nil {
			put(fd, newDesc(document{strings.NewReader(text)}))
		}
		return err
	}
	target, err := s.literal(r.Word)
	if err != nil {
		return err
	}
	var flags openFlag
	switch r.Op {
	case syntax.WordHdoc:
		put(fd, newDesc(document{strings.NewReader(target + "\n")}))
		return nil
	case syntax.DplIn, syntax.DplOut:
		if n, err := strconv.Atoi(target); err == nil {
			d := s.fds[n]
			if d == nil {
				return fail(1, target+": "+errBadFD.Error())
			}
			put(fd, d.dup())
			return nil
		}
		if target == "-" {
			put(fd, nil)
			return nil
		}
		if r.Op == syntax.DplIn || r.N != nil {
			return fail(1, target+": "+errBadFD.Error())
		}
		flags = openWrite | openCreate | openTruncate // ">&file" is "&>file"
	case syntax.RdrIn:
		flags = openRead
	case syntax.RdrInOut:
		flags = openRead | openWrite | openCreate
	case syntax.RdrOut, syntax.RdrClob, syntax.RdrAll:
		flags = openWrite | openCreate | openTruncate
		if s.opts['C'] && r.Op == syntax.RdrOut {
			if i, err := s.m.fs.stat(s.who(), s.abs(target), true); err == nil && i.mode.IsRegular() {
				return fail(1, "cannot create "+target+": "+errExist.Error())
			}
		}
	case syntax.AppOut, syntax.AppAll:
		flags = openWrite | openCreate | openAppend
	default:
		return fail(2, "not supported: redirection "+r.Op.String())
	}
	d, err := s.openFile(target, flags)
	if err != nil {
		verb := "open"
		if flags&openCreate != 0 {
			verb = "create"
		}
		return fail(1, "cannot "+verb+" "+target+": "+err.Error())
	}
	if r.Op == syntax.RdrAll || r.Op == syntax.AppAll || r.Op == syntax.DplOut {
		put(2, d.dup())
		fd = 1
	}
	put(fd, d)
	return nil
}

// hereDocument expands a here-document, unless a part of its delimiter is quoted.
func (s *shell) hereDocument(r *syntax.Redirect) (string, error) {
	if r.Hdoc == nil {
		return "", nil
	}
	quoted := false
	for _, part := range r.Word.Parts {
		lit, ok := part.(*syntax.Lit)
		quoted = quoted || !ok || strings.Contains(lit.Value, `\`)
	}
	x := expander{s: s}
	atLineStart := true
	for _, part := range r.Hdoc.Parts {
		lit, ok := part.(*syntax.Lit)
		if !ok {
			atLineStart = false
			if err := x.parts([]syntax.WordPart{part}, inDocument); err != nil {
				return "", err
			}
			continue
		}
		text := lit.Value
		if r.Op == syntax.DashHdoc {
			text, atLineStart = stripTabs(text, atLineStart)
		}
		var err error
		if quoted {
			err = x.add(text, true)
		} else {
			err = x.lit(text, inDocument, false, false)
		}
		if err != nil {
			return "", err
		}
	}
	return x.cur.text(), nil
}

// stripTabs removes the tabs at the beginning of each line, and tells whether the text ends at such a place.
func stripTabs(text string, atLineStart bool) (string, bool) {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if atLineStart {
			line = strings.TrimLeft(line, "\t")
		}
		b.WriteString(line)
		atLineStart = strings.HasSuffix(line, "\n") || line == "" && atLineStart
	}
	return b.String(), atLineStart
}

func (s *shell) redirectFailed(err error) {
	if e, ok := err.(*shellError); ok && e.status == 1 {
		s.say("%v", err)
		s.status = 1
		return
	}
	s.stop(err)
}
