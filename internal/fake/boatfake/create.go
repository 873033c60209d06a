package boatfake

import (
	"bytes"
	"encoding/json"
	"maps"
	"math"
	"net/http"
	"regexp"
	"slices"
	"time"

	"github.com/sandglass-dev/sandglass/internal/fake"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// order is what a create, or a fork, has asked for, defaults filled in. It does not change.
type order struct {
	size        string
	ttl         time.Duration
	env         map[string]string
	environment *string
	noEnv       bool
	snapshots   bool
	from        string
	owner       account
	org         string // a team's id, or "" for the owner's own wallet
	entry       *entry // of its key; nil: it has none
}

const (
	defaultSize = "default"
	defaultTTL  = time.Hour
	maxTTL      = 2592000 // seconds
	trialTTL    = 2 * time.Hour

	// never stands for a TTL that was switched off: the state machine can move deadlines, and not take them away.
	never = 100 * 365 * 24 * time.Hour
)

// sizes are the types of machines: cores, GB and what they cost.
var sizes = map[string]struct {
	vcpu, memory, disk int
	multiplier         float64
	secondsPerDollar   int
}{
	"small":     {2, 4, 12, 0.5, 200_000},
	defaultSize: {4, 8, 50, 1, 100_000},
	"large":     {8, 16, 125, 2, 50_000},
}

// ttlField is a TTL in a body, which may be absent, null or a number of seconds.
type ttlField struct {
	set bool
	d   time.Duration
}

// UnmarshalJSON is called for null too.
func (t *ttlField) UnmarshalJSON(b []byte) error {
	t.set, t.d = true, never
	if s := string(b); s == "null" || s == `"infinite"` {
		return nil
	}
	var n float64
	if err := json.Unmarshal(b, &n); err != nil || n != math.Trunc(n) || n < 1 || n > maxTTL {
		t.d = 0 // refused by whoever has decoded it
		return nil
	}
	t.d = time.Duration(n) * time.Second
	return nil
}

// limit checks a TTL and cuts it as the account's terms say; notice is what the answer says of that.
func (t ttlField) limit(q Quirks, other time.Duration) (d time.Duration, notice string, err error) {
	d = other
	if t.set {
		d = t.d
	}
	switch {
	case d <= 0:
		return 0, "", invalid("ttlSeconds must be null or an integer between 1 and %d", maxTTL)
	case q.Trial && d > trialTTL:
		return 0, "", refusal(http.StatusBadRequest, "trial_auto_stop_required", "Trial sandboxes stop after 2 hours at the latest")
	case q.GiftTTL > 0 && d > q.GiftTTL:
		return q.GiftTTL, "Gifted time: this sandbox stops earlier than was asked for", nil
	}
	return d, "", nil
}

// seconds is a TTL as answers tell it.
func seconds(d time.Duration) any {
	if d >= never {
		return nil
	}
	return int(d / time.Second)
}

type createBody struct {
	Type        string                     `json:"type"`
	TTL         ttlField                   `json:"ttlSeconds"`
	Env         map[string]json.RawMessage `json:"env"`
	Environment *string                    `json:"environment"`
	NoEnv       bool                       `json:"noEnv"`
	Snapshots   *bool                      `json:"snapshots"`
	FailFast    bool                       `json:"failFast"`
	SetupScript string                     `json:"setupScript"`
	Org         string                     `json:"org"`
	TeamID      string                     `json:"teamId"`
	From        string                     `json:"from"`
}

var (
	envName  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)
	reserved = []string{
		"ASCII_TOKEN", "ASCII_API_URL", "AGENT_ID", "PRODUCT_MODE", "ENVIRONMENT_ID", "BOAT_ID", "SERVICE_PREVIEW_TOKEN",
		"BOAT_CLI_TOKEN",
	}
)

func environment(body map[string]json.RawMessage) (map[string]string, error) {
	env, size := map[string]string{}, 0
	for k, raw := range body {
		var v string
		if json.Unmarshal(raw, &v) != nil || !envName.MatchString(k) || slices.Contains(reserved, k) {
			return nil, refusal(http.StatusBadRequest, "invalid_env", "env: %s cannot be set", k)
		}
		env[k] = v
		size += len(k) + len(v)
	}
	if len(env) > 100 || size > 64<<10 {
		return nil, refusal(http.StatusBadRequest, "invalid_env", "env is too large")
	}
	return env, nil
}

// unknownSnapshot has a code that nobody has told.
func unknownSnapshot(name string) *problem {
	return refusal(http.StatusNotFound, "named_snapshot_not_found", "There is no named snapshot %s", name)
}

