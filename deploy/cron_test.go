package deploy_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// An entry is a line of a file in /etc/cron.d: five fields of time, a user, a command.
type entry struct{ schedule, user, command string }

func crontab(t *testing.T) (entries []entry) {
	t.Helper()
	text := read(t, "cron/sandglass")
	require.True(t, strings.HasSuffix(text, "\n"), "cron ignores a last line without an end")
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") || regexp.MustCompile(`^[A-Z]+\s*=`).MatchString(line) {
			continue
		}
		f := regexp.MustCompile(`\s+`).Split(line, 7)
		require.Len(t, f, 7, line)
		entries = append(entries, entry{strings.Join(f[:5], " "), f[5], f[6]})
	}
	return entries
}

func TestTheCronLine(t *testing.T) {
	entries := crontab(t)
	require.Len(t, entries, 1)
	e := entries[0]
	assert.Equal(t, 15*time.Minute, interval(t, e.schedule))
	assert.Regexp(t, `^[a-z][a-z0-9-]*$`, e.user)
	assert.NotEqual(t, "root", e.user)
	assert.NotContains(t, e.command, "%", "cron makes line ends of them")
	require.Len(t, shell(t, e.command), 1)
	assert.Contains(t, e.command, "timeout -k 30 14m ", "a pass is over before the next one")
	assert.Contains(t, e.command, ". /etc/sandglass/sweep.env;", "keys come from a file")
}
