package boatfake_test

import (
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/sandglass-dev/sandglass/internal/fake/boatfake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestALifeOverARealSocketLeavesNoGoroutine(t *testing.T) {
	s := boatfake.New(boatfake.Options{Prompt: true})
	server := httptest.NewServer(s)
	w := &world{T: t, s: s, api: server.Client(), key: "any"}
	base := server.URL + "/api/v1"
	id := box(w.do("POST", base+"/sandboxes", `{}`).ok(202))["id"].(string)
	r := w.do("POST", base+"/sandboxes/"+id+"/commands", object{"command": "echo hi"}).ok(200)
	assert.Equal(t, "hi\n", r["stdout"])
	w.do("POST", base+"/sandboxes/"+id+"/commands", object{"command": "sleep 1000", "detached": true}).ok(200)
	w.do("DELETE", base+"/sandboxes/"+id, nil, "X-Ascii-Confirm-Delete", id).ok(202)
	w.do("GET", base+"/sandboxes/"+id, nil).no(404, "not_found")
	require.Empty(t, s.All())
	server.Close()
	closed := make(chan struct{})
	go func() { s.Close(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(30 * time.Second):
		t.Fatal("the server does not close")
	}
}
