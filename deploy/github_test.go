package deploy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// actionlint knows all of GitHub's syntax. It is run as a program, as lint tools are in this project, since it needs another
// version of its YAML library than Prometheus' parser does.
const actionlint = "github.com/rhysd/actionlint/cmd/actionlint@v1.7.12"

// A workflow is as much of one as the file uses: what is decoded strictly has no other field.
type workflow struct {
	Name        string            `json:"name"`
	On          map[string]any    `json:"true"` // the key "on" is a truth in YAML 1.1, which is read here; GitHub reads a word
	Permissions map[string]string `json:"permissions"`
	Concurrency map[string]any    `json:"concurrency"`
	Env         map[string]string `json:"env"`
	Jobs        map[string]struct {
		RunsOn         string `json:"runs-on"`
		TimeoutMinutes int    `json:"timeout-minutes"`
		Steps          []step `json:"steps"`
	} `json:"jobs"`
}

type step struct {
	Name             string            `json:"name"`
	If               string            `json:"if"`
	Uses             string            `json:"uses"`
	With             map[string]any    `json:"with"`
	Run              string            `json:"run"`
	Env              map[string]string `json:"env"`
	WorkingDirectory string            `json:"working-directory"`
	TimeoutMinutes   int               `json:"timeout-minutes"`
}

func readWorkflow(t *testing.T) (w workflow) {
	t.Helper()
	require.NoError(t, yaml.UnmarshalStrict([]byte(read(t, "github/workflow.yml")), &w))
	return w
}

// scripts returns what the steps run.
func scripts(t *testing.T) (all []string) {
	t.Helper()
	for _, s := range readWorkflow(t).Jobs["agents"].Steps {
		if s.Run != "" {
			all = append(all, s.Run)
		}
	}
	return all
}

// lint runs program, an actionlint, on a workflow, without the linters that it would call in turn.
func lint(t *testing.T, program, text string) (said string, err error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "workflow.yml")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	out, err := exec.Command(program, "-shellcheck=", "-pyflakes=", "-no-color", file).CombinedOutput()
	return string(out), err
}

func TestTheWorkflowIsWhatGitHubTakes(t *testing.T) {
	bin := t.TempDir()
	install := exec.Command("go", "install", actionlint)
	install.Env = append(os.Environ(), "GOBIN="+bin, "GOFLAGS=", "GOWORK=off")
	if out, err := install.CombinedOutput(); err != nil {
		require.Empty(t, os.Getenv("SANDGLASS_NO_SKIP"), "%s", out)
		t.Skipf("actionlint cannot be built: %s", out)
	}
	program := filepath.Join(bin, "actionlint")
	text := read(t, "github/workflow.yml")
	out, err := lint(t, program, text)
	require.NoError(t, err, out)
	for right, wrong := range map[string]string{
		"working-directory:": "workdir:", "{{ always()": "{{ allways()", "{{ github.run_id": "{{ github.runid", "persist-credentials": "persist",
	} {
		require.Contains(t, text, right)
		out, err := lint(t, program, strings.Replace(text, right, wrong, 1))
		require.Error(t, err, "%s for %s is found", wrong, right)
		assert.NotEmpty(t, out)
	}
}

func TestTheWorkflowLooksAfterFailuresAndGivesTheKeyToFewSteps(t *testing.T) {
	w := readWorkflow(t)
	assert.Equal(t, map[string]string{"contents": "read"}, w.Permissions)
	assert.Equal(t, map[string]string{"SANDGLASS_FLEET": "ci-${{ github.run_id }}"}, w.Env, "no key for all steps")
	job := w.Jobs["agents"]
	assert.Positive(t, job.TimeoutMinutes)
	after := 0
	for _, s := range job.Steps {
		if strings.HasPrefix(s.Run, "sandglass ") {
			assert.Equal(t, map[string]string{"E2B_API_KEY": "${{ secrets.E2B_API_KEY }}"}, s.Env)
			assert.Positive(t, s.TimeoutMinutes)
		} else {
			assert.Empty(t, s.Env, s.Name)
		}
		if strings.HasPrefix(s.Run, "sandglass audit") || strings.HasPrefix(s.Run, "sandglass sweep") {
			after++
			assert.Equal(t, "${{ always() }}", s.If)
		}
	}
	assert.Equal(t, 2, after)
}
