package vercelfake

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// A Sandbox is a named sandbox as the wire has it. Instants are ms since 1970 and durations ms.
type Sandbox struct {
	Name               string            `json:"name"`
	Persistent         bool              `json:"persistent"`
	Region             string            `json:"region,omitempty"`
	FailoverRegions    []string          `json:"failoverRegions,omitempty"`
	NetworkID          string            `json:"networkId,omitempty"`
	VCPUs              int               `json:"vcpus,omitempty"`
	Memory             int               `json:"memory,omitempty"` // MB
	Runtime            string            `json:"runtime,omitempty"`
	Image              string            `json:"image,omitempty"`
	Timeout            int64             `json:"timeout,omitempty"` // of the next session
	NetworkPolicy      *Policy           `json:"networkPolicy,omitempty"`
	CreatedAt          int64             `json:"createdAt"`
	UpdatedAt          int64             `json:"updatedAt"`
	StatusUpdatedAt    int64             `json:"statusUpdatedAt"`
	ExpiresAt          int64             `json:"expiresAt,omitempty"` // while it runs
	CurrentSessionID   string            `json:"currentSessionId"`
	CurrentSnapshotID  string            `json:"currentSnapshotId,omitempty"`
	Status             string            `json:"status"`
	TotalDurationMS    int64             `json:"totalDurationMs,omitempty"`
	CWD                string            `json:"cwd,omitempty"`
	Tags               map[string]string `json:"tags,omitempty"`
	SnapshotExpiration *int64            `json:"snapshotExpiration,omitempty"`
	KeepLastSnapshots  *Keep             `json:"keepLastSnapshots,omitempty"`
}

// A Session is one run of a sandbox as the wire has it.
type Session struct {
	ID                string  `json:"id"`
	Memory            int     `json:"memory"`
	VCPUs             int     `json:"vcpus"`
	Region            string  `json:"region"`
	Runtime           string  `json:"runtime,omitempty"`
	Timeout           *int64  `json:"timeout,omitempty"` // since the start; missing where no deadline is told
	Status            string  `json:"status"`
	RequestedAt       int64   `json:"requestedAt"`
	StartedAt         int64   `json:"startedAt,omitempty"`
	RequestedStopAt   int64   `json:"requestedStopAt,omitempty"`
	StoppedAt         int64   `json:"stoppedAt,omitempty"`
	AbortedAt         int64   `json:"abortedAt,omitempty"`
	Duration          int64   `json:"duration,omitempty"`
	SourceSnapshotID  string  `json:"sourceSnapshotId,omitempty"`
	SnapshottedAt     int64   `json:"snapshottedAt,omitempty"`
	CreatedAt         int64   `json:"createdAt"`
	UpdatedAt         int64   `json:"updatedAt"`
	CWD               string  `json:"cwd"`
	NetworkPolicy     *Policy `json:"networkPolicy,omitempty"`
	ProjectID         string  `json:"projectId"`
	SourceSandboxName string  `json:"sourceSandboxName"`
}

// A Policy says whom a sandbox reaches: "allow-all", "deny-all" or "custom".
type Policy struct {
	Mode string `json:"mode"`
}

// A Route leads to one port.
type Route struct {
	URL       string `json:"url"`
	Subdomain string `json:"subdomain"`
	Port      int    `json:"port"`
}

// workDir is where commands and files are at home.
const workDir = "/vercel/sandbox"

// full is a sandbox with its session.
type full struct {
	Sandbox Sandbox `json:"sandbox"`
	Session Session `json:"session"`
	Routes  []Route `json:"routes"`
	Resumed *bool   `json:"resumed,omitempty"`
}

