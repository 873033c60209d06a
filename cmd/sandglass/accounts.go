package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/sandglass-dev/sandglass/cmd/sandglass/internal/settings"
	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/journal"
)

// providersFlag is how commands that work on several accounts name them.
type providersFlag struct {
	Provider []string `short:"p" env:"SANDGLASS_PROVIDER" placeholder:"NAME" help:"Provider (${kinds}) or account of the configuration file; may be repeated."`
}

// open returns the accounts: those of the flag, else those of the file.
func (f providersFlag) open(w *world) ([]*settings.Account, error) {
	names := f.Provider
	if len(names) == 0 {
		names = w.settings.Providers
	}
	if len(names) == 0 {
		found := "no account is set up in the environment"
		if all := w.settings.Names(); len(all) > 0 {
			found = "there are settings for " + strings.Join(all, ", ")
		}
		return nil, usage(fmt.Errorf("name a provider with --provider, SANDGLASS_PROVIDER or in the configuration file (%s)", found))
	}
	accounts, err := w.settings.OpenAll(names)
	return accounts, usage(err)
}

// fleetFlag is required where something may be deleted, and narrows elsewhere.
type fleetFlag struct {
	Fleet string `short:"f" env:"SANDGLASS_FLEET" placeholder:"NAME" help:"Fleet: the name for what one sweeper looks after, such as ci-agents."`
}

func (f fleetFlag) name(w *world) string {
	if f.Fleet != "" {
		return f.Fleet
	}
	return w.settings.Fleet
}

func (f fleetFlag) required(w *world) (string, error) {
	if name := f.name(w); name != "" {
		return name, nil
	}
	return "", usage(errors.New("name a fleet with --fleet, SANDGLASS_FLEET or in the configuration file: there is no default, " +
		"for it says what may be deleted"))
}

// journalFlag says where the crash journal is.
type journalFlag struct {
	Journal   string `type:"path" default:"" env:"SANDGLASS_JOURNAL" placeholder:"DIR" help:"Folder of the crash journal, on a local disk. Default: your own."`
	NoJournal bool   `help:"Do without the crash journal."`
}

// open returns the journal, or nil if there is to be none.
func (f journalFlag) open(w *world) (*journal.Journal, error) {
	if f.NoJournal {
		return nil, nil
	}
	dir := f.Journal
	if dir == "" {
		dir = w.settings.Journal
	}
	return journal.Open(dir)
}

// dir returns where the journal is looked for.
func (f journalFlag) dir(w *world) (string, error) {
	if f.Journal != "" {
		return f.Journal, nil
	}
	if w.settings.Journal != "" {
		return w.settings.Journal, nil
	}
	return journal.DefaultDir()
}

// existing returns the journal if its folder is there: who only reads makes none.
func (f journalFlag) existing(w *world) (*journal.Journal, error) {
	dir, err := f.dir(w)
	if f.NoJournal || err != nil {
		return nil, nil
	}
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return f.open(w)
}

// parseTags reads NAME=VALUE, or with bare also NAME alone.
func parseTags(list []string, bare bool) (map[string]string, error) {
	tags := map[string]string{}
	for _, text := range list {
		k, v, both := strings.Cut(text, "=")
		if k == "" || !both && !bare {
			return nil, usage(fmt.Errorf("tag %q is not of the form NAME=VALUE", text))
		}
		tags[k] = v
	}
	return tags, nil
}

// untilSignal returns a context that SIGINT or SIGTERM ends. A second signal ends the process.
func untilSignal() (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// hint says what to do about an error of a provider, where that is known.
func hint(kind string, err error) string {
	if kind == "kubernetes" {
		return clusterHint(err)
	}
	switch {
	case errors.Is(err, sandbox.ErrUnauthenticated):
		return "check " + strings.Join(settings.Variables(kind)[:1], ", ")
	case errors.Is(err, sandbox.ErrPermission):
		return "use a key with more rights"
	case errors.Is(err, sandbox.ErrRateLimited):
		return "try again later"
	case errors.Is(err, sandbox.ErrUnavailable):
		return "the service does not answer: try again, and check its address"
	}
	return ""
}

// clusterHint says what to do about an error of a cluster: there, rights are granted by whoever asks.
func clusterHint(err error) string {
	_, foreign := errors.AsType[*tls.CertificateVerificationError](err)
	switch {
	case errors.Is(err, sandbox.ErrUnauthenticated):
		return "in a pod, look for the token of its service account (automountServiceAccountToken: true); elsewhere write the file that " +
			"KUBECONFIG names anew: kubectl config view --raw --minify --flatten -o json"
	case errors.Is(err, sandbox.ErrPermission):
		return "kubectl -n NAMESPACE apply -f deploy/kubernetes/rbac.yaml, and use its account agent-runner, or bind its role " +
			"agent-runner-outside to a user; sandglass-sweep is enough for sweep, which makes nothing and runs nothing"
	case foreign:
		return "what answers there has not the certificate of the cluster that the settings are of: write the file that KUBECONFIG names " +
			"anew: kubectl config view --raw --minify --flatten -o json"
	case errors.Is(err, sandbox.ErrRateLimited):
		return "try again later"
	case errors.Is(err, sandbox.ErrUnavailable):
		return "no API server answers: try again, and check the server's address in the file that KUBECONFIG names, and the way to it"
	}
	return ""
}
