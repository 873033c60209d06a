package deploy_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestNoLayerHoldsCredentialsOrWhatNoBuildNeeds(t *testing.T) {
	ignored := strings.Split(read(t, "../.dockerignore"), "\n")
	assert.Contains(t, ignored, "**/node_modules")
	assert.Contains(t, ignored, "**/kube*.json", "the kubeconfig that the documentation has people write")
	assert.NotContains(t, ignored, ".git", "by which the command says its version")
}

func TestTheDockerfile(t *testing.T) {
	var instructions []string
	var entry []string
	user, program := "", ""
	for line := range strings.Lines(read(t, "Dockerfile")) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch word {
		case "", "#":
			continue
		case "ARG":
			_, program, _ = strings.Cut(rest, "=")
			for _, folder := range []string{program, "examples/runner"} { // the default, and kubernetes/runner.yaml's
				assert.FileExists(t, filepath.Join("..", filepath.FromSlash(folder), "main.go"))
			}
		case "ENTRYPOINT":
			require.NoError(t, json.Unmarshal([]byte(rest), &entry))
		case "USER":
			user = rest
		case "WORKDIR":
			if name, ok := strings.CutPrefix(rest, "/src/"); ok {
				assert.Equal(t, "${PROGRAM}", name)
			}
		case "RUN":
			require.NotNil(t, shell(t, "sandglass sweep; "+rest), "the shell can read it")
		}
		instructions = append(instructions, word)
	}
	assert.Equal(t, []string{"FROM", "ARG", "WORKDIR", "COPY", "WORKDIR", "RUN", "FROM", "COPY", "USER", "ENTRYPOINT"}, instructions)
	assert.Equal(t, []string{"/program"}, entry)
	assert.Equal(t, "cmd/sandglass", program)
	assert.Equal(t, "65532:65532", user)
	for name, pod := range podSpecs(t) {
		require.NotNil(t, pod.SecurityContext.RunAsUser)
		assert.Equal(t, int64(65532), *pod.SecurityContext.RunAsUser, "%s runs it as the user that it is made for", name)
	}
}
