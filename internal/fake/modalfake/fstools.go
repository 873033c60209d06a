package modalfake

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandglass-dev/sandglass/internal/fake/shell"
)

// fileTools is the program for files that the service puts into every image, and which the SDKs run.
const fileTools = "/__modal/.bin/modal-sandbox-fs-tools"

const (
	maxReadFile = 5 << 30
	watchEvery  = 20 * time.Millisecond
)

// fileCall is what the program is asked for, as its only argument.
type fileCall struct {
	ReadFile, WriteFile, ListFiles, Stat *struct{ Path string }

	MakeDirectory *struct {
		Path    string
		Parents bool
	}
	Remove *struct {
		Path      string
		Recursive bool
	}
	Watch *struct {
		Path        string
		Recursive   bool
		Filter      *[]string
		TimeoutSecs *int `json:"timeout_secs"`
	}
}

// fileInfo is what it tells of a file.
type fileInfo struct {
	Name          string  `json:"name"`
	Path          string  `json:"path"`
	Type          string  `json:"type"`
	Size          int64   `json:"size"`
	Mode          uint32  `json:"mode"`
	Permissions   string  `json:"permissions"`
	Owner         string  `json:"owner"`
	Group         string  `json:"group"`
	ModifiedTime  float64 `json:"modified_time"`
	SymlinkTarget *string `json:"symlink_target"`
}

// fileProblem is how it fails.
type fileProblem struct {
	Kind    string `json:"error_kind"`
	Message string `json:"message"`
	Detail  string `json:"detail"`
}

func (p *fileProblem) Error() string { return p.Message }

// problemKinds are the kinds of error by the machine's words for them.
var problemKinds = map[string]string{
	"No such file or directory": "NotFound", "Not a directory": "NotDirectory", "Is a directory": "IsDirectory",
	"File exists": "PathAlreadyExists", "Directory not empty": "DirectoryNotEmpty", "Permission denied": "PermissionDenied",
	"Operation not permitted": "PermissionDenied",
}

// fileTool works on one disk.
type fileTool struct {
	ctx  context.Context
	disk *shell.FS
}

// runFileTools is one run of the program.
func runFileTools(ctx context.Context, disk *shell.FS, c shell.Command) int {
	t := fileTool{ctx, disk}
	err := t.run(c)
	if err == nil {
		return 0
	}
	p, ok := errors.AsType[*fileProblem](err)
	if !ok {
		p = &fileProblem{Kind: "Other", Message: err.Error()}
		for words, kind := range problemKinds {
			if strings.Contains(err.Error(), words) {
				p.Kind, p.Message = kind, words
			}
		}
	}
	text, _ := json.Marshal(p) // of strings
	fmt.Fprintln(c.Stderr, string(text))
	return 1
}

func (t fileTool) run(c shell.Command) error {
	var call fileCall
	if len(c.Args) != 2 {
		return &fileProblem{Kind: "Usage", Message: "one argument is needed"}
	}
	if err := json.Unmarshal([]byte(c.Args[1]), &call); err != nil {
		return &fileProblem{Kind: "Usage", Message: err.Error()}
	}
	switch {
	case call.ReadFile != nil:
		return t.read(call.ReadFile.Path, c.Stdout)
	case call.WriteFile != nil:
		return t.write(call.WriteFile.Path, c.Stdin)
	case call.ListFiles != nil:
		list, err := t.list(call.ListFiles.Path)
		if err != nil {
			return err
		}
		return json.NewEncoder(c.Stdout).Encode(list)
	case call.Stat != nil:
		i, err := t.stat(call.Stat.Path, false)
		if err != nil {
			return err
		}
		return json.NewEncoder(c.Stdout).Encode(i)
	case call.MakeDirectory != nil:
		return t.mkdir(call.MakeDirectory.Path, call.MakeDirectory.Parents)
	case call.Remove != nil:
		return t.remove(call.Remove.Path, call.Remove.Recursive)
	case call.Watch != nil:
		w := call.Watch
		return t.watch(w.Path, w.Recursive, w.Filter, w.TimeoutSecs, c)
	}
	return &fileProblem{Kind: "Usage", Message: "unknown command"}
}

