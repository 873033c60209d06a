package vercelfake

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"time"
)

// claims are what a token of OpenID Connect says.
type claims struct {
	Owner   string `json:"owner_id"`
	Project string `json:"project_id"`
	Expires int64  `json:"exp"`
}

// MintToken returns a token as deployments have it, which is for the first project and good for so long by the service's
// clock. It has the form of a JWT and no signature, and nobody asks for one.
func (s *Server) MintToken(good time.Duration) string {
	part := func(v any) string {
		b, _ := json.Marshal(v) // never fails: strings and numbers
		return base64.RawURLEncoding.EncodeToString(b)
	}
	head := map[string]string{"alg": "none", "typ": "JWT"}
	body := claims{s.opts.Team.ID, s.opts.Projects[0].ID, s.svc.Now().Add(good).Unix()}
	return part(head) + "." + part(body) + ".unsigned"
}

func parseClaims(token string) *claims {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return nil
	}
	b, err := base64.RawURLEncoding.DecodeString(parts[1])
	var cl claims
	if err != nil || json.Unmarshal(b, &cl) != nil || cl.Owner == "" {
		return nil
	}
	return &cl
}

// admit finds out whether the caller may ask, and about which project.
func (c *call) admit(scope scoping) error {
	s := c.s
	s.mu.Lock()
	q, want := s.quirks, s.token
	s.mu.Unlock()
	token, bearer := strings.CutPrefix(c.Header.Get("Authorization"), "Bearer ")
	denied := &problem{status: http.StatusForbidden, code: "forbidden", message: "Not authorized", also: "invalidToken"}
	if !bearer || token == "" {
		denied.message, denied.also = "The request is missing an authentication token", "missingToken"
	}
	if q.Unauthorized {
		denied.status, denied.code = http.StatusUnauthorized, "unauthorized"
	}
	switch {
	case q.Down:
		return &problem{status: http.StatusServiceUnavailable, code: "service_unavailable", message: "The service is unavailable"}
	case !bearer || token == "" || want == "":
		return denied
	case token != want:
		c.claims = parseClaims(token)
		if c.claims == nil || c.claims.Owner != s.opts.Team.ID || s.svc.Now().Unix() >= c.claims.Expires {
			return denied
		}
	}
	if q.Foreign {
		return forbidden("You don't have permission to access this resource")
	}
	query := c.URL.Query()
	team, slug := query.Get("teamId"), query.Get("slug")
	switch {
	case team != "" && team != s.opts.Team.ID, slug != "" && slug != s.opts.Team.Slug,
		team == "" && slug == "" && c.claims == nil: // the caller's own account, which has none of the team's projects
		return forbidden("Not authorized: the team is another")
	}
	return c.scope(scope)
}

// scope finds the project that a request is about.
func (c *call) scope(scope scoping) error {
	ref := ""
	switch scope {
	case byTeam:
		return nil
	case byID:
		ref = c.URL.Query().Get("projectId")
	case byProject:
		ref = c.URL.Query().Get("project")
	case inBody:
		var body struct {
			ProjectID *string `json:"projectId"`
		}
		if err := json.Unmarshal(c.body, &body); err == nil && body.ProjectID != nil {
			ref = *body.ProjectID
		}
	}
	if ref == "" {
		if c.claims == nil {
			return invalid("Missing required property: the project")
		}
		ref = c.claims.Project
	}
	for _, p := range c.s.opts.Projects {
		if p.is(ref) && (c.claims == nil || p.ID == c.claims.Project) {
			c.project = p
			return nil
		}
	}
	return notFound("Project %q was not found", ref)
}
