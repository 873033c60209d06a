package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/sandglass-dev/sandglass/cmd/sandglass/internal/settings"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// accountFlag names the account of a command that makes sandboxes.
type accountFlag struct {
	Provider string `short:"p" env:"SANDGLASS_PROVIDER" placeholder:"NAME" help:"Provider (${kinds}) or account of the configuration file."`
}

// account returns the account: that of the flag, else the only one of the file.
func (f accountFlag) account(w *world) (*settings.Account, error) {
	var names []string
	if f.Provider != "" {
		names = []string{f.Provider}
	}
	accounts, err := providersFlag{names}.open(w)
	if err != nil {
		return nil, err
	}
	if len(accounts) != 1 {
		return nil, usage(fmt.Errorf("%d providers: sandboxes are made with one", len(accounts)))
	}
	return accounts[0], nil
}

// orderFlags say what sandbox is made, and how long it lives.
type orderFlags struct {
	Image   string   `group:"Sandbox:" placeholder:"NAME" help:"Image, template or snapshot, as the provider names it. Default: the provider's."`
	CPU     float64  `group:"Sandbox:" name:"cpu" placeholder:"CORES" help:"Cores."`
	Memory  int64    `group:"Sandbox:" placeholder:"MIB" help:"Memory in MiB."`
	Disk    int64    `group:"Sandbox:" placeholder:"MIB" help:"Disk in MiB."`
	Port    []int    `group:"Sandbox:" placeholder:"PORT" help:"Port that is to be reachable; may be repeated."`
	Offline bool     `group:"Sandbox:" help:"No way out to the network."`
	Env     []string `group:"Sandbox:" sep:"none" placeholder:"NAME" help:"Environment variable to hand on into the sandbox, by its name alone: values would be seen in process lists. May be repeated."`
	Tag     []string `group:"Sandbox:" sep:"none" placeholder:"NAME=VALUE" help:"Tag, such as commit_sha=4f1c9a7; may be repeated."`

	LocalTags bool `group:"Sandbox:" help:"Keep tags that the provider cannot hold in the journal alone, in place of refusing them."`

	Window      time.Duration `group:"Life:" placeholder:"3m" help:"How long the sandbox lives without us. Default: 3m."`
	Beat        time.Duration `group:"Life:" placeholder:"1m" help:"Time between two extensions. Default: a third of the window."`
	MaxLifetime time.Duration `group:"Life:" placeholder:"1h" help:"Hard end of the sandbox, and of a program with it. Default: 1h."`
}

// order returns the Scope that the flags ask for.
func (f orderFlags) order() (sandbox.Scope, error) {
	tags, err := parseTags(f.Tag, false)
	if err != nil {
		return sandbox.Scope{}, err
	}
	env := map[string]string{}
	for _, name := range f.Env {
		value, set := os.LookupEnv(name)
		switch {
		case strings.Contains(name, "="):
			name, _, _ = strings.Cut(name, "=")
			return sandbox.Scope{}, usage(fmt.Errorf("--env takes a name alone, such as --env %s: a value in an argument is seen by everybody on this machine", name))
		case !set:
			return sandbox.Scope{}, usage(fmt.Errorf("--env %s: it is not set", name))
		}
		env[name] = value
	}
	return sandbox.Scope{
		Spec: sandbox.Spec{
			Image: f.Image, CPU: f.CPU, Memory: f.Memory << 20, Disk: f.Disk << 20, Ports: f.Port, Offline: f.Offline, Env: env,
		},
		Tags: tags, Window: f.Window, Beat: f.Beat, MaxLifetime: f.MaxLifetime,
	}, nil
}
