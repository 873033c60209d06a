// Package deploy has no code: beside it lie files that run the sweeper and watch over it, ready to use. See README.md for
// which is for whom. The tests check each of them with the parser of whom it is for, and against the command itself.
package deploy
