package daytonafake

import (
	"encoding/json"
	"regexp"
	"strings"
)

// order is the body of a create. Fields that are not listed are accepted and ignored.
type order struct {
	Name                string              `json:"name"`
	Snapshot            string              `json:"snapshot"`
	User                string              `json:"user"`
	Env                 map[string]string   `json:"env"`
	Labels              map[string]string   `json:"labels"`
	Public              bool                `json:"public"`
	Target              string              `json:"target"`
	CPU                 int                 `json:"cpu"`
	GPU                 int                 `json:"gpu"`
	Memory              int                 `json:"memory"`
	Disk                int                 `json:"disk"`
	AutoStopInterval    *int                `json:"autoStopInterval"`
	AutoPauseInterval   *int                `json:"autoPauseInterval"`
	AutoArchiveInterval *int                `json:"autoArchiveInterval"`
	AutoDeleteInterval  *int                `json:"autoDeleteInterval"`
	TTLMinutes          int                 `json:"ttlMinutes"`
	BuildInfo           *buildInfo          `json:"buildInfo"`
	NetworkBlockAll     bool                `json:"networkBlockAll"`
	NetworkAllowList    string              `json:"networkAllowList"`
	DomainAllowList     string              `json:"domainAllowList"`
	Volumes             []map[string]string `json:"volumes"`
	LinkedSandbox       string              `json:"linkedSandbox"`

	vm bool
}

type buildInfo struct {
	DockerfileContent string   `json:"dockerfileContent"`
	ContextHashes     []string `json:"contextHashes,omitempty"`
}

const (
	defaultSnapshot = "daytona-small"
	defaultUser     = "daytona"
	defaultStop     = 15    // minutes
	defaultArchive  = 10080 // minutes
	defaultPause    = 60    // minutes, of what can be paused
)

func (o order) built() bool { return o.BuildInfo != nil }

// image is what the sandbox is made of.
func (o order) image() string {
	if !o.built() {
		return o.Snapshot
	}
	for line := range strings.Lines(o.BuildInfo.DockerfileContent) {
		if from, image, _ := strings.Cut(strings.TrimSpace(line), " "); strings.EqualFold(from, "from") {
			return strings.TrimSpace(image)
		}
	}
	return ""
}

func (o order) minutes() map[string]int {
	return map[string]int{
		"autoStopInterval": *o.AutoStopInterval, "autoPauseInterval": *o.AutoPauseInterval,
		"autoArchiveInterval": *o.AutoArchiveInterval, "autoDeleteInterval": *o.AutoDeleteInterval,
	}
}

// badName matches what a name must not hold: tags, links and control characters.
var badName = regexp.MustCompile(`<[^>]*>|[a-zA-Z][a-zA-Z0-9+.-]*://|(?i:www\.)|[[:cntrl:]]`)

// complete checks the order and fills in what the service fills in.
func (o *order) complete(q Quirks, region string) error {
	var faults []string
	fault := func(bad bool, message string) {
		if bad {
			faults = append(faults, message)
		}
	}
	negative := func(n *int) bool { return n != nil && *n < 0 }
	fault(badName.MatchString(o.Name), "name must not contain HTML tags, URLs or control characters")
	fault(o.TTLMinutes < 0 && !q.NoTTL, "ttlMinutes must not be less than 0")
	fault(negative(o.AutoStopInterval), "Auto-stop interval must be non-negative")
	fault(negative(o.AutoPauseInterval), "Auto-pause interval must be non-negative")
	fault(negative(o.AutoArchiveInterval), "Auto-archive interval must be non-negative")
	fault(o.CPU < 0 || o.Memory < 0 || o.Disk < 0 || o.GPU < 0, "resources must not be less than 0")
	sized := o.CPU != 0 || o.Memory != 0 || o.Disk != 0 || o.GPU != 0
	fault(!o.built() && sized, "Cannot specify Sandbox resources when using a snapshot")
	fault(o.built() && o.Snapshot != "", "Cannot specify a snapshot together with build info")
	fault(o.built() && o.image() == "", "dockerfileContent must begin with FROM")
	ephemeral := o.AutoDeleteInterval != nil && *o.AutoDeleteInterval == 0
	pauses := o.AutoPauseInterval != nil && *o.AutoPauseInterval > 0
	fault(pauses && !q.VM, "Auto-pause is not supported by this sandbox class")
	fault(pauses && (ephemeral || o.AutoStopInterval != nil && *o.AutoStopInterval > 0),
		"Auto-pause cannot be combined with auto-stop or an ephemeral sandbox")
	fault(o.GPU > 0 && !ephemeral, "GPU sandboxes must be ephemeral")
	if len(faults) > 0 {
		return invalid("%s", strings.Join(faults, ", "))
	}

	o.vm = q.VM
	stop, pause, days, del := defaultStop, 0, defaultArchive, -1
	switch {
	case pauses:
		stop = 0
	case q.VM && !ephemeral && o.AutoStopInterval == nil && o.AutoPauseInterval == nil:
		stop, pause = 0, defaultPause
	}
	fill := func(field **int, value int) {
		if *field == nil {
			*field = &value
		}
	}
	fill(&o.AutoStopInterval, stop)
	fill(&o.AutoPauseInterval, pause)
	fill(&o.AutoArchiveInterval, days)
	fill(&o.AutoDeleteInterval, del)
	o.AutoArchiveInterval = clampArchive(*o.AutoArchiveInterval)
	if *o.AutoDeleteInterval < 0 {
		*o.AutoDeleteInterval = -1
	}
	if q.NoTTL {
		o.TTLMinutes = 0
	}
	if o.User == "" {
		o.User = defaultUser
	}
	if o.Target == "" {
		o.Target = region
	}
	if o.Snapshot == "" && !o.built() {
		o.Snapshot = defaultSnapshot
	}
	if o.CPU == 0 {
		o.CPU = 1
	}
	if o.Memory == 0 {
		o.Memory = 1
	}
	if o.Disk == 0 {
		o.Disk = 3
	}
	if o.Env == nil {
		o.Env = map[string]string{}
	}
	if o.Labels == nil {
		o.Labels = map[string]string{}
	}
	return nil
}

// clampArchive returns the interval as it is kept. A 0 stays on the wire, and means the maximum.
func clampArchive(minutes int) *int {
	minutes = min(minutes, maxArchive)
	return &minutes
}

// text is what must be equal in two creates that are one.
func (o order) text() string {
	b, _ := json.Marshal(o) // never fails: strings, numbers and maps of strings
	return string(b)
}