// order makes an order of a create's body.
func (s *Server) order(c *call, body createBody, q Quirks) (o *order, notice string, err error) {
	o = &order{
		size: body.Type, environment: body.Environment, noEnv: body.NoEnv, snapshots: body.Snapshots == nil || *body.Snapshots,
		from: body.From, owner: c.from,
	}
	if o.size == "" {
		o.size = defaultSize
	}
	if _, ok := sizes[o.size]; !ok {
		return nil, "", invalid("type must be small, default or large")
	}
	if q.Trial && o.size == "large" {
		return nil, "", refusal(http.StatusForbidden, "trial_machine_class_not_allowed", "Trial accounts have no large machines")
	}
	if o.ttl, notice, err = body.TTL.limit(q, defaultTTL); err != nil {
		return nil, "", err
	}
	if o.env, err = environment(body.Env); err != nil {
		return nil, "", err
	}
	if body.SetupScript != "" {
		return nil, "", refusal(http.StatusBadRequest, "invalid_setup_script", "This server runs no setup scripts")
	}
	base := "base"
	switch {
	case o.noEnv:
		o.environment = nil
	case o.environment == nil:
		o.environment = &base
	case *o.environment != base && !slices.Contains(s.opts.Environments, *o.environment):
		return nil, "", refusal(http.StatusBadRequest, "unknown_environment", "There is no environment %s", *o.environment)
	}
	if o.from != "" && !s.hasNamed(o.from) {
		return nil, "", unknownSnapshot(o.from)
	}
	o.org, err = s.wallet(c, body.Org, body.TeamID)
	return o, notice, err
}

func (s *Server) create(c *call) (int, any, error) {
	var body createBody
	if err := c.decode(&body); err != nil {
		return 0, nil, err
	}
	q := s.Quirks()
	o, notice, err := s.order(c, body, q)
	if err != nil {
		return 0, nil, err
	}
	e, old, err := s.claim(c)
	if err != nil {
		return 0, nil, err
	}
	if old {
		return s.again(e, notice)
	}
	o.entry = e
	rec, err := s.make(c, o, body.FailFast, q)
	s.release(e, o, err)
	if err != nil {
		return 0, nil, err
	}
	b := s.box(rec)
	return http.StatusAccepted, s.created(s.view(rec, b, c.from), "provisioning", b.order.ttl, notice), nil
}

// make makes a sandbox, if the account may have one and there is a machine.
func (s *Server) make(c *call, o *order, failFast bool, q Quirks) (fake.Record, error) {
	if err := s.mayStart(c.from, o.org, q); err != nil {
		return fake.Record{}, err
	}
	if q.OutOfCapacity {
		return fake.Record{}, refusal(http.StatusServiceUnavailable, "out_of_capacity", "No capacity")
	}
	if q.NoMachine && failFast {
		return fake.Record{}, refusal(http.StatusServiceUnavailable, "no_ready_machine", "No machine is ready")
	}
	name := s.serverName()
	rec, err := s.svc.Create(c.Context(), fake.Order{
		Image: o.from, Tags: map[string]string{nameTag: name}, Window: o.ttl, Data: o,
	})
	if err != nil {
		return fake.Record{}, err
	}
	if q.NoMachine && s.svc.Fail(rec.ID, "no machine") {
		s.cancelLater(s.box(rec))
	}
	return rec, nil
}

// serverName is what the service calls what has no name yet.
func (s *Server) serverName() string { return "Sandbox " + s.svc.Now().Format("2006-01-02 15:04") }

// cancelLater has it turn out, once a start would have been over, that there is no machine.
func (s *Server) cancelLater(b *box) {
	takes, now := s.svc.Behaviour().StartTime, s.svc.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	b.cancelAt = now.Add(takes)
	if !s.closed {
		s.timers = append(s.timers, time.AfterFunc(takes, s.Settle))
	}
}

func (s *Server) created(v Sandbox, status string, ttl time.Duration, notice string) any {
	body := map[string]any{"ok": true, "type": "sandbox.created", "status": status, "ttlSeconds": seconds(ttl), "sandbox": v}
	return noticed(body, notice)
}

func noticed(body map[string]any, notice string) map[string]any {
	if notice != "" {
		body["giftLimitNotice"] = notice
	}
	return body
}

// active are the states that count against the plan.
var active = []string{"provisioned", "cloning", "ready", "idle", "running"}