// view puts a record, which may be old, as the wire does.
func (s *Server) view(rec fake.Record) full {
	b, ok := rec.Data.(*box)
	if !ok { // a create that made nothing
		b = &box{project: s.opts.Projects[0], name: rec.Name, config: defaults(3)}
		if !rec.Deadline.IsZero() {
			b.timeout = rec.Deadline.Sub(rec.Created)
		}
	}
	s.mu.Lock()
	known := b.session(rec.Run)
	s.mu.Unlock()
	if ok && known == nil {
		if now, found := s.svc.Lookup(rec.ID); found {
			s.catchUp(now)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	ses := b.session(rec.Run)
	if ses == nil {
		ses = &session{
			box: b, id: newID("sbx_"), run: rec.Run, requested: rec.Created, started: rec.Created, updated: rec.Created,
			timeout: b.timeout, policy: b.policy,
		}
	}
	v := full{Sandbox: s.sandboxView(b, ses, rec), Session: s.sessionView(ses, rec), Routes: s.routesOf(b)}
	if ok && rec.ID == "" { // an answer that lacks what it should tell
		v.Sandbox.Name, v.Sandbox.CurrentSessionID, v.Session.ID, v.Session.SourceSandboxName = "", "", "", ""
	}
	return v
}

func (s *Server) sandboxView(b *box, ses *session, rec fake.Record) Sandbox {
	v := Sandbox{
		Name: b.name, Persistent: b.persistent, Region: b.region, FailoverRegions: slices.Clone(b.failover), NetworkID: b.networkID,
		VCPUs: b.vcpus, Memory: b.vcpus * memoryPerCPU, Runtime: b.runtime, Image: pinned(b.image),
		Timeout: b.timeout.Milliseconds(), NetworkPolicy: &Policy{b.policy},
		CreatedAt: ms(rec.Created), UpdatedAt: msOr(b.updated, rec.Created),
		StatusUpdatedAt: msOr(b.turned, rec.Created), CurrentSessionID: ses.id, CurrentSnapshotID: b.snapshot,
		Status: ses.statusBy(rec), CWD: workDir, Tags: maps.Clone(rec.Tags), SnapshotExpiration: b.expiration,
		KeepLastSnapshots: b.keep,
	}
	if v.Status == stRunning && !rec.Deadline.IsZero() {
		v.ExpiresAt = ms(rec.Deadline)
	}
	for _, o := range b.sessions {
		if !o.ended.IsZero() && !o.started.IsZero() {
			v.TotalDurationMS += o.ended.Sub(o.started).Milliseconds()
		}
	}
	if !s.quirks.WideStatus {
		v.Status = narrow(v.Status)
	}
	return v
}

// narrow is a session's status as a record tells it. That of a pending one is a guess: the record has no word for it.
func narrow(status string) string {
	switch status {
	case stPending:
		return stRunning
	case stSnapshotting:
		return stStopping
	case stFailed, stAborted:
		return stStopped
	}
	return status
}

// sessionView puts a session by a record of its sandbox, which may be of another run or old.
func (s *Server) sessionView(ses *session, rec fake.Record) Session {
	b := ses.box
	v := Session{
		ID: ses.id, Memory: b.vcpus * memoryPerCPU, VCPUs: b.vcpus, Region: b.region, Runtime: b.runtime, Status: ses.statusBy(rec),
		RequestedAt: ms(ses.requested), SourceSnapshotID: ses.source, CreatedAt: ms(ses.requested), UpdatedAt: ms(ses.updated),
		CWD: workDir, NetworkPolicy: &Policy{ses.policy}, ProjectID: b.project.ID, SourceSandboxName: b.name,
	}
	timeout := ses.timeout.Milliseconds()
	v.Timeout = &timeout
	if !ses.started.IsZero() && v.Status != stPending {
		v.StartedAt = ms(ses.started)
	}
	if !ses.stopRequested.IsZero() && v.Status != stRunning && v.Status != stPending {
		v.RequestedStopAt = ms(ses.stopRequested)
	}
	if v.Status == stRunning && rec.Run == ses.run { // by the record: it may be old, or tell no deadline
		v.Timeout = nil
		if !rec.Deadline.IsZero() {
			left := ms(rec.Deadline) - max(v.StartedAt, v.CreatedAt)
			v.Timeout = &left
		}
	}
	if terminal(v.Status) && !ses.ended.IsZero() {
		if v.Status == stAborted {
			v.AbortedAt = ms(ses.ended)
		} else {
			v.StoppedAt = ms(ses.ended)
		}
		if !ses.started.IsZero() {
			v.Duration = ses.ended.Sub(ses.started).Milliseconds()
		}
	}
	if !ses.snapshotted.IsZero() {
		v.SnapshottedAt = ms(ses.snapshotted)
	}
	return v
}

func (s *Server) routesOf(b *box) []Route {
	routes := []Route{}
	for _, p := range b.ports {
		if b.subs == nil {
			b.subs = map[int]string{}
		}
		if b.subs[p] == "" {
			b.subs[p] = strings.ToLower(newID("sb-"))
		}
		routes = append(routes, Route{"https://" + b.subs[p] + "." + s.opts.Domain, b.subs[p], p})
	}
	return routes
}

// pinned returns an image with a digest in place of its tag.
func pinned(image string) string {
	if image == "" || strings.Contains(image, "@") {
		return image
	}
	name, _, _ := strings.Cut(image, ":")
	sum := sha256.Sum256([]byte(image))
	return name + "@sha256:" + hex.EncodeToString(sum[:])
}

func msOr(t, other time.Time) int64 {
	if t.IsZero() {
		t = other
	}
	return ms(t)
}

// find returns the record that calls under a name see. It meets the faults of a look.
func (s *Server) find(c *call, get func(id string) (fake.Record, error)) (fake.Record, *box, error) {
	name := c.PathValue("name")
	s.mu.Lock()
	b := s.names[c.project.ID+"/"+name]
	s.mu.Unlock()
	id := ""
	if b != nil {
		id = b.id
	}
	rec, err := get(id)
	if err != nil {
		return fake.Record{}, nil, err
	}
	if b == nil || s.hidden(rec) {
		return fake.Record{}, nil, noSandbox(name)
	}
	return rec, b, nil
}

// truly looks up a record without faults and lags.
func (s *Server) truly(id string) (fake.Record, error) {
	rec, ok := s.svc.Lookup(id)
	if !ok || s.svc.Behaviour().WrongScope {
		return fake.Record{}, &sandbox.APIError{Status: 404, Code: "not_found", Kind: sandbox.ErrNotFound}
	}
	s.catchUp(rec)
	return rec, nil
}
