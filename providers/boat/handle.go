package boat

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/sandglass-dev/sandglass/internal/httpapi"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// notes is the file in a sandbox that keeps of its Spec what the service has no place for. A shell can run it: its first
// line does nothing and holds the ports, the second puts the variables before the words of a command.
const notes = "/home/user/.sandglass"

const portsLine = ": sandglass ports "

// known is what this process knows of a sandbox that it has made.
type known struct {
	mark   sandbox.Mark
	env    map[string]string
	ports  []int
	public bool

	mu      sync.Mutex // never held over a request
	unsaved bool       // env and ports are not in the sandbox yet
	deleted bool       // a delete was accepted
}

func (p *Provider) remember(id string, k *known) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if old := p.known[id]; old == nil || old.mark != k.mark {
		p.known[id] = k
	}
}

func (p *Provider) forget(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.known, id)
}

// facts returns what this process knows of a sandbox, or nil.
func (p *Provider) facts(id string) *known {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.known[id]
}

// deletes reports whether a sandbox was made here and no delete of it was accepted yet.
func (p *Provider) deletes(id string) bool {
	k := p.facts(id)
	if k == nil {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return !k.deleted
}

func (p *Provider) deleted(id string) {
	if k := p.facts(id); k != nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.deleted = true
	}
}

// A handle is one sandbox.
type handle struct {
	p  *Provider
	id string

	mu   sync.Mutex // never held over a request
	over []string   // folders of commands that have ended
}

var _ sandbox.Sandbox = (*handle)(nil)

// Open returns a handle on a sandbox. It makes no request; an ID alone suffices.
func (p *Provider) Open(info sandbox.Info) sandbox.Sandbox { return &handle{p: p, id: info.ID} }

// ID returns the sandbox's id.
func (h *handle) ID() string { return h.id }

// request is one to the machine.
func (h *handle) request(op sandbox.Op, method, rest string) httpapi.Request {
	return httpapi.Request{Op: op, ID: h.id, Method: method, Path: route(h.id) + rest, Rules: inside}
}

// ready brings what the sandbox's Spec says into the machine, unless it is there. Whoever made the sandbox does so before
// its first use of it.
func (h *handle) ready(ctx context.Context, op sandbox.Op) error {
	if !isID(h.id) {
		return h.p.noSuch(op, h.id)
	}
	k := h.p.facts(h.id)
	if k == nil {
		return nil
	}
	k.mu.Lock()
	unsaved := k.unsaved
	k.mu.Unlock()
	if !unsaved {
		return nil
	}
	if err := h.put(ctx, op, notes, k.notes(), slices.Collect(maps.Values(k.env))); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.unsaved = false
	return nil
}

// notes is what the file of that name holds.
func (k *known) notes() []byte {
	var ports []string
	for _, n := range k.ports {
		ports = append(ports, strconv.Itoa(n))
	}
	line := portsLine + cmp.Or(strings.Join(ports, ","), "none")
	if k.public {
		line += " public"
	}
	words := []string{}
	for _, name := range slices.Sorted(maps.Keys(k.env)) {
		words = append(words, name+"="+k.env[name])
	}
	if len(words) > 0 {
		line += "\nset -- " + quoted(words...) + ` "$@"`
	}
	return []byte(line + "\n")
}

// put writes a file whose folder is there.
func (h *handle) put(ctx context.Context, op sandbox.Op, name string, content []byte, secrets []string) error {
	req := h.request(op, http.MethodPut, "/files")
	req.Body = map[string]string{"path": name, "content": base64.StdEncoding.EncodeToString(content), "encoding": "base64"}
	req.Secrets, req.Timeout = secrets, transferTime
	_, err := h.p.do(ctx, req)
	return err
}

