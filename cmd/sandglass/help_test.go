//go:build unix

package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/cmd/sandglass/internal/emulate"
	"github.com/sandglass-dev/sandglass/cmd/sandglass/internal/settings"
)

// examples returns the command lines that a command's help shows as examples.
func examples(help string) (lines []string) {
	_, text, _ := strings.Cut(help, "\nExample")
	for _, line := range strings.Split(text, "\n") {
		if command, ok := strings.CutPrefix(line, "    sandglass "); ok {
			lines = append(lines, "sandglass "+command)
		}
	}
	return lines
}

// TestTheExamplesOfEveryHelpRun runs them as they stand, by a shell, where the emulators of the services are.
func TestTheExamplesOfEveryHelpRun(t *testing.T) {
	var env []string
	for _, service := range []string{"e2b", "daytona"} {
		s, err := emulate.Start(service, "127.0.0.1:0")
		require.NoError(t, err)
		defer s.Close()
		env = append(env, s.Env()...)
	}
	b := newBench(t, env...)
	bin := filepath.Join(b.dir, "bin")
	require.NoError(t, os.Mkdir(bin, 0o700))
	script := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+text+"\n"), 0o700))
	}
	script("sandglass", asProgram+"=1 exec "+selfPath(t)+` "$@"`)
	script("python3", `test "$1" = agent.py && echo "an agent with ${SANDGLASS_SANDBOX_ID:-no sandbox}"`)
	b.env = append(b.env, "PATH="+bin+":"+os.Getenv("PATH"))

	for _, node := range newParser(&commands{}).Model.Leaves(true) {
		help := b.run(node.Name, "--help")
		require.Equal(t, 0, help.code)
		lines := examples(help.stdout)
		require.NotEmpty(t, lines, "%s has no example", node.Name)
		for _, line := range lines {
			t.Run(line, func(t *testing.T) {
				env := b.env
				if strings.Contains(line, "docker") {
					_, host := engine(t)
					env = append(env, host)
				}
				if strings.Contains(line, "kubernetes") {
					c := onCluster(t)
					env = append(env, kubeconfig(t, c, c.AdminToken(), "default"))
				}
				runExample(t, b.dir, env, line)
			})
		}
	}
	page, err := os.ReadFile(filepath.Join(b.dir, "report.html"))
	require.NoError(t, err, "an example writes it")
	assert.Contains(t, string(page), "<html")
}

func runExample(t *testing.T, dir string, env []string, line string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", "exec "+line)
	cmd.Dir, cmd.Env = dir, env
	var out, errs watcher
	cmd.Stdout, cmd.Stderr = &out, &errs
	require.NoError(t, cmd.Start())
	serves := strings.HasPrefix(line, "sandglass emulate") && !strings.Contains(line, " -- ")
	if serves || strings.Contains(line, "--every") || strings.Contains(line, "--watch") {
		require.Eventually(t, func() bool { return strings.Contains(out.String(), "\n") }, time.Minute, 20*time.Millisecond, "%s", &errs)
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	}
	assert.NoError(t, cmd.Wait(), "%s%s", &out, &errs)
	assert.NotEmpty(t, out.String()+errs.String()+strings.Repeat("-o", strings.Count(line, "-o ")))
}

func TestTheReadmeNamesEveryVariableOfAnAccount(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	for _, kind := range settings.Kinds() {
		for _, v := range settings.Variables(kind) {
			assert.Contains(t, string(readme), "`"+v+"`", kind)
		}
	}
	for _, v := range []string{"KUBECONFIG", "SANDGLASS_NAMESPACE"} { // of a provider that is found by none of its variables
		assert.Contains(t, newBench(t).run("--help").stdout, v)
	}
}

func TestHelpFitsATerminalOf110Columns(t *testing.T) {
	b := newBench(t)
	b.env = append(b.env, "COLUMNS=110")
	for _, node := range newParser(&commands{}).Model.Leaves(true) {
		for _, line := range strings.Split(b.run(node.Name, "--help").stdout, "\n") {
			assert.LessOrEqual(t, len([]rune(line)), 140, "%s: %s", node.Name, line)
		}
	}
}

func TestEveryCommandThatIsHalfWrittenSaysWhereTheHelpIs(t *testing.T) {
	b := newBench(t)
	for _, args := range [][]string{{}, {"nosuch"}, {"ls", "--nosuch"}, {"completion", "tcsh"}, {"emulate", "nosuch"}, {"kill", "--timeout", "x", "id"}} {
		r := b.run(args...)
		assert.Equal(t, exitUsage, r.code, args)
		assert.Contains(t, r.stderr, "--help", args)
		assert.Empty(t, r.stdout, args)
	}
}

func TestCompletionScriptsAreReadByTheirShells(t *testing.T) {
	b := newBench(t)
	b.configure(`{"accounts": {"blue": {"provider": "e2b", "E2B_API_KEY": "BLUE_KEY"}}}`)
	for shell, check := range map[string][]string{"bash": {"bash", "-n"}, "zsh": {"zsh", "-n"}, "fish": {"fish", "-n"}} {
		t.Run(shell, func(t *testing.T) {
			r := b.run("completion", shell)
			require.Equal(t, 0, r.code)
			for _, word := range []string{"doctor", "older-than", "docker", "blue"} {
				assert.Contains(t, r.stdout, word)
			}
			needs(t, shell)
			cmd := exec.CommandContext(t.Context(), check[0], check[1:]...)
			cmd.Stdin = strings.NewReader(r.stdout)
			out, err := cmd.CombinedOutput()
			assert.NoError(t, err, "%s", out)
		})
	}
	t.Run("and bash completes by it", func(t *testing.T) {
		needs(t, "bash")
		complete := func(words ...string) string {
			script := b.run("completion", "bash").stdout + `
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _sandglass; echo "${COMPREPLY[*]}"`
			out, err := exec.CommandContext(t.Context(), "bash", append([]string{"-c", script, "bash"}, words...)...).Output()
			require.NoError(t, err)
			return strings.TrimSpace(string(out))
		}
		assert.Equal(t, "doctor", complete("sandglass", "do"))
		assert.Equal(t, "--older-than", complete("sandglass", "sweep", "--old"))
		assert.Equal(t, "daytona", complete("sandglass", "ls", "--provider", "day"))
		assert.Equal(t, "blue", complete("sandglass", "ls", "-p", "bl"))
	})
}

func TestVersionSaysWithWhichGoItWasBuilt(t *testing.T) {
	r := newBench(t).run("version")
	assert.Equal(t, 0, r.code)
	assert.Regexp(t, `^sandglass .*go1\.\d+`, r.stdout)
}

func TestEmulateEndsWithItsProgramAndSaysWhatIsLeft(t *testing.T) {
	b := newBench(t)
	r := b.run("emulate", "e2b", "--", "sh", "-c", "test -n \"$E2B_API_KEY\" && exit 5")
	assert.Equal(t, 5, r.code)
	r = b.run("emulate", "e2b", "--", selfPath(t), "run", "-p", "e2b", "-f", "ci", "--", "true")
	assert.Equal(t, 0, r.code, "a sandbox of run is gone with it")
	needs(t, "curl")
	r = b.run("emulate", "e2b", "--", "sh", "-c", `curl -sS -H "X-API-Key: $E2B_API_KEY" -H 'Content-Type: application/json' -d '{"templateID":"base","timeout":60}' "$E2B_API_URL/sandboxes"`)
	assert.Equal(t, emulate.LeftBehind, r.code)
}
