package sandboxtest

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/sandglass-dev/sandglass/internal/fake/shell"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// Options is what [sandbox.Spec.Native] may hold here, as a pointer; another type is refused.
type Options struct {
	Files map[string]string // in the file system from the start: absolute path to content
}

func (o *Options) validate() error {
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(o.Files)) {
		if !path.IsAbs(name) || strings.HasSuffix(name, "/") {
			faults = append(faults, fmt.Errorf("file %q has no absolute path: %w", name, sandbox.ErrInvalid))
		}
	}
	return errors.Join(faults...)
}

// machine is what a sandbox has beside its life: an order and files.
type machine struct {
	spec  sandbox.Spec
	files map[string]string

	mu sync.Mutex
	fs *shell.FS // made on first use, for most sandboxes of a test run no command
}

func newMachine(spec sandbox.Spec) *machine {
	spec.Env, spec.Ports = maps.Clone(spec.Env), slices.Clone(spec.Ports)
	m := &machine{spec: spec}
	if o, ok := spec.Native.(*Options); ok && o != nil {
		m.files = maps.Clone(o.Files)
	}
	return m
}

// disk returns the file system.
func (m *machine) disk() *shell.FS {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fs == nil {
		fs := shell.NewFS()
		if m.spec.Disk > 0 {
			fs.SetQuota(m.spec.Disk)
		}
		for _, name := range slices.Sorted(maps.Keys(m.files)) {
			// What does not fit on the disk is missing, as it would be in an image that is too large for it.
			fs.WriteFile(name, strings.NewReader(m.files[name]))
		}
		m.fs = fs
	}
	return m.fs
}

// scrap drops the files.
func (m *machine) scrap() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fs = nil
}

// env returns Spec.Env with more over it.
func (m *machine) env(more map[string]string) map[string]string {
	env := maps.Clone(m.spec.Env)
	if env == nil {
		env = map[string]string{}
	}
	maps.Copy(env, more)
	return env
}
