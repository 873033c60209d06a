package speccheck_test

import (
	"net/http/httptest"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/internal/fake/boatfake"
	"github.com/sandglass-dev/sandglass/providers/boat"
	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/speccheck"
)

func TestTheBoatAdapterSendsWhatIsDescribed(t *testing.T) {
	spec := speccheck.Load(t, "boat/boat-v1-lifecycle-facts.yaml", "/api/v1", boatExceptions()...)
	fake := boatfake.New(boatfake.Options{Key: "boat_key", Prompt: true})
	defer fake.Close()
	server := httptest.NewServer(fake)
	defer server.Close()
	p, err := boat.New(boat.Config{APIKey: "boat_key", BaseURL: server.URL + "/api/v1"})
	require.NoError(t, err)
	live(t, p, sandbox.Spec{Env: map[string]string{"A": "b"}, Ports: []int{8080}})
	met := map[string]bool{}
	for _, r := range fake.Requests() {
		op, faults := spec.Check(speccheck.Exchange{
			Method: r.Method, Path: r.Path, Query: r.Query, Header: r.Header, Body: r.Body,
			Status: r.Status, AnswerHeader: r.AnswerHeader, Answer: r.Answer,
		})
		if op != "" {
			met[op] = true
		}
		for _, f := range faults {
			assert.Fail(t, f)
		}
	}
	all(t, met, "POST /sandboxes", "GET /sandboxes", "GET /sandboxes/{sandboxId}",
		"PATCH /sandboxes/{sandboxId}", "DELETE /sandboxes/{sandboxId}", "POST /sandboxes/{sandboxId}/commands", "PUT /sandboxes/{sandboxId}/files")
}

// boatExceptions are where the restated facts of the description say less than the service answers.
func boatExceptions() []speccheck.Exception {
	return []speccheck.Exception{{
		Fault:  regexp.MustCompile(`^GET /api/v1/(limits|named-snapshots) \(200\): answer: the field \.(ok|type) is not described`),
		Reason: "every answer has them, and the restatement leaves them out of some",
	}, {
		Fault:  regexp.MustCompile(`/commands \(200\): answer: .*unsupported content type "application/x-ndjson"`),
		Reason: "a stream of lines, which the validator cannot read; the adapter's own tests hold it",
	}}
}
