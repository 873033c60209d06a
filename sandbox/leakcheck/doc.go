// Package leakcheck fails a test, or a program, that leaves sandboxes behind; and it fails where it could not see.
//
//	func TestMain(m *testing.M) {
//		leakcheck.VerifyTestMain(m, provider, leakcheck.Manager(manager), leakcheck.Canary(sandbox.Spec{}))
//	}
//
// A check asks the account for sandboxes in every state and knows three classes:
//
//	ours       made by this process, by nonce or id         fails, whatever its state
//	fleet      of the fleet, and past its lease             fails
//	unmarked   nothing says whose it is                     told beside a failure; fails only with Strict
//
// Sandboxes of other fleets, and of the fleet within their lease, are somebody else's affair.
//
// An empty list proves nothing: that is also what an outage, a wrong key or another project looks like. So "clean" needs a
// witness, a sandbox that is there and that the list must show: one that [Witness] names, what a second [Source] tells of,
// or a [Canary] that the check makes and deletes itself. Without one the error is [ErrNoWitness]. A list that fails, repeats
// itself or hides what is there is [ErrBlind].
//
// Nothing is ever deleted but the check's own canary: cleaning up is a step of its own, after the failure, such as by
// package sweep.
package leakcheck