// tool runs a utility, whose complaint is the error.
func (t fileTool) tool(args ...string) (string, error) {
	var out, errs bytes.Buffer
	if exit := shell.Run(t.ctx, t.disk, shell.Command{Args: args, Stdout: &out, Stderr: &errs}); exit != 0 {
		return "", errors.New(strings.TrimSpace(errs.String()))
	}
	return out.String(), nil
}

// Bits of a mode, by the type of file.
const (
	modeDir  = 0o040000
	modeFile = 0o100000
	modeLink = 0o120000
)

func (t fileTool) stat(name string, follow bool) (fileInfo, error) {
	args := []string{"stat", "-c", "%s\n%a\n%U\n%G\n%Y\n%F", name}
	if follow {
		args = slices.Insert(args, 1, "-L")
	}
	text, err := t.tool(args...)
	if err != nil {
		return fileInfo{}, err
	}
	f := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if len(f) != 6 {
		return fileInfo{}, fmt.Errorf("stat %s: %q", name, text)
	}
	size, _ := strconv.ParseInt(f[0], 10, 64)
	perm, _ := strconv.ParseUint(f[1], 8, 32)
	modified, _ := strconv.ParseFloat(f[4], 64)
	i := fileInfo{
		Name: path.Base(name), Path: name, Type: "file", Size: size, Mode: modeFile | uint32(perm),
		Permissions: fmt.Sprintf("%04o", perm),
		Owner:       f[2], Group: f[3], ModifiedTime: modified,
	}
	switch f[5] {
	case "directory":
		i.Type, i.Mode = "directory", modeDir|uint32(perm)
	case "symbolic link":
		target, err := t.tool("readlink", name)
		if err != nil {
			return fileInfo{}, err
		}
		target = strings.TrimSuffix(target, "\n")
		i.Type, i.Mode, i.SymlinkTarget = "symlink", modeLink|uint32(perm), &target
	}
	return i, nil
}

func (t fileTool) read(name string, to io.Writer) error {
	i, err := t.stat(name, true)
	switch {
	case err != nil:
		return err
	case i.Type == "directory":
		return &fileProblem{Kind: "IsDirectory", Message: "Is a directory"}
	case i.Size > maxReadFile:
		return &fileProblem{Kind: "FileTooLarge", Message: "File too large"}
	}
	return t.disk.ReadFile(name, to)
}

func (t fileTool) write(name string, from io.Reader) error {
	if i, err := t.stat(name, true); err == nil && i.Type == "directory" {
		return &fileProblem{Kind: "IsDirectory", Message: "Is a directory"}
	}
	if from == nil {
		from = strings.NewReader("")
	}
	err := t.disk.WriteFile(name, from)
	if errors.Is(err, fs.ErrExist) {
		return &fileProblem{Kind: "NotDirectory", Message: "Not a directory"}
	}
	return err
}

