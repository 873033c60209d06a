// Package killer is a script that ends a command inside of a sandbox with all that came of it, for services that can end
// no more than a command's first process.
package killer

import _ "embed"

//go:embed kill.sh
var script string

// Script returns the text for "sh -c", which finds the command's processes by its first argument: what their environment
// holds, such as "NAME=value" with a value that nothing else has. The second is the command's process id, 0 or missing if
// the service does not tell it: then most of it is stopped at once, and its kin are found whose environment may not be
// read. It must be run as root, and as the command's own user too where that is the only one who may read it, as in
// containers. It needs nothing but the shell and /proc, and prints "done" when nothing is left that it can find.
func Script() string { return script }
