package daytonafake

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// signature is what a signed preview URL opens.
type signature struct {
	id    string
	port  int
	until time.Time
}

// previewToken opens the ports of a sandbox's present run.
func (s *Server) previewToken(rec fake.Record) string {
	sum := sha256.Sum256([]byte("preview " + rec.Run))
	return hex.EncodeToString(sum[:16])
}

// port is the one in a path.
func portOf(c *call) (int, error) {
	port, err := strconv.Atoi(c.PathValue("port"))
	if err != nil || port < 1 || port > 65535 {
		return 0, invalid("Invalid port")
	}
	return port, nil
}

func (s *Server) previewURL(c *call) (int, any, error) {
	port, err := portOf(c)
	if err != nil {
		return 0, nil, err
	}
	rec, _, err := s.known(c.PathValue("id"))
	if err != nil {
		return 0, nil, err
	}
	if err := s.svc.Ping(c.Context(), sandbox.OpEndpoint); err != nil {
		return 0, nil, err
	}
	return http.StatusOK, map[string]any{
		"sandboxId": WireID(rec.ID), "token": s.previewToken(rec),
		"url": fmt.Sprintf("%s://%d-%s.%s", scheme(c.Request), port, WireID(rec.ID), s.opts.PreviewDomain),
	}, nil
}

func (s *Server) signedPreviewURL(c *call) (int, any, error) {
	port, err := portOf(c)
	if err != nil {
		return 0, nil, err
	}
	seconds := 60
	if text := c.URL.Query().Get("expiresInSeconds"); text != "" {
		if seconds, err = strconv.Atoi(text); err != nil || seconds < 1 || seconds > 86400 {
			return 0, nil, invalid("expiresInSeconds must be between 1 and 86400")
		}
	}
	rec, _, err := s.known(c.PathValue("id"))
	if err != nil {
		return 0, nil, err
	}
	if err := s.svc.Ping(c.Context(), sandbox.OpEndpoint); err != nil {
		return 0, nil, err
	}
	until := s.svc.Now().Add(time.Duration(seconds) * time.Second)
	s.mu.Lock()
	s.tokens++
	sum := sha256.Sum256(fmt.Appendf(nil, "signed %s %d", rec.Run, s.tokens))
	token := hex.EncodeToString(sum[:12])
	s.signed[token] = signature{WireID(rec.ID), port, until}
	s.mu.Unlock()
	return http.StatusOK, map[string]any{
		"sandboxId": WireID(rec.ID), "port": port, "token": token,
		"url": fmt.Sprintf("%s://%d-%s.%s", scheme(c.Request), port, token, s.opts.PreviewDomain),
	}, nil
}

// previewHost takes a preview's host apart: a port, and an id or a signature's token.
func (s *Server) previewHost(host string) (port int, id string, ok bool) {
	if host, ok = strings.CutSuffix(strings.ToLower(host), "."+strings.ToLower(s.opts.PreviewDomain)); !ok {
		return 0, "", false
	}
	first, id, ok := strings.Cut(host, "-")
	port, err := strconv.Atoi(first)
	return port, id, ok && err == nil
}

// preview passes a request on to what listens on a port.
func (s *Server) preview(w http.ResponseWriter, r *http.Request, port int, id string) {
	// The body is the listener's to read; an in-memory one leaves nothing to wait for.
	c := &call{Request: r, raw: w, out: &answer{header: w.Header().Clone()}, log: s.Note(s.svc.Now(), "preview", r, nil, previewToken)}
	s.mu.Lock()
	signed, ok := s.signed[id]
	s.mu.Unlock()
	if ok && signed.port == port && s.svc.Now().Before(signed.until) {
		id = signed.id
	} else {
		ok = false
	}
	rec, _, err := s.known(id)
	var done func()
	switch {
	case err != nil:
		err = &problem{status: http.StatusUnauthorized, message: "unauthorized"}
	case !ok && !boxOf(rec).isPublic() && !s.mayProxy(r, rec):
		err = &problem{status: http.StatusUnauthorized, message: "authentication failed: no valid preview token"}
	default:
		done, err = s.proxied(r, rec)
	}
	if err == nil && s.opts.Preview == nil {
		done()
		err = &problem{status: http.StatusBadGateway, message: "nothing listens on port " + strconv.Itoa(port)}
	}
	if err != nil {
		_, _ = io.Copy(io.Discard, io.LimitReader(r.Body, maxBody))
		c.fill(s.problem(c, toolbox, err))
		c.send()
		return
	}
	defer done()
	c.log.Head(http.StatusOK, nil) // as far as the service knows
	s.opts.Preview.ServeHTTP(w, r)
}

func (b *box) isPublic() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.public
}
