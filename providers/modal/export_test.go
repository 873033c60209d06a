package modal

import (
	"github.com/sandglass-dev/sandglass/internal/killer"
)

// The scripts that run in a sandbox.
var (
	Watchdog, Beater, Runner, Fetcher, Placer = watchdog, beater, runner, fetcher, placer
	Killer                                    = killer.Script()
)

// What is decoded here, for fuzzing.
var (
	ReadLeft = readLeft
	BeatOf   = beatOf
	At       = at
)

// Clean returns text as errors show it.
func (p *Provider) Clean(text string, secrets ...string) string { return p.clean(text, secrets...) }
