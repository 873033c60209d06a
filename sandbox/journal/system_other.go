//go:build !linux && !darwin && !freebsd && !windows

package journal

import (
	"errors"
	"io/fs"
	"os"
)

// Without the locks of a known system nobody can be called dead: Open fails.

func openFile(name string, flag int) (*os.File, error) { return nil, errors.ErrUnsupported }

func lock(f *os.File, exclusive bool) error { return errors.ErrUnsupported }

func publish(temp, name string) error { return errors.ErrUnsupported }

func syncDir(dir string) error { return errors.ErrUnsupported }

func private(dir string, info fs.FileInfo) error { return errors.ErrUnsupported }

func networkFS(dir string) (string, error) { return "", errors.ErrUnsupported }

func identify(f *os.File) (fileID, error) { return fileID{}, errors.ErrUnsupported }
