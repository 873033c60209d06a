package deploy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coreos/go-systemd/v22/unit"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func options(t *testing.T, name string) []*unit.UnitOption {
	t.Helper()
	opts, err := unit.DeserializeOptions(strings.NewReader(read(t, name)))
	require.NoError(t, err)
	return opts
}

// option returns the only value of an option.
func option(t *testing.T, name, section, key string) string {
	t.Helper()
	var values []string
	for _, o := range options(t, name) {
		if o.Section == section && o.Name == key {
			values = append(values, o.Value)
		}
	}
	require.Len(t, values, 1, "%s in [%s] of %s", key, section, name)
	return values[0]
}

func TestTheServiceIsSafe(t *testing.T) {
	const name = "systemd/sandglass-sweep.service"
	assert.Equal(t, "oneshot", option(t, name, "Service", "Type"))
	assert.Equal(t, "yes", option(t, name, "Service", "DynamicUser"))
	assert.Equal(t, "/etc/sandglass/sweep.env", option(t, name, "Service", "EnvironmentFile"), "without a dash: no keys, no start")
	assert.Equal(t, "14min", option(t, name, "Service", "TimeoutStartSec"), "a pass is over before the next one")
	assert.Contains(t, option(t, name, "Service", "ExecStart"), " --fleet change-me ", "as it stands it is for no fleet of anybody")
	assert.Equal(t, "timers.target", option(t, "systemd/sandglass-sweep.timer", "Install", "WantedBy"))
}

// analyze runs systemd-analyze where it is.
func analyze(t *testing.T, args ...string) string {
	t.Helper()
	program, err := exec.LookPath("systemd-analyze")
	if err != nil {
		if os.Getenv("SANDGLASS_NO_SKIP") != "" {
			require.NoError(t, err)
		}
		t.Skip("systemd-analyze is not installed")
	}
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), "SYSTEMD_COLORS=0", "SYSTEMD_EMOJI=0", "SYSTEMD_PAGER=")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "systemd-analyze %s:\n%s", strings.Join(args, " "), out)
	return string(out)
}

func TestSystemdAcceptsTheUnits(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "sandglass") // stands for the installed one, which systemd looks for
	require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755))
	for _, name := range []string{"sandglass-sweep.service", "sandglass-sweep.timer"} {
		text := strings.ReplaceAll(read(t, "systemd/"+name), "/usr/local/bin/sandglass", program)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	out := analyze(t, "verify", filepath.Join(dir, "sandglass-sweep.service"), filepath.Join(dir, "sandglass-sweep.timer"))
	assert.Empty(t, strings.TrimSpace(out), "it says nothing of what it understands")
	assert.Contains(t, analyze(t, "calendar", "--iterations=2", option(t, "systemd/sandglass-sweep.timer", "Timer", "OnCalendar")), "Next elapse")
	analyze(t, "security", "--offline=yes", "--threshold=20", filepath.Join(dir, "sandglass-sweep.service")) // 2.0 of 10
}
