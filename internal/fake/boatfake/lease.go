package boatfake

import (
	"encoding/json"
	"errors"
	"net/http"
	"regexp"
	"time"
	"unicode/utf8"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/sandbox"
)

const maxName = 120 // characters

var goodSubdomain = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{1,38})[a-z0-9]$`)

// update renames a sandbox and sets its TTL anew, whatever state it is in: 200 does not mean that it lives.
func (s *Server) update(c *call) (int, any, error) {
	var body struct {
		Name      *string  `json:"name"`
		TTL       ttlField `json:"ttlSeconds"`
		Subdomain *string  `json:"subdomain"`
	}
	if err := c.decode(&body); err != nil {
		return 0, nil, err
	}
	q := s.Quirks()
	ttl, notice, err := body.TTL.limit(q, time.Second)
	if err != nil {
		return 0, nil, err
	}
	if body.Name != nil && *body.Name == "" {
		return 0, nil, invalid("name must not be empty")
	}
	if body.Subdomain != nil && !goodSubdomain.MatchString(*body.Subdomain) {
		return 0, nil, invalid("subdomain must be 3 to 40 of a-z, 0-9 and -")
	}
	rec, b, err := s.changeable(c)
	if err != nil {
		return 0, nil, err
	}
	if body.Subdomain != nil {
		if err := s.route(b, *body.Subdomain); err != nil {
			return 0, nil, err
		}
	}
	if body.Name != nil {
		if rec, err = s.svc.Retag(c.Context(), rec.ID, map[string]string{nameTag: cutName(*body.Name)}); err != nil {
			return 0, nil, err
		}
	}
	if body.TTL.set {
		if rec, err = s.setTTL(c, rec, b, ttl, q); err != nil {
			return 0, nil, err
		}
	}
	answer := map[string]any{"ok": true, "type": "sandbox.updated", "sandbox": s.view(rec, b, c.from)}
	return http.StatusOK, noticed(answer, notice), nil
}

// setTTL sets the deadline. What the service does for what is archived or archiving is not known, but that it does not
// start it again.
func (s *Server) setTTL(c *call, rec fake.Record, b *box, ttl time.Duration, q Quirks) (fake.Record, error) {
	if q.PatchDead != 0 && (rec.State == sandbox.StateDormant || rec.State == sandbox.StateEnding) {
		return rec, &problem{status: q.PatchDead, message: "The sandbox is not active"}
	}
	window := ttl
	if q.FromCreation && ttl < never {
		window = max(rec.Created.Add(ttl).Sub(s.svc.Now()), time.Nanosecond)
	}
	got, err := s.svc.Extend(c.Context(), rec.ID, window)
	if e, ok := errors.AsType[*sandbox.APIError](err); ok && e.Code == "ending" {
		if now, ok := s.svc.Lookup(rec.ID); ok && there(now) {
			return now, nil
		}
		return rec, notFound()
	}
	if err == nil {
		s.mu.Lock()
		b.ttl = ttl
		s.mu.Unlock()
	}
	return got, err
}

// cutName cuts what is too long for a name.
func cutName(name string) string {
	if utf8.RuneCountInString(name) <= maxName {
		return name
	}
	return string([]rune(name)[:maxName])
}

// route gives a sandbox another subdomain.
func (s *Server) route(b *box, sub string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range s.boxes {
		if other != b && other.subdomain == sub && other.state != sandbox.StateGone {
			return refusal(http.StatusConflict, "subdomain_taken", "%s is taken", sub) // the code is a guess
		}
	}
	b.subdomain = sub
	return nil
}

// resumeBody is what a resume and a fork are asked for with.
type resumeBody struct {
	FailFast bool                       `json:"failFast"`
	Type     string                     `json:"type"`
	Env      map[string]json.RawMessage `json:"env"`
	TTL      ttlField                   `json:"ttlSeconds"`
}

// started decodes the body of a resume or fork and counts it as a start.
func (s *Server) started(c *call, b *box, other time.Duration) (ttl time.Duration, notice string, err error) {
	var body resumeBody
	if err := c.decode(&body); err != nil {
		return 0, "", err
	}
	q := s.Quirks()
	if _, err := environment(body.Env); err != nil {
		return 0, "", err
	}
	if ttl, notice, err = body.TTL.limit(q, other); err != nil {
		return 0, "", err
	}
	if err := s.mayStart(c.from, b.order.org, q); err != nil {
		return 0, "", err
	}
	if q.OutOfCapacity {
		return 0, "", refusal(http.StatusServiceUnavailable, "out_of_capacity", "No capacity")
	}
	return ttl, notice, nil
}
