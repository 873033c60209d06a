// Package kubernetes runs sandboxes in a Kubernetes cluster, over the API server's HTTP and with the standard library
// alone.
//
//	p, err := kubernetes.FromEnv() // a pod's service account, or KUBECONFIG
//	...
//	m, err := sandbox.NewManager(p, sandbox.Config{Fleet: "ci-agents"})
//
// A [Provider] is one namespace. A sandbox is one Job (batch/v1) with one pod, and its ID is the Job's name and uid: every
// delete and every extension names the uid, so that a Job made anew under the same name is never met.
//
// # Who ends a sandbox
//
// The cluster's Job controller, by the Job's activeDeadlineSeconds, which counts from the Job's start. A beat sets it anew. At
// the deadline the pod is deleted, has 2 seconds to end, and the Job's record goes with it: nothing is left.
//
// After the owner's death a sandbox lives q + W + 1 s + 2 s + about 1 s: q is a request of the owner's that is still under way, W the
// window, the second is for times that are cut off to whole ones. That holds as long as the controller manager runs. Below it
// there is a second net, which the pod's own node keeps alone: the pod's activeDeadlineSeconds, which is the mark's lifetime and
// which nobody extends.
//
// An extension that comes near the deadline is answered with yes, although the controller may have acted already: it
// counts only once that is ruled out (see [Provider.Extend]). A deadline that somebody takes away, and a Job that somebody
// suspends, are told by [Provider.Get] and [Provider.List], since nothing ends such a sandbox but its hard end or a sweeper.
//
// # When it is gone
//
// When neither the Job is there nor a pod that it has made. A Job alone proves nothing: deleted in the API's own default
// manner it leaves its pod running for ever, and in the background it is gone before its pod. Such a pod shows under its
// Job's ID, also in lists, as [sandbox.StateFailed].
//
// Nothing is ever deleted by force or without grace: that takes records away and not processes. While a node is dead or
// the controller manager down, a delete comes to no end; after a minute that is StateFailed too, and every report names it. What
// cannot be seen is that somebody else has forced a delete, or has deleted the record of a dead node: the cluster then
// forgets its pods, and a node that comes back ends them.
//
// # What a pod is given
//
// No token of the cluster, no privilege, no way to gain one, the runtime's default seccomp profile, no variables that tell of
// the namespace's services, limits for CPU, memory and disk. What it may reach in the network is the namespace's NetworkPolicies' business:
// [Options].Labels and [Config].Offline have them select it. Spec.Env can be read by whoever may read Jobs and pods:
// [Options].Secrets are for what is secret.
//
// # Rights
//
// In the namespace: create, get, list, patch and delete Jobs (batch); get, list and delete pods; get and create
// pods/exec; with [Owner].Lease create, get, patch and delete Leases (coordination.k8s.io). [Provider.Check] names those
// that are missing.
//
// # Owners
//
// [Owner] writes on a sandbox whose it is: a pod of the cluster, or a Lease that a process elsewhere keeps. [Owners] tells a
// sweeper whether he lives, and with sweep.Config.EndDead what a dead one has left is ended before its lease. With
// [Owner].Reference the cluster itself removes the sandboxes of a pod that was deleted. The folder deploy/kubernetes of the
// repository has accounts and roles, a runner and sweepers to start from.
//
// # Commands
//
// They run as the container's user; see the Exec method of what [Provider.Open] returns. API servers that speak their
// protocol are those from Kubernetes 1.30 on. The image needs sh, env, cat, mkdir and sleep.
//
// # What is not known
//
// How it goes with several API servers whose clocks differ, and with those of a managed service whose proxies may not let a
// command's stream through. What an admission webhook does to a Job is seen at the create only.
package kubernetes
