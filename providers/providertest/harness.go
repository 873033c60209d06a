package providertest

import (
	"testing"
	"time"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// A Harness says how to reach the adapter under test and what the suite may expect of the place where it runs.
// Only New is required. The functions are called from the rule's own goroutine and may fail the test.
type Harness struct {
	// New returns the adapter under test, for an account whose service answers. It is called once for each rule, and
	// once more for what rules share. Outside bubbles every call must be for the same account. What the adapter holds
	// open is closed with t.Cleanup.
	New func(t *testing.T) sandbox.Provider

	// Bubble runs each rule in a bubble of testing/synctest: time is fake and costs nothing, so the suite can wait for
	// long leases. It is for services that live in memory and use no socket; New is then called inside the bubble, and
	// may return a new service each time. Without it time is real, and rules share one sandbox where they can.
	Bubble bool

	// Parallel runs the rules in parallel, as many as the -parallel flag allows. Most of their time is waiting. Run then
	// returns before they have ended: what they need has to be undone in a Cleanup, not in a defer.
	Parallel bool

	// Peer returns another adapter for p's account, as another process would have it. Nil: outside bubbles New does it,
	// inside them p stands in for its own peer, which proves less.
	Peer func(t *testing.T, p sandbox.Provider) sandbox.Provider

	// Judge returns what the service itself still has of a fleet, in every state, asked without the adapter under test;
	// where nobody else uses the account also what has no mark at all. ID, State and, if there is one, Mark must be set;
	// Deadline and AsOf should be, by the service's clock, if the service knows them, even where the adapter cannot read
	// them. Nil: the adapter's own List is believed.
	Judge func(t *testing.T, p sandbox.Provider, fleet string) []sandbox.Info

	// Requests returns how many requests of p have left for the service so far. Nil: whether a refusal came before any
	// request is not tried.
	Requests func(p sandbox.Provider) int

	// Made returns what the service says that it made of a Spec: CPU, Memory, Disk and Offline are compared with the
	// order where they were ordered. Nil: a size or an Offline that was accepted is taken to be honoured.
	Made func(t *testing.T, p sandbox.Provider, id string) sandbox.Spec

	// Faults are those that Inject can make happen. A rule about any other is skipped. An in-memory service or a fake
	// server can do [AllFaults], a real service perhaps Paused and Killed, by its own tools.
	Faults []Fault

	// Inject makes f happen to p, and to the sandbox id where f is about one that exists. heal ends it and is called
	// once, at the latest when the rule is over; nil: there is nothing to end. Required with Faults.
	Inject func(t *testing.T, p sandbox.Provider, f Fault, id string) (heal func())

	// Window is the lease that rules wait out, a multiple of the provider's Step. With real time it should be small, but
	// leave the machine room for two beats and a retry: 3 to 5 s. Default: in a bubble 3 min, else MinWindow and at
	// least 3 s; both within the provider's limits.
	Window time.Duration

	// Slack is how much later than the adapter's own facts allow something may be seen, for slow machines and networks.
	// Default: 1 s in a bubble, else 5 s.
	Slack time.Duration

	// Spec is what to create. The image must hold a POSIX sh with cat, id, mkdir, pwd and sleep.
	Spec sandbox.Spec

	// Sizes are the CPU, Memory and Disk to ask for. Default: 1 core, 256 MiB, 1 GiB.
	Sizes sandbox.Spec

	Native       any      // options for Spec.Native that are valid. Nil: only a value of a wrong type is tried
	UnknownImage string   // an image that does not exist. Empty: not tried
	User         string   // a user of the image other than its default, by the name or number that id prints. Empty: not tried
	Port         int      // for Spec.Ports. Default: 8080
	PageSize     int      // sandboxes on one page of the service's list: a few more are made. 0: not tried
	Secrets      []string // keys and tokens of the account, which no error may show

	// Serve returns a command that answers GET / on port with body, over HTTP, until it is killed. Nil, or in a bubble:
	// whether an endpoint can be reached is not tried.
	Serve func(port int, body string) sandbox.Cmd
}

// A Fault is one thing that can go wrong between adapter and service. "Once" means the next request of that kind;
// everything else lasts until it is healed.
type Fault string

const (
	CreateLost    Fault = "create lost"    // once: the service makes the sandbox, and its answer is lost
	CreateHangs   Fault = "create hangs"   // once: the service makes the sandbox, and never answers
	CreateLimited Fault = "create limited" // once: the service makes nothing and answers "too many requests, try in 2 s"
	NeverReady    Fault = "never ready"    // sandboxes made from now on never get to run

	GetFails  Fault = "get fails"  // once: the service answers with an error of its own, such as 500
	ListFails Fault = "list fails" // once: a page of the list does, after at least one sandbox where that can be
	ListLoops Fault = "list loops" // the list gives the same page and cursor again and again

	ExtendFails Fault = "extend fails" // once: nothing is moved, and the service answers with an error of its own
	ExtendLost  Fault = "extend lost"  // once: the end is moved, and the answer is lost
	ExtendDown  Fault = "extend down"  // every extension fails

	DeleteFails   Fault = "delete fails"   // once: nothing is deleted, and the service answers with an error of its own
	DeleteLost    Fault = "delete lost"    // once: the sandbox is deleted, and the answer is lost
	DeleteIgnored Fault = "delete ignored" // once: the service says yes and deletes nothing
	DeleteDown    Fault = "delete down"    // every delete fails
	DeleteHangs   Fault = "delete hangs"   // no delete is ever answered, or has an effect

	Denied Fault = "denied" // credentials are no longer accepted, for any request
	Paused Fault = "paused" // at once: somebody else pauses or stops the sandbox, and its record stays
	Killed Fault = "killed" // at once: the service ends the sandbox, as it would at its deadline
)

// AllFaults returns every [Fault], in the order above.
func AllFaults() []Fault {
	return []Fault{
		CreateLost, CreateHangs, CreateLimited, NeverReady, GetFails, ListFails, ListLoops, ExtendFails, ExtendLost, ExtendDown,
		DeleteFails, DeleteLost, DeleteIgnored, DeleteDown, DeleteHangs, Denied, Paused, Killed,
	}
}

// Run tries every rule on h's adapter, each in a subtest of its own. It fails t at once if h or the adapter's
// [sandbox.Capabilities] make no sense, or if no sandbox can be made at all.
func Run(t *testing.T, h Harness) {
	t.Helper()
	if h.New == nil {
		t.Fatal("providertest: Harness.New is not set")
	}
	if len(h.Faults) > 0 && h.Inject == nil {
		t.Fatal("providertest: Harness.Faults are given, but Inject is not set")
	}
	s := &suite{h: h}
	if !s.sane(t) {
		return
	}
	if !h.Bubble {
		s.share(t)
	}
	for _, topic := range []struct {
		name  string
		rules []rule
	}{
		{"create", createRules()},
		{"lease", leaseRules()},
		{"list", listRules()},
		{"delete", deleteRules()},
		{"exec", execRules()},
		{"files", fileRules()},
		{"endpoint", endpointRules()},
		{"spec", specRules()},
		{"tags", tagRules()},
		{"errors", errorRules()},
		{"faults", faultRules()},
		{"scope", scopeRules()},
	} {
		t.Run(topic.name, func(t *testing.T) {
			if h.Parallel {
				t.Parallel()
			}
			for _, r := range topic.rules {
				t.Run(r.name, func(t *testing.T) {
					if h.Parallel {
						t.Parallel()
					}
					s.run(t, r.try)
				})
			}
		})
	}
}
