// Package shell is a small Unix machine in memory: a file system, processes, pipes, a POSIX shell and some ninety
// utilities. It gives the in-memory provider, and the fakes of services, a data plane on which a real script really runs.
//
// It never touches the host: no file, process, network, user or environment variable of the machine that runs the test.
// Only the clock is shared, so that inside a testing/synctest bubble "sleep 3600" takes no real time. All that blocks
// here (pipes, sleep, wait) blocks durably in the sense of that package; the caller's own streams are the caller's affair.
//
// # Execution takes time
//
// A loop without any blocking, such as "while :; do :; done", would keep the clock of a bubble standing still, and no
// timeout could ever end it. Therefore work is counted: a statement, a transfer of data and a new process are a step or a
// few, and all processes of one [Run] together take at most a thousand steps in a millisecond. A short script takes
// exactly the time that it sleeps.
//
// # Processes
//
// A file system has one process table, which all Runs on it share and /proc shows: processes of any of them see and signal
// one another, root all and others their own. The first process of a Run is a child of init, process 1, which no signal
// reaches, and leads a session and a group; what it starts belongs to these, jobs in the background too, unless setsid
// says otherwise. No number is given twice.
//
// A process that is stopped takes no further step, writes nothing and starts nothing until it goes on or is killed; only a
// Write of the caller's and an Exec that are under way come to their end. One that has been killed is a zombie from the
// moment of the signal, without arguments and environment, and gone as soon as it has unwound; of one that ends by itself,
// nothing waits for its parent.
//
// Of what /proc has on Linux there is: self, uptime, loadavg, and for each process cmdline, comm, cwd, environ, exe, stat and
// status. Nothing of it can be changed or counts as used space, and tar leaves it out.
//
// # Limits
//
// One Run has at most 256 processes at a time, so that none can keep another from starting, and 64 MiB of variables,
// arguments and lines held in memory; a script has at most 256 KiB; a file system holds 256 MiB unless [FS.SetQuota] says
// otherwise. What goes beyond fails as it does on a small machine: "Cannot fork", "Out of memory", "No space left on
// device".
//
// # Differences from a real shell
//
// The language is POSIX with what scripts for busybox and bash use most: local, [[, ((, <<<, &>, ${x:1:2}, ${x/a/b},
// and {1..3} when called as bash. Arrays, process substitution, coprocesses, select, aliases, job control and ulimit
// are refused with a message and exit code 2, never ignored, and so is a flag that a utility does not know. A line is
// parsed when the lines before it have run, as usual, but a script from standard input is read to its end first. A
// process that is killed takes its foreground children with it, and what a command leaves in the background is killed
// when the command ends, unless [Command.Ended] is set: Run leaves nothing running.
//
// # Why an evaluator of its own
//
// The parser and the patterns are those of mvdan.cc/sh/v3. Its interpreter builds on the host's pipes and files, which no
// bubble can wait for. Its package expand looks up "~user" on the host, takes $((08)) for 0, and loses quotes within
// ${1+"$@"} and ${x#"*"}.
package shell