// mayStart counts a start, which it is even where it is refused, and refuses what is beyond the plan.
func (s *Server) mayStart(a account, org string, q Quirks) error {
	if q.Unpaid {
		return &problem{status: http.StatusPaymentRequired, message: "A plan is required"}
	}
	running := s.countActive(a, org)
	now := s.svc.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	starts := append(s.starts[a.id], now)
	s.starts[a.id] = starts
	for _, w := range windows(q.Plan) {
		if n := recent(starts, now, w.length); w.limit > 0 && n > w.limit {
			p := refusal(http.StatusTooManyRequests, "rate_limited", "Too many starts in a %s", w.name)
			return p.with("window", w.name).with("limit", w.limit).with("starts", n)
		}
	}
	if q.Plan.MaxActive > 0 && running >= q.Plan.MaxActive {
		return refusal(http.StatusTooManyRequests, "limit_reached", "%d sandboxes at most", q.Plan.MaxActive)
	}
	return nil
}

type startWindow struct {
	name   string
	length time.Duration
	limit  int
}

func windows(p Plan) []startWindow {
	return []startWindow{{"minute", time.Minute, p.PerMinute}, {"hour", time.Hour, p.PerHour}, {"day", 24 * time.Hour, p.PerDay}}
}

// recent counts the times that are less than d before now.
func recent(times []time.Time, now time.Time, d time.Duration) int {
	n := 0
	for _, t := range times {
		if now.Sub(t) < d {
			n++
		}
	}
	return n
}

// countActive counts what runs in a wallet.
func (s *Server) countActive(a account, org string) int {
	n := 0
	for _, rec := range s.svc.All() {
		b := s.box(rec)
		if there(rec) && b.order.org == org && (org != "" || b.order.owner == a) && slices.Contains(active, s.view(rec, b, a).State) {
			n++
		}
	}
	return n
}

// entry is an idempotency key. The server's mutex guards it.
type entry struct {
	body    []byte
	at      time.Time
	busy    bool      // its create is under way
	machine string    // what it made, by the state machine's id
	freeAt  time.Time // of a create that made nothing
}

const (
	maxKey  = 255
	keyLife = 24 * time.Hour
)

// claim takes the idempotency key of a create. old says that there is a sandbox under it; nil: the create has no key.
func (s *Server) claim(c *call) (e *entry, old bool, err error) {
	key := c.Header.Get("Idempotency-Key")
	switch {
	case key == "":
		return nil, false, nil
	case len(key) > maxKey:
		return nil, false, invalid("Idempotency-Key is longer than %d characters", maxKey)
	}
	key = c.from.id + " " + key
	now := s.svc.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	e = s.entries[key]
	if e != nil && now.Sub(e.at) < keyLife {
		machine := s.boxes[e.machine]
		switch {
		case !bytes.Equal(e.body, c.body):
			return nil, false, keyReused()
		case e.busy || e.machine == "" && now.Before(e.freeAt):
			p := refusal(http.StatusConflict, "idempotency_in_progress", "A request with this key is in progress")
			return nil, false, p.with("retryable", true)
		case machine == nil:
		case machine.state != sandbox.StateGone || s.quirks.KeyAfterDelete == KeyRemembers:
			return e, true, nil
		case s.quirks.KeyAfterDelete == KeyIsRejected:
			return nil, false, keyReused()
		}
	}
	e = &entry{body: c.body, at: now, busy: true}
	s.entries[key] = e
	return e, false, nil
}

func keyReused() *problem {
	return refusal(http.StatusConflict, "idempotency_key_reused", "This key was used for another request")
}

// release ends a key's create. One that may still come to something keeps its key for a time.
func (s *Server) release(e *entry, o *order, err error) {
	if e == nil {
		return
	}
	var machine string
	for _, rec := range s.svc.All() {
		if rec.Data == any(o) {
			machine = rec.ID
			break
		}
	}
	held := s.Quirks().keyHeld()
	if p := translate(err); err == nil || p != nil && p.status < http.StatusInternalServerError {
		held = 0
	}
	now := s.svc.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	e.busy, e.freeAt = false, now.Add(held)
	if e.machine == "" {
		e.machine = machine
	}
}

// again answers a create whose key has made a sandbox.
func (s *Server) again(e *entry, notice string) (int, any, error) {
	s.mu.Lock()
	machine := e.machine
	s.mu.Unlock()
	rec, _ := s.svc.Lookup(machine)
	b := s.box(rec)
	v := s.view(rec, b, b.order.owner)
	status := "provisioning"
	if rec.State == sandbox.StateRunning {
		status = "ready"
	}
	return http.StatusAccepted, s.created(v, status, b.order.ttl, notice), nil
}

// childOf is the order of a fork.
func (o *order) childOf(a account, ttl time.Duration) *order {
	child := *o
	child.env, child.owner, child.ttl, child.entry = maps.Clone(o.env), a, ttl, nil
	return &child
}
