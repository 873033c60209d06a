package boatfake

import (
	"time"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// A Sandbox is a row as the API puts it. Times are RFC 3339 with milliseconds.
type Sandbox struct {
	ID                    string  `json:"id"`
	Name                  string  `json:"name"`
	State                 string  `json:"state"`
	Error                 *string `json:"error"`
	Health                string  `json:"health"`
	HealthReason          *string `json:"healthReason"`
	DegradedSince         *string `json:"degradedSince"`
	Type                  string  `json:"type"`
	VCPU                  int     `json:"vcpu"`
	MemoryGB              int     `json:"memoryGB"`
	BillingMultiplier     float64 `json:"billingMultiplier"`
	MachineProvider       *string `json:"machineProvider"`
	URL                   *string `json:"url"`
	IP                    *string `json:"ip"`
	SSHEndpoint           *string `json:"sshEndpoint"`
	CreatedAt             *string `json:"createdAt"`
	UpdatedAt             *string `json:"updatedAt"`
	ArchiveAfter          *string `json:"archiveAfter"` // null: no TTL, or archived
	DesktopAvailable      bool    `json:"desktopAvailable"`
	DesktopURL            *string `json:"desktopUrl"` // holds a secret
	Snapshots             bool    `json:"snapshots"`
	SnapshotAvailable     bool    `json:"snapshotAvailable"`
	SnapshotCompletedAt   *string `json:"snapshotCompletedAt"`
	SnapshotVerifiedAt    *string `json:"snapshotVerifiedAt"`
	LastSnapshotAttemptAt *string `json:"lastSnapshotAttemptAt"`
	LastSnapshotStatus    *string `json:"lastSnapshotStatus"`
	Subdomain             *string `json:"subdomain"`
	Team                  *Team   `json:"team"`
	CreatedBy             *string `json:"createdBy"`
	CreatedByID           *string `json:"createdById"`
	Access                string  `json:"access"`
	HoldsCreatorLogins    bool    `json:"holdsCreatorLogins"`
	WipePending           bool    `json:"wipePendingUntilRestart"`
	SetupStatus           *string `json:"setupStatus"`
	SetupError            *string `json:"setupError"`
	Environment           *string `json:"environment"`
	EnvironmentVersion    *int    `json:"environmentVersion"`
}

// DesktopSecret is part of every desktopUrl, and must never turn up in what a client logs.
const DesktopSecret = "desk-2f6b9c41d0"

// snapshotEvery is how often the disk of what runs is saved in the background.
const snapshotEvery = time.Minute

// view puts a record as an answer to an account does.
func (s *Server) view(rec fake.Record, b *box, to account) Sandbox {
	access := s.access(to, b)
	q := s.Quirks()
	s.mu.Lock()
	defer s.mu.Unlock()
	o := b.order
	size := sizes[o.size]
	state := b.words(rec, q)
	v := Sandbox{
		ID: WireID(rec.ID), Name: rec.Tags[nameTag], State: state, Health: "ok", Type: o.size, VCPU: size.vcpu, MemoryGB: size.memory,
		BillingMultiplier: size.multiplier, Snapshots: o.snapshots, CreatedBy: &o.owner.login, CreatedByID: &o.owner.id, Access: access,
		HoldsCreatorLogins: !o.noEnv, Environment: o.environment,
	}
	if v.Name == "" {
		v.Name = rec.Name // made by a test, on the state machine
	}
	if rec.Detail == "frozen" {
		since := stamp(b.updated)
		v.Health, v.HealthReason, v.DegradedSince = "degraded", pointer("unresponsive"), &since
	}
	if state == "error" {
		v.Error = pointer(rec.Detail)
	}
	if !rec.Created.IsZero() {
		v.CreatedAt, v.UpdatedAt = pointer(stamp(rec.Created)), pointer(stamp(b.updated))
	}
	if !rec.Deadline.IsZero() && rec.Deadline.Sub(rec.AsOf) < never/2 {
		v.ArchiveAfter = pointer(stamp(rec.Deadline))
	}
	if rec.State == sandbox.StateRunning {
		v.MachineProvider, v.URL = pointer("hetzner"), pointer("https://"+b.subdomain+"."+s.opts.Domain)
		v.IP, v.SSHEndpoint = pointer("192.0.2.7"), pointer("192.0.2.7:2222")
		v.DesktopAvailable, v.DesktopURL = true, pointer("https://"+b.subdomain+"-6080."+s.opts.Domain+"/?token="+DesktopSecret)
	}
	if rec.State != sandbox.StateStarting && rec.State != sandbox.StateFailed {
		v.Subdomain = &b.subdomain
	}
	if at := b.saved(rec.AsOf); !at.IsZero() {
		text := stamp(at)
		v.SnapshotAvailable, v.LastSnapshotStatus = true, pointer("completed")
		v.SnapshotCompletedAt, v.SnapshotVerifiedAt, v.LastSnapshotAttemptAt = &text, &text, &text
	}
	for _, t := range s.opts.Teams {
		if t.ID == o.org {
			v.Team = &t
		}
	}
	if o.environment != nil {
		v.EnvironmentVersion = new(1)
	}
	return v
}

// saved returns when the disk was last saved; zero: it never was. The lock is held.
func (b *box) saved(now time.Time) time.Time {
	switch {
	case !b.order.snapshots || b.ready.IsZero():
		return time.Time{}
	case b.state == sandbox.StateDormant:
		return b.updated
	}
	n := now.Sub(b.ready) / snapshotEvery
	if n <= 0 {
		return time.Time{}
	}
	return b.ready.Add(n * snapshotEvery)
}

func pointer(s string) *string { return &s }

// stamp prints a time as JavaScript does.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }
