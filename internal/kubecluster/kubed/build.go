package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/sandglass-dev/sandglass/internal/kubecluster"
)

// target returns where the build goes, whatever the folder of the go command. Off is no place: it is for who runs tests.
func target() (string, error) {
	path, err := kubecluster.Path()
	if err != nil {
		return "", err
	}
	if path == kubecluster.Off {
		return "", fmt.Errorf("SANDGLASS_KUBE is %s: unset it, or name the file to build", path)
	}
	return filepath.Abs(path)
}

// build builds the components from the module internal/kubetest, the working directory being that of ours. The go
// command does nothing if nothing has changed.
func build() error {
	path, err := target()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	// Without their version the components take each other for one of version 0.
	version := strings.Split(strings.TrimPrefix(kubecluster.Version, "v"), ".")
	flags := []string{"-s", "-w"}
	for name, value := range map[string]string{"gitVersion": kubecluster.Version, "gitMajor": version[0], "gitMinor": version[1]} {
		flags = append(flags, fmt.Sprintf("-X k8s.io/component-base/version.%s=%s", name, value))
	}
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags="+strings.Join(flags, " "), "-o", path, ".")
	cmd.Dir = filepath.Join("internal", "kubetest")
	cmd.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	fmt.Printf("building Kubernetes %s: minutes when for the first time\n", kubecluster.Version)
	began := time.Now()
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build %s: %w", cmd.Dir, err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	fmt.Printf("%s: %d MB, %.0f s\n", path, info.Size()>>20, time.Since(began).Seconds())
	return nil
}
