package providertest

import (
	"errors"
	"maps"
	"math"
	"strings"

	"github.com/sandglass-dev/sandglass/sandbox"
)

func specRules() []rule {
	return []rule{
		{"Spec.Env reaches every command, and Cmd.Env goes over it", specEnv},
		{"Spec.CPU is honoured or refused", honoured(func(s *sandbox.Spec, sizes sandbox.Spec) { s.CPU = sizes.CPU })},
		{"Spec.Memory is honoured or refused", honoured(func(s *sandbox.Spec, sizes sandbox.Spec) { s.Memory = sizes.Memory })},
		{"Spec.Disk is honoured or refused", honoured(func(s *sandbox.Spec, sizes sandbox.Spec) { s.Disk = sizes.Disk })},
		{"Spec.Offline is honoured or refused", honoured(func(s *sandbox.Spec, _ sandbox.Spec) { s.Offline = true })},
		{"Spec.Native of the adapter's own type is accepted", specNative},
		{"Spec.Native of another type is ErrInvalid before any request", specForeign},
		{"an image that does not exist is ErrInvalid and leaves nothing", specImage},
		{"a Spec with faults is refused before any request", specFaults},
		{"no error shows Spec.Env", specSecret},
	}
}

func specEnv(t *trial) {
	req := t.request(t.long())
	req.Spec.Env = maps.Clone(req.Spec.Env)
	if req.Spec.Env == nil {
		req.Spec.Env = map[string]string{}
	}
	for name, value := range map[string]string{"SG_A": "from the spec", "SG_B": "spec's $HOME \"b\"\nline"} {
		req.Spec.Env[name] = value
	}
	sb := t.own(req)
	const print = `printf '[%s][%s][%s]' "$SG_A" "$SG_B" "$SG_C"`
	for range 2 {
		if got, want := t.output(sb, sandbox.Shell(print)), "[from the spec][spec's $HOME \"b\"\nline][]"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	over := sandbox.Shell(print)
	over.Env = map[string]string{"SG_A": "from the command", "SG_C": "new"}
	if got, want := t.output(sb, over), "[from the command][spec's $HOME \"b\"\nline][new]"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	// Another process knows nothing of the Spec but what the service knows.
	other := t.peer().Open(sandbox.Info{ID: sb.ID()})
	if got, want := t.output(other, sandbox.Shell(print)), "[from the spec][spec's $HOME \"b\"\nline][]"; got != want {
		t.Errorf("another process: got %q, want %q", got, want)
	}
}

func (t *trial) sizes() sandbox.Spec {
	s := t.h.Sizes
	if s.CPU == 0 {
		s.CPU = 1
	}
	if s.Memory == 0 {
		s.Memory = 256 << 20
	}
	if s.Disk == 0 {
		s.Disk = 1 << 30
	}
	return s
}

// honoured is the rule that a Spec with one more wish is refused before any request, or made as ordered.
func honoured(wish func(s *sandbox.Spec, sizes sandbox.Spec)) func(*trial) {
	return func(t *trial) {
		req := t.request(t.long())
		wish(&req.Spec, t.sizes())
		sent := func() int {
			if t.h.Requests == nil {
				return 0
			}
			return t.h.Requests(t.p)
		}
		before := sent()
		info, err := t.try(req)
		if err != nil {
			t.unmade("the wish", info, err, sandbox.ErrInvalid, errors.ErrUnsupported)
			if sent() > before {
				t.Error("it was refused only after a request")
			}
			t.nothingMade()
			return
		}
		t.running(info)
		if t.h.Made == nil {
			return
		}
		want, got := req.Spec, t.h.Made(t.T, t.p, info.ID)
		if want.CPU != 0 && got.CPU != want.CPU {
			t.Errorf("CPU: ordered %v, made %v", want.CPU, got.CPU)
		}
		if want.Memory != 0 && got.Memory != want.Memory {
			t.Errorf("memory: ordered %d, made %d", want.Memory, got.Memory)
		}
		if want.Disk != 0 && got.Disk != want.Disk {
			t.Errorf("disk: ordered %d, made %d", want.Disk, got.Disk)
		}
		if want.Offline && !got.Offline {
			t.Error("offline was ordered, and there is a network")
		}
	}
}

func specNative(t *trial) {
	if t.h.Native == nil {
		t.Skipf("Harness.Native is not set")
	}
	req := t.request(t.long())
	req.Spec.Native = t.h.Native
	info := t.running(t.make(req))
	t.marked("Get", info, req.Mark)
}

func specForeign(t *trial) {
	type foreign struct{ Lifetime string } // no adapter can know it
	for _, native := range []any{foreign{"for ever"}, &foreign{}, "text", map[string]any{}} {
		req := t.request(t.long())
		req.Spec.Native = native
		t.refused("Spec.Native", req, sandbox.ErrInvalid)
	}
}

func specImage(t *trial) {
	if t.h.UnknownImage == "" {
		t.Skipf("Harness.UnknownImage is not set")
	}
	req := t.request(t.long())
	req.Spec.Image = t.h.UnknownImage
	info, err := t.try(req)
	if err == nil {
		t.Fatalf("made as %s", info.ID)
	}
	t.unmade("unknown image", info, err, sandbox.ErrInvalid)
	if errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("error %v matches ErrNotFound, which means a sandbox", err)
	}
	t.nothingMade()
}

func specFaults(t *trial) {
	for what, wish := range map[string]func(*sandbox.Spec){
		"negative CPU":              func(s *sandbox.Spec) { s.CPU = -1 },
		"CPU that is not a number":  func(s *sandbox.Spec) { s.CPU = math.NaN() },
		"negative memory":           func(s *sandbox.Spec) { s.Memory = -1 },
		"negative disk":             func(s *sandbox.Spec) { s.Disk = -1 },
		"port 0":                    func(s *sandbox.Spec) { s.Ports = []int{0} },
		"port 65536":                func(s *sandbox.Spec) { s.Ports = []int{65536} },
		"a port twice":              func(s *sandbox.Spec) { s.Ports = []int{t.port(), t.port()} },
		"a variable named a=b":      func(s *sandbox.Spec) { s.Env = map[string]string{"a=b": "x"} },
		"a variable without a name": func(s *sandbox.Spec) { s.Env = map[string]string{"": "x"} },
		"NUL in a variable":         func(s *sandbox.Spec) { s.Env = map[string]string{"a": "x\x00"} },
	} {
		req := t.request(t.long())
		wish(&req.Spec)
		t.refused(what, req, sandbox.ErrInvalid)
	}
}

func specSecret(t *trial) {
	const secret = "sesame-4711"
	req := t.request(t.long())
	req.Spec.Env = map[string]string{"TOKEN": secret, "a=b": secret}
	if _, err := t.try(req); err != nil && strings.Contains(err.Error(), secret) {
		t.Errorf("a refused create shows it: %v", err)
	}
	if t.h.UnknownImage != "" {
		req := t.request(t.long())
		req.Spec.Env = map[string]string{"TOKEN": secret}
		req.Spec.Image = t.h.UnknownImage
		if _, err := t.try(req); err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("an unknown image shows it: %v", err)
		}
	}
	sb := t.box()
	cmd := sandbox.Cmd{Args: []string{"pwd"}, Env: map[string]string{"TOKEN": secret}, Dir: "relative"}
	if _, err := sb.Exec(t.ctx, cmd); err == nil || strings.Contains(err.Error(), secret) {
		t.Errorf("a refused command: %v", err)
	}
}
