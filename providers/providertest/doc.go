// Package providertest tries every sentence of the contract of [sandbox.Provider] and [sandbox.Sandbox] on an adapter.
//
//	func TestConformance(t *testing.T) {
//		providertest.Run(t, providertest.Harness{
//			New:  func(t *testing.T) sandbox.Provider { return newAcme(t) },
//			Spec: sandbox.Spec{Image: "alpine"},
//		})
//	}
//
// That is all an adapter needs to begin with. Every other field of [Harness] lets the suite see or break more; a rule
// that needs a field which is not set is skipped, and says so. Run the suite with -v once, and read what it skipped.
// The tests of this package hold the harness of the in-memory provider, which leaves out nothing but a real network.
//
// Each rule is a subtest whose name is the rule, in a group for its topic: create, lease, list, delete, exec, files,
// endpoint, spec, tags, errors, faults, scope. The last two are the life cycle as [sandbox.Manager] lives it, with and
// without faults; what they ask is that nothing lives on afterwards unless a [*sandbox.LeakError] names it.
//
// # What the suite believes
//
// [sandbox.Capabilities] are tried in both directions. What is declared must work, and what is declared absent must be
// refused with an error matching [errors.ErrUnsupported], or must really be absent: a fact that is understated misleads
// the core as much as one that is overstated. Times have bounds made of the adapter's own facts (ReadLag, Lateness,
// DeleteTime, StartAllowance) plus [Harness.Slack].
//
// An adapter that lies consistently cannot be caught by asking it. [Harness.Judge] asks the service instead, and
// [Harness.Requests] shows whether something was refused before any request left.
//
// # On a shared account
//
// The suite never relies on being alone. Each rule marks its sandboxes with a fleet of its own, drawn at random, looks
// at nothing else, and deletes what it made; a sandbox that survives that is an error of the rule. If the test process
// is killed, leases end what it had made.
package providertest
