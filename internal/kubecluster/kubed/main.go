// Command kubed makes a Kubernetes for tests and looks after it.
//
//	kubed build              builds the components, where package kubecluster looks for them
//	kubed up -kube path      runs a control plane, and with -node a node, until its standard input ends
//
// There are two more commands that it runs itself: init and node, inside of the node's namespaces.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
)

// The main thread never ends, and a parent's death is told to a child when the thread that started it ends. So the
// main goroutine stays on it, and starts all processes.
func main() {
	runtime.LockOSThread()
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "kubed:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("no command: build or up")
	}
	flags := flag.NewFlagSet(args[0], flag.ExitOnError)
	kube := flags.String("kube", "", "the `path` of the components' binary")
	node := flags.Bool("node", false, "run a node, too")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	switch args[0] {
	case "build":
		return build()
	case "up":
		return up(*kube, *node)
	case "init":
		return initNode(flags.Arg(0))
	case "node":
		return runNode(flags.Arg(0))
	}
	return fmt.Errorf("unknown command %q", args[0])
}
