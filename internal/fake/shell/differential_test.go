package shell_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/internal/fake/shell"
)

// script is one entry of testdata/scripts.txt: a rule and a script that shows it.
type script struct{ rule, text string }

func corpus(t testing.TB) []script {
	t.Helper()
	data, err := os.ReadFile("testdata/scripts.txt")
	require.NoError(t, err)
	var list []script
	for entry := range strings.SplitSeq("\n"+string(data), "\n### ") {
		if rule, text, ok := strings.Cut(entry, "\n"); ok && rule != "" {
			list = append(list, script{rule, text})
		}
	}
	require.Greater(t, len(list), 150)
	return list
}

// The scripts print nothing that depends on messages, process numbers or the clock, so both shells must agree.
func TestScriptsDoWhatBusyboxDoes(t *testing.T) {
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Skip("busybox is not on PATH, so there is nothing to compare with")
	}
	bin := t.TempDir()
	require.NoError(t, exec.Command(busybox, "--install", "-s", bin).Run())
	for _, s := range corpus(t) {
		t.Run(s.rule, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var want, got, gotErr bytes.Buffer
			theirs := exec.CommandContext(ctx, filepath.Join(bin, "sh"), "-c", s.text)
			theirs.Dir = t.TempDir()
			theirs.Env = []string{"PATH=" + bin, "HOME=/root", "LC_ALL=C", "TZ=UTC0"}
			theirs.Stdout = &want
			if err := theirs.Run(); err != nil {
				require.ErrorAs(t, err, new(*exec.ExitError))
			}
			ours := shell.Run(ctx, shell.NewFS(), shell.Command{
				Args: []string{"sh", "-c", s.text}, Dir: "/home/user", Stdout: &got, Stderr: &gotErr,
			})
			assert.Equal(t, want.String(), got.String(), "script:\n%s\nour stderr:\n%s", s.text, &gotErr)
			assert.Equal(t, theirs.ProcessState.ExitCode(), ours, "script:\n%s\nour stderr:\n%s", s.text, &gotErr)
		})
	}
}
