package speccheck_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/internal/fake/daytonafake"
	"github.com/sandglass-dev/sandglass/providers/daytona"
	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/speccheck"
)

func TestTheDaytonaFakeAnswersAsItIsDescribed(t *testing.T) {
	control := speccheck.Load(t, "daytona/api.json", "/api", daytonaExceptions()...)
	toolbox := speccheck.Load(t, "daytona/toolbox.json", "/", toolboxExceptions()[:1]...)
	fake := daytonafake.New(daytonafake.Options{Key: "dtn_key", Prompt: true})
	defer fake.Close()
	server := httptest.NewServer(fake)
	defer server.Close()
	key := caller{t, server.URL, http.Header{"Authorization": {"Bearer dtn_key"}, "X-Daytona-Sdk-Version": {"0.218.0"}}}
	api := func(method, path, body string, status int) string { return key.do(method, "/api"+path, body, status) }

	id := field(t, api("POST", "/sandbox", `{"name":"n1","labels":{"a":"b"},"env":{"A":"b"},"autoStopInterval":5,"autoDeleteInterval":0,"ttlMinutes":30}`, 200), "id")
	for !strings.Contains(api("GET", "/sandbox/"+id, "", 200), `"state":"started"`) {
	}
	api("GET", "/sandbox/n1", "", 200)
	api("GET", "/sandbox?limit=1&labels="+url.QueryEscape(`{"a":"b"}`)+"&sort=createdAt&order=asc&includeErroredDeleted=true&states=started&states=stopped", "", 200)
	api("GET", "/sandbox", "", 200)
	api("POST", "/sandbox/"+id+"/ttl/15", "", 200)
	api("POST", "/sandbox/"+id+"/autostop/1", "", 200)
	api("POST", "/sandbox/"+id+"/autodelete/0", "", 200)
	api("POST", "/sandbox/"+id+"/last-activity", "", 201)
	api("GET", "/sandbox/"+id+"/toolbox-proxy-url", "", 200)
	api("GET", "/sandbox/"+id+"/ports/8080/preview-url", "", 200)
	api("GET", "/sandbox/"+id+"/forks", "", 200)
	api("GET", "/api-keys/current", "", 200)
	inside := "/toolbox/" + id
	key.do("POST", inside+"/process/execute", `{"command":"echo hello","timeout":7}`, 200)
	key.do("POST", inside+"/process/session", `{"sessionId":"s1"}`, 201)
	command := field(t, key.do("POST", inside+"/process/session/s1/exec", `{"command":"echo hi","runAsync":true}`, 202), "cmdId")
	key.do("GET", inside+"/process/session/s1/command/"+command, "", 200)
	key.do("GET", inside+"/process/session/s1/command/"+command+"/logs", "", 200)
	key.do("DELETE", inside+"/process/session/s1", "", 204)
	key.do("GET", inside+"/files/info?path=/tmp", "", 200)
	key.do("GET", inside+"/files?path=/tmp", "", 200)
	key.do("GET", inside+"/files/download?path=/tmp/none", "", 404)
	key.do("GET", inside+"/work-dir", "", 200)
	api("POST", "/sandbox", `{"name":"n1","labels":{}}`, 409)
	api("DELETE", "/sandbox/"+id, "", 200)
	for strings.Contains(api("GET", "/sandbox?id="+id, "", 200), id) {
	}
	api("GET", "/sandbox/"+id, "", 404)

	checkDaytona(t, control, toolbox, fake)
}

func TestTheDaytonaAdapterSendsWhatIsDescribed(t *testing.T) {
	control := speccheck.Load(t, "daytona/api.json", "/api", daytonaExceptions()...)
	toolbox := speccheck.Load(t, "daytona/toolbox.json", "/", toolboxExceptions()...)
	fake := daytonafake.New(daytonafake.Options{Key: "dtn_key", Prompt: true})
	defer fake.Close()
	server := httptest.NewServer(fake)
	defer server.Close()
	p, err := daytona.New(daytona.Config{APIKey: "dtn_key", BaseURL: server.URL + "/api"})
	require.NoError(t, err)
	live(t, p, sandbox.Spec{Env: map[string]string{"A": "b"}, Ports: []int{8080}}, func() bool { // a command's session is ended
		return slices.ContainsFunc(fake.Requests(), func(r daytonafake.Request) bool { return r.Operation == "DeleteSession" && r.Status != 0 })
	})
	all(t, checkDaytona(t, control, toolbox, fake), "POST /sandbox", "GET /sandbox/{sandboxIdOrName}", "GET /sandbox",
		"POST /sandbox/{sandboxIdOrName}/ttl/{ttlMinutes}", "DELETE /sandbox/{sandboxIdOrName}",
		"POST /process/session", "POST /process/session/{sessionId}/exec", "DELETE /process/session/{sessionId}")
}

// daytonaExceptions are where the description of 2026-08-20 and what is known of the control plane differ.
func daytonaExceptions() []speccheck.Exception {
	return []speccheck.Exception{{
		Fault:  regexp.MustCompile(`\((400|404|409)\): answer: status is not supported`),
		Reason: "the description lists the answers of success only",
	}}
}

// toolboxExceptions are the same for the sandbox's daemon.
func toolboxExceptions() []speccheck.Exception {
	return []speccheck.Exception{{
		Fault:  regexp.MustCompile(`^GET /files/download \(404\): answer: .*Content-Type`),
		Reason: "a failure is JSON, and the description gives the content type of success for every status",
	}, {
		Fault:  regexp.MustCompile(`^GET /process/session/\S+/logs \(101\): answer: status is not supported`),
		Reason: "a followed log is a WebSocket, which the description does not know",
	}}
}

// checkDaytona holds everything that the fake was asked and has answered against the descriptions, and returns the
// operations.
func checkDaytona(t *testing.T, control, toolbox *speccheck.Spec, fake *daytonafake.Server) map[string]bool {
	t.Helper()
	met := map[string]bool{}
	for _, r := range fake.Requests() {
		spec, path := control, r.Path
		if rest, ok := strings.CutPrefix(r.Path, "/toolbox/"); ok {
			_, inner, _ := strings.Cut(rest, "/")
			spec, path = toolbox, "/"+inner
		}
		op, faults := spec.Check(speccheck.Exchange{
			Method: r.Method, Path: path, Query: r.Query, Header: r.Header, Body: r.Body,
			Status: r.Status, AnswerHeader: r.AnswerHeader, Answer: r.Answer,
		})
		if op != "" {
			met[op] = true
		}
		for _, f := range faults {
			assert.Fail(t, f)
		}
	}
	return met
}
