package child

import (
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
)

// How a program failed to start.
var (
	ErrNotFound = errors.New("no such program")
	ErrNotRun   = errors.New("cannot be run")
)

// A Cmd is what to run.
type Cmd struct {
	Args []string // the program, looked for in PATH, and its arguments
	Env  []string // as NAME=value; of twice the same the last

	// Guard is the command line of this very program that calls [Guard]. Windows needs none.
	Guard []string
}

// Find returns the path of a program, looked for in PATH. Errors match [ErrNotFound] or [ErrNotRun].
func Find(name string) (string, error) {
	path, err := exec.LookPath(name)
	switch {
	case err == nil:
		return path, nil
	case errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("%s: %w: %w", name, ErrNotFound, err)
	default:
		return "", fmt.Errorf("%s: %w: %w", name, ErrNotRun, err)
	}
}