func (t fileTool) list(name string) ([]fileInfo, error) {
	i, err := t.stat(name, true)
	switch {
	case err != nil:
		return nil, err
	case i.Type != "directory":
		return nil, &fileProblem{Kind: "NotDirectory", Message: "Not a directory"}
	}
	text, err := t.tool("ls", "-A1", strings.TrimSuffix(name, "/")+"/")
	if err != nil {
		return nil, err
	}
	all := []fileInfo{}
	for line := range strings.Lines(text) {
		if i, err := t.stat(path.Join(name, strings.TrimSuffix(line, "\n")), false); err == nil {
			all = append(all, i)
		}
	}
	slices.SortFunc(all, func(a, b fileInfo) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

func (t fileTool) mkdir(name string, parents bool) error {
	i, err := t.stat(name, true)
	if err == nil && (i.Type != "directory" || !parents) {
		return &fileProblem{Kind: "PathAlreadyExists", Message: "File exists"}
	}
	args := []string{"mkdir", name}
	if parents {
		args = []string{"mkdir", "-p", name}
	}
	if _, err = t.tool(args...); err != nil && strings.Contains(err.Error(), "File exists") {
		return &fileProblem{Kind: "NotDirectory", Message: "Not a directory"} // above it
	}
	return err
}

func (t fileTool) remove(name string, recursive bool) error {
	i, err := t.stat(name, false)
	if err != nil {
		return err
	}
	args := []string{"rm", "-f", name}
	switch {
	case i.Type == "directory" && recursive:
		args = []string{"rm", "-rf", name}
	case i.Type == "directory":
		args = []string{"rmdir", name}
	}
	_, err = t.tool(args...)
	return err
}

// watch tells what changes until its time is over or its input ends. It looks often, and misses what comes and goes between two
// looks.
func (t fileTool) watch(name string, recursive bool, filter *[]string, timeout *int, c shell.Command) error {
	if _, err := t.stat(name, true); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(t.ctx)
	defer cancel()
	if timeout != nil {
		ctx, cancel = context.WithTimeout(ctx, time.Duration(*timeout)*time.Second)
		defer cancel()
	}
	go func() { // ends with the input, which ends with the process
		_, _ = io.Copy(io.Discard, c.Stdin)
		cancel()
	}()
	before := t.files(name, recursive)
	for pass(ctx, watchEvery) == nil {
		now := t.files(name, recursive)
		for _, e := range changes(before, now) {
			if filter != nil && !slices.Contains(*filter, e.Type) {
				continue
			}
			if err := json.NewEncoder(c.Stdout).Encode(e); err != nil {
				return err
			}
		}
		before = now
	}
	return nil
}

type fileEvent struct {
	Type  string   `json:"event_type"`
	Paths []string `json:"paths"`
}

// files returns the files below a path, with what changes when they are written.
func (t fileTool) files(name string, recursive bool) map[string]string {
	args := []string{"find", name}
	if !recursive {
		args = append(args, "-maxdepth", "1")
	}
	list, err := t.tool(args...)
	if err != nil {
		return nil
	}
	args = []string{"stat", "-c", "%n\n%i %F %s %y"}
	for line := range strings.Lines(list) {
		args = append(args, strings.TrimSuffix(line, "\n"))
	}
	var out bytes.Buffer
	shell.Run(t.ctx, t.disk, shell.Command{Args: args, Stdout: &out}) // what has gone meanwhile is left out
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	all := map[string]string{}
	for i := 0; i+1 < len(lines); i += 2 {
		state := lines[i+1]
		if n, ok := strings.CutSuffix(strings.SplitAfter(state, " directory ")[0], " directory "); ok {
			state = n // what happens in a folder changes its time, and is no event of the folder's
		}
		all[lines[i]] = state
	}
	return all
}

func changes(before, now map[string]string) []fileEvent {
	inode := func(text string) string {
		n, _, _ := strings.Cut(text, " ")
		return n
	}
	gone := map[string]string{} // by inode
	for name, text := range before {
		if _, ok := now[name]; !ok {
			gone[inode(text)] = name
		}
	}
	var events []fileEvent
	for _, name := range slices.Sorted(maps.Keys(now)) {
		was, known := before[name]
		from, moved := gone[inode(now[name])]
		switch {
		case moved && !known:
			events = append(events, fileEvent{"Rename", []string{from, name}})
			delete(gone, inode(now[name]))
		case !known: // made, and written or moved here
			events = append(events, fileEvent{"Create", []string{name}}, fileEvent{"Modify", []string{name}})
		case was != now[name]:
			events = append(events, fileEvent{"Modify", []string{name}})
		}
	}
	for _, name := range slices.Sorted(maps.Values(gone)) {
		events = append(events, fileEvent{"Remove", []string{name}})
	}
	return events
}
