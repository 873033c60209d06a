//go:build linux

package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// prefix begins the names of clusters' folders and of their nodes' cgroups.
const prefix = "sandglass-kube-"

// newDir makes a cluster's folder, which is in use for as long as lock is open. The lock is held before it has its name: else
// a cluster that begins just then would take the folder for one that was left, and remove it.
func newDir() (dir string, lock *os.File, err error) {
	if dir, err = os.MkdirTemp("", prefix); err != nil {
		return "", nil, err
	}
	path := filepath.Join(dir, "lock")
	if lock, err = os.Create(path + ".new"); err == nil {
		err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	return dir, lock, nil
}

// removeDir removes what a cluster has left on this machine once its processes are gone: its folder and its cgroups.
func removeDir(dir string) error {
	return errors.Join(removeCgroups(filepath.Base(dir)), os.RemoveAll(dir))
}

// sweepDirs removes what clusters have left whose supervisor was killed. The kernel has ended their processes with it.
func sweepDirs() error {
	dirs, err := filepath.Glob(filepath.Join(os.TempDir(), prefix+"*"))
	if err != nil {
		return err
	}
	var errs []error
	for _, dir := range dirs {
		lock, err := os.Open(filepath.Join(dir, "lock"))
		if errors.Is(err, fs.ErrNotExist) {
			if info, err := os.Stat(dir); err != nil || time.Since(info.ModTime()) < 10*time.Minute {
				continue // being made, or what a supervisor is built in, or gone
			}
			errs = append(errs, removeDir(dir))
			continue
		}
		if err != nil {
			continue // another user's
		}
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			errs = append(errs, removeDir(dir))
		}
		lock.Close()
	}
	return errors.Join(errs...)
}

// cgroupMounts returns where cgroup hierarchies are mounted: one of version 2, or each controller's of version 1.
func cgroupMounts() []string {
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		return []string{"/sys/fs/cgroup"}
	}
	var mounts []string
	entries, _ := os.ReadDir("/sys/fs/cgroup")
	for _, entry := range entries {
		// Two controllers may share a hierarchy: then there are links to it.
		if info, err := os.Stat("/sys/fs/cgroup/" + entry.Name()); err == nil && info.IsDir() && entry.Type()&fs.ModeSymlink == 0 {
			mounts = append(mounts, "/sys/fs/cgroup/"+entry.Name())
		}
	}
	return mounts
}

func makeCgroups(name string) error {
	var errs []error
	for _, mount := range cgroupMounts() {
		errs = append(errs, os.MkdirAll(filepath.Join(mount, name), 0o755))
	}
	return errors.Join(errs...)
}

// removeCgroups removes a node's cgroups, as soon as the last process in them is gone.
func removeCgroups(name string) error {
	if !strings.HasPrefix(name, prefix) {
		return errors.New("not a cluster's cgroup: " + name)
	}
	var err error
	for range 100 {
		err = nil
		for _, mount := range cgroupMounts() {
			err = errors.Join(err, removeTree(filepath.Join(mount, name)))
		}
		if err == nil {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return err
}

// removeTree removes a cgroup and those below it. The files in a cgroup go with it.
func removeTree(cgroup string) error {
	entries, err := os.ReadDir(cgroup)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, entry := range entries {
		if entry.IsDir() {
			err = errors.Join(err, removeTree(filepath.Join(cgroup, entry.Name())))
		}
	}
	if err != nil {
		return err
	}
	if err := syscall.Rmdir(cgroup); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return &fs.PathError{Op: "rmdir", Path: cgroup, Err: err}
	}
	return nil
}
