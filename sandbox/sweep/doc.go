// Package sweep finds and deletes the sandboxes that no defer, no lease and no journal could end.
//
//	s, err := sweep.New(sweep.Config{Fleet: "ci-agents", Providers: []sandbox.Provider{provider}})
//	...
//	report, err := s.Sweep(ctx) // one pass, for cron
//	err = s.Run(ctx, 0)         // or one every 15 minutes
//
// A sweeper has authority over one fleet, and within it only over what it can prove. [Decide] holds the rules; the first
// that applies counts:
//
//	no exact mark, or of another fleet              foreign, never touched
//	protected by tag or rule                        kept
//	past its hard end and grace                     deleted; an owner whose lease still runs is reported
//	lease in the future, by the service's clock     alive, kept (unless Config.EndDead, and its owner is dead)
//	running with a lease long passed, seen twice    deleted, whoever the owner is
//	its owner is alive, says Liveness               kept
//	residue, seen so by two passes                  deleted
//	its owner is dead, says Liveness                deleted
//	anything else                                   kept until its hard end
//
// All ages are differences of the service's own times, so that neither the owner's clock nor this process's plays a
// part. A time that is not known is never old enough. Right before its delete each sandbox is looked at once more, and
// what has changed is left alone. Two sweepers at once do no harm. Where a service tells no time of its own, its adapter
// puts this process's clock in the place, which must then be right.
//
// What it cannot do. Residue is remembered from pass to pass in memory: passes of processes that end after each one
// find it only at its hard end, or by a Liveness that proves its owner dead. On a service without names a copy that
// inherited its original's mark is told from it only while both are there, or by a Sweeper that saw both. An account that
// answers an empty list looks like an empty account, unless [Config].Known, or an earlier pass of the same Sweeper, knows
// better.
package sweep
