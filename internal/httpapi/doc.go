// Package httpapi is the plumbing that the adapters of HTTP services share: one request at a time, with limits on its
// time and on its answer's size, and every failure an [*sandbox.APIError] without a secret in it.
//
// It retries nothing and follows no redirect: a key that a request carries goes to the host it was meant for, and a
// DELETE is never turned into a GET. It decides nothing either: what an answer means is in the adapter's tables.
//
// # Whose word counts
//
// Between us and a service stand proxies, gateways and wrong base URLs, which answer too. A failure counts as the
// service's own word only if its body has the service's form. Only then can it mean "no such sandbox" or "nothing was
// made" ([sandbox.APIError].Refused), the two answers after which nobody looks any further.
//
// # Whose clock counts
//
// [Answer.AsOf] is the service's clock, from the answer's Date header. It has whole seconds, cut off, and is as old as
// the way back was long: it lies up to a second and the way behind the service's true clock, and never ahead. So a
// lease that is read against it looks longer than it is, by that much and never shorter: nothing is taken for expired
// that is not. That an owner does not count on the second too much is what the plan's margin is for.
package httpapi
