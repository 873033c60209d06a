package daytonafake

import (
	"net/http"
	"strconv"
	"time"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// A Sandbox is a record as the control plane puts it. Times are RFC 3339 with milliseconds, sizes are cores and GiB,
// intervals minutes.
type Sandbox struct {
	ID                  string              `json:"id"`
	OrganizationID      string              `json:"organizationId"`
	Name                string              `json:"name"`
	Target              string              `json:"target"`
	RunnerID            string              `json:"runnerId"`
	SandboxClass        string              `json:"sandboxClass"`
	State               string              `json:"state"`
	DesiredState        string              `json:"desiredState"`
	Snapshot            string              `json:"snapshot,omitempty"`
	User                string              `json:"user"`
	Env                 map[string]string   `json:"env,omitzero"` // missing in lists
	ErrorReason         string              `json:"errorReason,omitempty"`
	Recoverable         bool                `json:"recoverable"`
	Public              bool                `json:"public"`
	NetworkBlockAll     bool                `json:"networkBlockAll"`
	NetworkAllowList    string              `json:"networkAllowList,omitempty"`
	DomainAllowList     string              `json:"domainAllowList,omitempty"`
	CPU                 int                 `json:"cpu"`
	GPU                 int                 `json:"gpu"`
	Memory              int                 `json:"memory"`
	Disk                int                 `json:"disk"`
	Labels              map[string]string   `json:"labels"`
	BackupState         string              `json:"backupState"`
	AutoStopInterval    int                 `json:"autoStopInterval"`
	AutoPauseInterval   int                 `json:"autoPauseInterval"`
	AutoArchiveInterval int                 `json:"autoArchiveInterval"`
	AutoDeleteInterval  int                 `json:"autoDeleteInterval"`
	AutoDestroyAt       string              `json:"autoDestroyAt,omitempty"`
	CreatedAt           string              `json:"createdAt,omitempty"`
	UpdatedAt           string              `json:"updatedAt,omitempty"`
	LastActivityAt      string              `json:"lastActivityAt,omitempty"`
	DaemonVersion       string              `json:"daemonVersion"`
	BuildInfo           *buildRecord        `json:"buildInfo,omitempty"` // missing in lists
	Volumes             []map[string]string `json:"volumes,omitempty"`   // missing in lists
	LinkedSandboxID     string              `json:"linkedSandboxId,omitempty"`
	ToolboxProxyURL     string              `json:"toolboxProxyUrl"`

	created, activity time.Time // for sorting
}

// buildRecord is a build as answers describe it.
type buildRecord struct {
	buildInfo
	CreatedAt   string `json:"createdAt"`
	UpdatedAt   string `json:"updatedAt"`
	SnapshotRef string `json:"snapshotRef"`
}

const daemonVersion = "0.218.0"

// never stands for a TTL that was switched off: the state machine can move deadlines, and not take them away.
const never = 100 * 365 * 24 * time.Hour

// minutes is a number from the wire as a duration. What goes beyond never is never.
func minutes(n int) time.Duration { return time.Duration(min(n, int(never/time.Minute))) * time.Minute }

// dto puts a record as an answer does, to a request or to nobody.
func (s *Server) dto(rec fake.Record, b *box, r *http.Request) Sandbox {
	now := s.svc.Now()
	tick := s.tick
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fold(now, tick)
	o := b.order
	v := Sandbox{
		ID: WireID(rec.ID), OrganizationID: s.opts.Organization, Name: b.nameIn(rec.State), Target: o.Target, RunnerID: "runner-1",
		SandboxClass: "container", Snapshot: o.Snapshot, User: o.User, Env: o.Env, Public: b.public,
		NetworkBlockAll: o.NetworkBlockAll, NetworkAllowList: o.NetworkAllowList, DomainAllowList: o.DomainAllowList,
		CPU: o.CPU, GPU: o.GPU, Memory: o.Memory, Disk: o.Disk, Labels: rec.Tags, BackupState: "None",
		AutoStopInterval: b.minutes["autoStopInterval"], AutoPauseInterval: b.minutes["autoPauseInterval"],
		AutoArchiveInterval: b.minutes["autoArchiveInterval"], AutoDeleteInterval: b.minutes["autoDeleteInterval"],
		DaemonVersion: daemonVersion, Volumes: o.Volumes, LinkedSandboxID: o.LinkedSandbox,
		ToolboxProxyURL: s.proxyURL(r), created: rec.Created, activity: later(later(b.activity, b.seen(now)), rec.Created),
	}
	if v.Name == "" { // of an answer to a create that nobody knows
		v.Name = rec.Name
	}
	if v.Labels == nil {
		v.Labels = map[string]string{}
	}
	if o.built() {
		v.BuildInfo = &buildRecord{*o.BuildInfo, stamp(rec.Created), stamp(rec.Created), "build-" + WireID(rec.ID)}
	}
	if o.vm {
		v.SandboxClass = "linux-vm"
	}
	v.State, v.DesiredState = b.words(rec, s.quirk().BuildQueue)
	if v.State == "error" || v.State == "build_failed" {
		v.ErrorReason = rec.Detail
	}
	if !rec.Deadline.IsZero() && rec.Deadline.Sub(rec.AsOf) < never/2 {
		v.AutoDestroyAt = stamp(rec.Deadline)
	}
	if !rec.Created.IsZero() {
		v.CreatedAt, v.UpdatedAt = stamp(rec.Created), stamp(later(b.updated, rec.Created))
		v.LastActivityAt = stamp(v.activity)
	}
	return v
}

// words are the state and the state it is to reach. The lock is held.
func (b *box) words(rec fake.Record, queue time.Duration) (state, desired string) {
	if !b.failing.IsZero() {
		return "destroying", "destroyed"
	}
	switch rec.State {
	case sandbox.StateStarting:
		switch {
		case b.order.built() && rec.AsOf.Before(rec.Created.Add(queue)):
			return "pending_build", "started"
		case b.order.built():
			return "building_snapshot", "started"
		}
		return "creating", "started"
	case sandbox.StateRunning:
		return "started", "started"
	case sandbox.StateDormant:
		switch b.word {
		case "":
			return "stopped", "stopped"
		case "stopping":
			return "stopping", "stopped"
		}
		return b.word, b.word
	case sandbox.StateFailed:
		state, desired = "error", "started"
		if b.order.built() && rec.Detail == "did not start" {
			state = "build_failed"
		}
		if !b.hidden.IsZero() {
			desired = "destroyed"
		}
		return state, desired
	case sandbox.StateEnding:
		return "destroying", "destroyed"
	case sandbox.StateGone:
		return "destroyed", "destroyed"
	}
	return "unknown", "started"
}

// proxyURL is the base of toolbox URLs, absolute as seen by who asks.
func (s *Server) proxyURL(r *http.Request) string {
	switch {
	case s.opts.ProxyURL != "":
		return s.opts.ProxyURL
	case r == nil:
		return "/toolbox"
	}
	return scheme(r) + "://" + r.Host + "/toolbox"
}

func scheme(r *http.Request) string {
	if r.TLS != nil {
		return "https"
	}
	return "http"
}

func millis(t time.Time) string { return strconv.FormatInt(t.UnixMilli(), 10) }
