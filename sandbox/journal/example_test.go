package journal_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/journal"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxtest"
)

// A Manager with a journal on disk. While a scope is open its entry is locked; when its sandbox is seen to be gone,
// the entry is gone too.
func Example() {
	dir, err := os.MkdirTemp("", "journal")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	j, err := journal.Open(filepath.Join(dir, "spool")) // "" for the user's own folder
	if err != nil {
		log.Fatal(err)
	}
	m, err := sandbox.NewManager(sandboxtest.New(sandboxtest.Everything()), sandbox.Config{Fleet: "ci", Journal: j})
	if err != nil {
		log.Fatal(err)
	}
	var nonce string
	err = m.WithSandbox(context.Background(), func(context.Context, sandbox.Sandbox) error {
		nonce = m.Live()[0].Mark.Nonce
		alive, known, err := j.Owner(nonce)
		fmt.Println("in the scope: alive", alive, "known", known)
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	alive, known, err := j.Owner(nonce)
	fmt.Println("after it: alive", alive, "known", known, err)
	// Output:
	// in the scope: alive true known true
	// after it: alive false known false <nil>
}
