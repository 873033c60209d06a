// Package deploy has no code: beside it lie files that run a runner in a cluster, run the sweeper and watch over it, ready to
// use. See README.md for which is for whom. The tests check each of them with the parser of whom it is for, against the
// command itself, and those for sandboxes in Kubernetes on a real cluster.
package deploy
