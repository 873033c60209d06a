//go:build linux

package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"github.com/sandglass-dev/sandglass/internal/kubecluster/wire"
)

const (
	busyboxRef = "sandglass.test/busybox:1"
	pauseRef   = "sandglass.test/pause:1" // what holds a pod's namespaces
)

// busyboxImage returns the images that every node has. A pod's own container only has to sleep.
func busyboxImage() ([]wire.Image, error) {
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		return nil, errors.New("no busybox on PATH: install it (Debian: busybox-static)")
	}
	list, err := exec.Command(busybox, "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("busybox --list: %w", err)
	}
	files, links := map[string]string{"bin/busybox": busybox}, map[string]string{}
	for _, applet := range strings.Fields(string(list)) {
		if applet != "busybox" {
			links["bin/"+applet] = "busybox"
		}
	}
	return []wire.Image{
		{Ref: busyboxRef, Files: files, Links: links, Entrypoint: nil},
		{Ref: pauseRef, Files: files, Entrypoint: []string{"/bin/busybox", "sleep", "2147483647"}},
	}, nil
}

// importImage gives containerd images. They are there for pods a moment later.
func (w *worker) importImage(images ...wire.Image) error {
	for _, image := range images {
		path := w.node("image.tar")
		f, err := os.Create(path)
		if err != nil {
			return err
		}
		err = errors.Join(archive(f, image), f.Close())
		if err == nil {
			_, err = w.ctr("images", "import", "--no-unpack=false", path)
		}
		if err = errors.Join(err, os.Remove(path)); err != nil {
			return fmt.Errorf("image %s: %w", image.Ref, err)
		}
	}
	return nil
}

// archive writes an image as docker save does.
func archive(to io.Writer, image wire.Image) error {
	layer, err := layer(image)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(layer)
	type object = map[string]any
	config, err := json.Marshal(object{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": object{"Entrypoint": image.Entrypoint, "Cmd": []string(nil), "Env": []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}},
		"rootfs": object{"type": "layers", "diff_ids": []string{"sha256:" + hex.EncodeToString(sum[:])}},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal([]object{{"Config": "config.json", "RepoTags": []string{image.Ref}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return err
	}
	w := tar.NewWriter(to)
	for _, part := range []struct {
		name string
		data []byte
	}{{"manifest.json", manifest}, {"config.json", config}, {"layer.tar", layer}} {
		if err := w.WriteHeader(&tar.Header{Name: part.name, Mode: 0o644, Size: int64(len(part.data))}); err != nil {
			return err
		}
		if _, err := w.Write(part.data); err != nil {
			return err
		}
	}
	return w.Close()
}

// layer returns a root folder with the usual empty folders and the image's files.
func layer(image wire.Image) ([]byte, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, dir := range []string{"bin", "dev", "etc", "home", "proc", "root", "sys", "tmp", "usr", "usr/bin", "var"} {
		mode := int64(0o755)
		if dir == "tmp" {
			mode = 0o1777
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: mode}); err != nil {
			return nil, err
		}
	}
	for name, path := range image.Files {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if err := w.WriteHeader(&tar.Header{Name: strings.TrimPrefix(name, "/"), Mode: 0o755, Size: int64(len(data))}); err != nil {
			return nil, err
		}
		if _, err := w.Write(data); err != nil {
			return nil, err
		}
	}
	for name, target := range image.Links {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777}); err != nil {
			return nil, err
		}
	}
	return buf.Bytes(), w.Close()
}
