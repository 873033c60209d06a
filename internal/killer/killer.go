// Package killer is a script that ends a command inside of a sandbox with all that came of it, for services that can end
// no more than a command's first process.
package killer

import _ "embed"

//go:embed kill.sh
var script string

// Script returns the text for "sh -c", which finds the command's processes by one argument: what their environment holds,
// such as "NAME=value" with a value that nothing else has. It must be run as root, needs nothing but the shell and /proc,
// and prints "done" when nothing is left that it can find.
func Script() string { return script }
