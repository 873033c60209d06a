package journal

import "os"

// Latest decodes a file's content, and encodes what it found anew: the same slot must come out.
func Latest(content []byte) (slot, again []byte, err error) {
	r, seq, place, err := latest(content)
	if err != nil {
		return nil, nil, err
	}
	n := len(content) / 2
	again, err = encode(r, seq, n)
	return content[place*n : (place+1)*n], again, err
}

// Reseal gives every slot of a file's content, edited by edit, the checksum that it then needs.
func Reseal(content []byte, edit func(slot string) string) []byte {
	var out []byte
	for n := len(content) / 2; len(content) > 0; content = content[n:] {
		slot := edit(string(content[:n]))
		head, rest := slot[:headLen()-sumLen-1], slot[headLen():]
		out = append(out, head+checksum(head, []byte(rest))+"\n"+rest...)
	}
	return out
}

// OpenOn is Open on a folder of which the system says that it lies on the named network file system.
func (o Options) OpenOn(dir, network string) (*Journal, error) {
	return o.open(dir, func(string) (string, error) { return network, nil })
}

// OpenAs is Open under another boot of another machine.
func OpenAs(dir, boot, machine string) (*Journal, error) {
	j, err := Open(dir)
	if err == nil {
		j.self.Boot, j.self.Machine, j.self.Hardware = boot, machine, ""
	}
	return j, err
}

// Ask holds an entry's lock as [Journal.Owner] does while it asks, until done.
func (j *Journal) Ask(nonce string) (done func(), err error) {
	f := &file{}
	if err := f.open(j.path(nonce), false); err != nil {
		return nil, err
	}
	return f.close, nil
}

// Late opens an entry's file, and locks it only when told so.
func (j *Journal) Late(nonce string) (lock func() error, err error) {
	f := &file{path: j.path(nonce)}
	f.f, err = openFile(f.path, os.O_RDWR)
	return func() error { return f.lock(true) }, err
}
