package deploy_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTheDockerfile(t *testing.T) {
	var instructions []string
	var entry []string
	user := ""
	for line := range strings.Lines(read(t, "Dockerfile")) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch word {
		case "", "#":
			continue
		case "ENTRYPOINT":
			require.NoError(t, json.Unmarshal([]byte(rest), &entry))
		case "USER":
			user = rest
		case "WORKDIR":
			if name, ok := strings.CutPrefix(rest, "/src/"); ok {
				assert.DirExists(t, filepath.Join("..", filepath.FromSlash(name)))
			}
		case "RUN":
			require.NotNil(t, shell(t, "sandglass; "+rest), "the shell can read it")
		}
		instructions = append(instructions, word)
	}
	assert.Equal(t, []string{"FROM", "WORKDIR", "COPY", "WORKDIR", "RUN", "FROM", "COPY", "USER", "ENTRYPOINT"}, instructions)
	assert.Equal(t, []string{"/sandglass"}, entry)
	pod := cronJob(t).Spec.JobTemplate.Spec.Template.Spec
	require.NotNil(t, pod.SecurityContext.RunAsUser)
	assert.Equal(t, "65532:65532", user)
	assert.Equal(t, int64(65532), *pod.SecurityContext.RunAsUser, "the CronJob runs it as the user that it is made for")
}
