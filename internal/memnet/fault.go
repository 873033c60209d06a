package memnet

import (
	"net"
	"slices"
	"time"
)

// A Kind is what goes wrong on a wire.
type Kind int

const (
	Refuse      Kind = iota + 1 // dials are refused; connections that stand go on
	Reset                       // the connection breaks as a request begins, and the server sees nothing of it
	Hang                        // the request never arrives, and the client waits
	Swallow                     // the request arrives and is processed; nothing of the answer arrives, and the client waits
	Cut                         // the connection breaks after Fault.After bytes of the answer
	LateRequest                 // the request arrives after Fault.Delay, also if the client has gone meanwhile
	LateAnswer                  // the answer arrives after Fault.Delay
	Partition                   // until it is healed nothing arrives in either direction, and dials wait; what was sent arrives then
)

// A Fault is met by dials (Refuse), by exchanges (a request and its answer, of which a connection carries many, one after
// another), or by everything (Partition).
type Fault struct {
	Kind  Kind
	Host  string        // as for [Network.Listen], with or without a port; empty: any
	Times int           // how many dials or exchanges it meets; 0: all until it is healed. Not for Partition
	Skip  int           // how many pass before
	After int64         // for Cut; 0: before the first byte
	Delay time.Duration // for LateRequest and LateAnswer
}

type fault struct{ Fault }

// Break has f happen from now on, beside the faults that are there, until heal is called.
func (n *Network) Break(f Fault) (heal func()) {
	x := &fault{f}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.faults = append(n.faults, x)
	n.look()
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.faults = slices.DeleteFunc(n.faults, func(o *fault) bool { return o == x })
		n.look()
	}
}

// Heal ends all faults. What was lost stays lost.
func (n *Network) Heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.faults = nil
	n.look()
}

// look wakes everybody who waits.
func (n *Network) look() {
	for k := range n.links {
		k.wake()
	}
	wake(&n.changed)
}

// exchange is what happens to a request and its answer.
type exchange struct {
	reset, deaf, mute, cuts   bool
	left                      int64 // of the answer, until it is cut
	requestDelay, answerDelay time.Duration
}

// exchange returns what happens to the one that begins now.
func (n *Network) exchange(host, port string) exchange {
	var x exchange
	for _, f := range slices.Clone(n.faults) {
		if f.Kind == Refuse || f.Kind == Partition || !n.met(f, host, port) {
			continue
		}
		switch f.Kind {
		case Reset:
			x.reset = true
		case Hang:
			x.deaf = true
		case Swallow:
			x.mute = true
		case Cut:
			x.cuts, x.left = true, f.After
		case LateRequest:
			x.requestDelay += f.Delay
		case LateAnswer:
			x.answerDelay += f.Delay
		}
	}
	return x
}

func (n *Network) refused(host, port string) bool {
	for _, f := range slices.Clone(n.faults) {
		if f.Kind == Refuse && n.met(f, host, port) {
			return true
		}
	}
	return false
}

func (n *Network) parted(host, port string) bool {
	return slices.ContainsFunc(n.faults, func(f *fault) bool { return f.Kind == Partition && f.means(host, port) })
}

// met reports whether f happens now, and counts.
func (n *Network) met(f *fault, host, port string) bool {
	if !f.means(host, port) {
		return false
	}
	if f.Skip > 0 {
		f.Skip--
		return false
	}
	if f.Times == 0 {
		return true
	}
	if f.Times--; f.Times == 0 {
		n.faults = slices.DeleteFunc(n.faults, func(o *fault) bool { return o == f })
	}
	return true
}

func (f *fault) means(host, port string) bool {
	if h, p, err := net.SplitHostPort(f.Host); err == nil {
		return p == port && hostMatches(h, host)
	}
	return f.Host == "" || hostMatches(f.Host, host)
}
