package e2bfake

import (
	"context"
	"crypto/rand"
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// order is the body of a create. Fields that have no effect here are checked for their form only.
type order struct {
	TemplateID      string            `json:"templateID"`
	Timeout         *int32            `json:"timeout"`
	AutoPause       bool              `json:"autoPause"`
	AutoPauseMemory *bool             `json:"autoPauseMemory"`
	AutoResume      *autoResume       `json:"autoResume"`
	Secure          *bool             `json:"secure"`
	Metadata        map[string]string `json:"metadata"`
	EnvVars         map[string]string `json:"envVars"`
	Internet        *bool             `json:"allow_internet_access"`
	Network         *network          `json:"network"`
	VolumeMounts    []volumeMount     `json:"volumeMounts"`
	MCP             map[string]any    `json:"mcp"`
	IAM             *struct {
		Tokens map[string]struct {
			Audience  string `json:"audience"`
			TokenType string `json:"tokenType"`
		} `json:"tokens"`
	} `json:"iam"`
}

type autoResume struct {
	Enabled *bool `json:"enabled"`
}

type network struct {
	AllowOut           []string       `json:"allowOut,omitempty"`
	DenyOut            []string       `json:"denyOut,omitempty"`
	AllowPublicTraffic *bool          `json:"allowPublicTraffic,omitempty"`
	MaskRequestHost    string         `json:"maskRequestHost,omitempty"`
	Rules              map[string]any `json:"rules,omitempty"`
	EgressProxy        map[string]any `json:"egressProxy,omitempty"`
}

type volumeMount struct {
	Name string `json:"name"`
	Path string `json:"path"`
}

// created is the answer to a create, connect or resume.
type created struct {
	TemplateID         string  `json:"templateID"`
	SandboxID          string  `json:"sandboxID"`
	Alias              string  `json:"alias,omitempty"`
	ClientID           string  `json:"clientID"`
	EnvdVersion        string  `json:"envdVersion"`
	EnvdAccessToken    string  `json:"envdAccessToken,omitempty"`
	TrafficAccessToken *string `json:"trafficAccessToken"`
	Domain             *string `json:"domain"`
}

const (
	clientID    = "6532622b"
	envdVersion = "0.6.4"
)

// check reports what a create must not ask for, and settles the timeout.
func (o *order) check(version int, most time.Duration) (window time.Duration, fault string) {
	seconds := int32(15)
	if version == 2 {
		seconds = 300
		secure := true
		o.Secure = &secure
	}
	if o.Timeout != nil {
		seconds = *o.Timeout
	}
	window = time.Duration(seconds) * time.Second
	secured := o.Secure != nil && *o.Secure
	switch {
	case o.TemplateID == "":
		return 0, "validation error: property \"templateID\" is missing"
	case seconds < 0:
		return 0, "validation error: number must be at least 0"
	case o.AutoResume != nil && o.AutoResume.Enabled == nil:
		return 0, "validation error: property \"enabled\" is missing"
	case seconds == 0:
		return 0, "Timeout must be greater than 0"
	case window > most:
		return 0, fmt.Sprintf("Timeout cannot be greater than %d hours", int(math.Round(most.Hours())))
	case o.AutoPauseMemory != nil && !*o.AutoPauseMemory && !o.AutoPause:
		return 0, "autoPauseMemory needs autoPause"
	case o.AutoPauseMemory != nil && !*o.AutoPauseMemory && o.wakes():
		return 0, "a filesystem-only snapshot cannot be resumed by traffic"
	case o.private() && !secured:
		return 0, "allowPublicTraffic can be turned off for secured sandboxes only"
	case o.IAM != nil && len(o.IAM.Tokens) > 5:
		return 0, "too many iam tokens"
	}
	if o.IAM != nil {
		for _, t := range o.IAM.Tokens {
			if t.TokenType != "JWT-SVID" {
				return 0, "unsupported iam token type"
			}
		}
	}
	return window, ""
}

// private reports whether the sandbox's ports need a token.
func (o *order) private() bool {
	return o.Network != nil && o.Network.AllowPublicTraffic != nil && !*o.Network.AllowPublicTraffic
}

// wakes reports whether traffic resumes the sandbox.
func (o *order) wakes() bool {
	return o.AutoResume != nil && o.AutoResume.Enabled != nil && *o.AutoResume.Enabled
}

// template resolves a reference: an id or alias, with a namespace before it and a tag behind, or a snapshot.
func (s *Server) template(ctx context.Context, ref string) (Template, bool) {
	name, _, _ := strings.Cut(ref, ":")
	if _, after, ok := strings.Cut(name, "/"); ok {
		name = after
	}
	for _, t := range s.opts.Templates {
		if name == t.ID || name == t.Alias {
			return t, true
		}
	}
	id := s.snapshotID(ref)
	if id == "" {
		return Template{}, false
	}
	all, err := s.svc.Snapshots(ctx, "")
	if err != nil {
		return Template{}, false
	}
	for _, snap := range all {
		if snap.ID == id {
			r, _ := s.svc.Lookup(snap.Source)
			t := r.Data.(*machine).template
			t.ID, t.Alias = strings.TrimSuffix(s.info(snap).ID, defaultTag), ""
			return t, true
		}
	}
	return Template{}, false
}

// create makes a sandbox and answers when it runs.
func (s *Server) create(w http.ResponseWriter, r *http.Request, version int) {
	if q := s.Quirks(); version == 1 && q.NoV1 || version == 2 && q.NoV2 {
		s.fail(w, http.StatusMethodNotAllowed, "", "method not allowed")
		return
	}
	ctx, cancel := s.work(r)
	defer cancel()
	var o order
	if !s.decode(w, r, &o, false) {
		return
	}
	window, fault := o.check(version, s.svc.Behaviour().PlanLifetime)
	if fault != "" {
		s.fail(w, http.StatusBadRequest, "", "%s", fault)
		return
	}
	t, ok := s.template(ctx, o.TemplateID)
	if !ok {
		s.fail(w, http.StatusNotFound, "", "template '%s' not found", o.TemplateID)
		return
	}
	if len(o.VolumeMounts) > 0 {
		s.fail(w, http.StatusBadRequest, "", "volume '%s' not found", o.VolumeMounts[0].Name)
		return
	}
	rec, err := s.svc.Create(ctx, fake.Order{Image: o.TemplateID, Tags: o.Metadata, Window: window, Data: s.newMachine(o, t)})
	if err == nil && rec.ID != "" {
		err = s.running(ctx, rec.ID)
	}
	if err != nil {
		s.refuse(w, err)
		return
	}
	s.answer(w, http.StatusCreated, s.created(rec))
}

// running waits until a sandbox runs.
func (s *Server) running(ctx context.Context, id string) error {
	for {
		r, ok := s.svc.Lookup(id)
		switch {
		case ok && r.State == sandbox.StateFailed:
			s.svc.Kill(id)
			return refusal(http.StatusInternalServerError, "sandbox_create_failed", "failed to create sandbox")
		case !ok || r.State != sandbox.StateStarting:
			return nil
		}
		b := s.svc.Behaviour()
		next := r.Created.Add(b.StartTime).Sub(s.svc.Now())
		if b.NeverReady || next <= 0 {
			next = 100 * time.Millisecond
		}
		if err := pass(ctx, next); err != nil {
			if s.ctx.Err() == nil {
				s.svc.Kill(id) // it was never told of, nor stored
			}
			return refusal(http.StatusGatewayTimeout, "sandbox_placement_timeout", "timed out while placing the sandbox")
		}
	}
}

func (s *Server) created(r fake.Record) created {
	m := r.Data.(*machine)
	c := created{
		TemplateID: m.template.ID, SandboxID: s.WireID(r.ID), Alias: m.template.Alias, ClientID: clientID,
		EnvdVersion: envdVersion, EnvdAccessToken: m.token,
	}
	if m.trafficToken != "" {
		c.TrafficAccessToken = &m.trafficToken
	}
	if s.opts.Domain != "" {
		c.Domain = &s.opts.Domain
	}
	return c
}

// newMachine is what a sandbox has beside its life.
func (s *Server) newMachine(o order, t Template) *machine {
	m := &machine{order: o, template: t, procs: map[int]*process{}}
	if o.Secure != nil && *o.Secure {
		m.token = rand.Text()
	}
	if o.private() {
		m.trafficToken = rand.Text()
	}
	return m
}
