// Package child runs a program so that it does not outlive the process that started it, with all that it starts itself,
// as far as the system can do that.
//
// On Unix the program runs in a process group of its own, whose leader is a guard: a second process of this very
// command, which ignores all signals, waits for the end of a pipe that only its parent holds, and then kills the group.
// So the group dies however the parent dies, and the group's id cannot become somebody else's meanwhile. On Linux and
// FreeBSD the kernel kills the program itself too when its parent dies, without the guard. On Windows the parent puts
// itself into a job object whose last handle it holds, and which kills all its processes when that handle goes.
//
// What that does not reach: on Unix a process that has left the group (setsid, daemons, services and containers that
// others start for it), and on Linux, if the guard was killed together with the parent, everything but the program itself.
package child