// declared returns the ports of the sandbox's Spec and whether everybody may reach them. What another process has declared
// is in the machine.
func (h *handle) declared(ctx context.Context) (ports []int, public bool, err error) {
	if k := h.p.facts(h.id); k != nil {
		return k.ports, k.public, nil
	}
	var told file
	req := h.request(sandbox.OpEndpoint, http.MethodGet, "/files")
	req.Query = url.Values{"path": {notes}, "encoding": {"base64"}}.Encode()
	req.Out = &told
	_, err = h.p.do(ctx, req)
	if errors.Is(err, sandbox.ErrNotFound) { // of the file, or of the sandbox
		_, _, err = h.p.look(ctx, sandbox.OpEndpoint, h.id)
		return nil, false, err
	}
	if err != nil {
		return nil, false, err
	}
	content, err := base64.StdEncoding.DecodeString(told.Content)
	if err != nil {
		return nil, false, h.p.odd(sandbox.OpEndpoint, h.id, httpapi.Answer{}, errors.New("a file that cannot be read"))
	}
	ports, public = readNotes(string(content))
	return ports, public, nil
}

// readNotes reads the first line of the notes. What anybody in the sandbox has made of it counts for no more than ports.
func readNotes(content string) (ports []int, public bool) {
	line, _, _ := strings.Cut(content, "\n")
	line, ok := strings.CutPrefix(line, portsLine)
	if !ok {
		return nil, false
	}
	line, public = strings.CutSuffix(line, " public")
	for n := range strings.SplitSeq(line, ",") {
		if port, err := strconv.Atoi(n); err == nil && port > 0 && port <= 65535 {
			ports = append(ports, port)
		}
	}
	return ports, public
}

// file is the answer with a file's content.
type file struct {
	Content string `json:"content"`
}

// Endpoint has the service host a port and returns its address, which holds a token unless Options.Public was set. What
// listens must do so on 0.0.0.0, and need not yet. The first answer sets a cookie, which a client may need to keep.
func (h *handle) Endpoint(ctx context.Context, port int) (sandbox.Endpoint, error) {
	refuse := func(format string, args ...any) (sandbox.Endpoint, error) {
		return sandbox.Endpoint{}, h.p.refuse(sandbox.OpEndpoint, h.id, sandbox.ErrInvalid, fmt.Errorf(format, args...))
	}
	if port < 1 || port > 65535 {
		return refuse("port %d is none", port)
	}
	if err := h.ready(ctx, sandbox.OpEndpoint); err != nil {
		return sandbox.Endpoint{}, err
	}
	ports, public, err := h.declared(ctx)
	if err != nil {
		return sandbox.Endpoint{}, err
	}
	if !slices.Contains(ports, port) {
		return refuse("port %d was not declared in Spec.Ports", port)
	}
	var told hosted
	req := h.request(sandbox.OpEndpoint, http.MethodPost, "/host")
	req.Body, req.Out = map[string]any{"port": port, "public": public}, &told
	if _, err := h.p.do(ctx, req); err != nil {
		return sandbox.Endpoint{}, err
	}
	return sandbox.Endpoint{URL: told.URL}, nil
}

type hosted struct {
	URL string `json:"url"`
}

// Validate reports an address that is none.
func (v *hosted) Validate() error {
	u, err := url.Parse(v.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return errors.New("an address that is none") // it may hold a token
	}
	return nil
}

// script is a command line for the service, whose own shell reads it, that has sh run a script with arguments. JSON would
// replace what is no UTF-8, so that such a line goes as base64.
func script(text, name string, args ...string) string {
	line := "exec " + quoted(append([]string{"sh", "-c", text, name}, args...)...)
	if !utf8.ValidString(line) {
		line = `eval "$(printf %s ` + base64.StdEncoding.EncodeToString([]byte(line)) + ` | base64 -d)"`
	}
	return line
}

// quoted joins words so that a shell takes them as they are.
func quoted(words ...string) string {
	var b strings.Builder
	for i, w := range words {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString("'" + strings.ReplaceAll(w, "'", `'\''`) + "'")
	}
	return b.String()
}
