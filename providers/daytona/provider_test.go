package daytona_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/internal/httpapi"
	"github.com/sandglass-dev/sandglass/providers/daytona"
	"github.com/sandglass-dev/sandglass/sandbox"
)

const (
	notFound = `{"statusCode":404,"message":"Sandbox not found","error":"Not Found"}`
	noItems  = `{"items":[],"nextCursor":null}`
)

func TestAConfigurationWithFaultsIsRefused(t *testing.T) {
	for name, c := range map[string]daytona.Config{
		"nothing":                      {},
		"key and token":                {APIKey: "k", Token: "t", Organization: "o"},
		"a token without organization": {Token: "t"},
		"a key with a line's end":      {APIKey: "k\n"},
		"a URL without a scheme":       {APIKey: "k", BaseURL: "app.daytona.io/api"},
		"a URL with a user":            {APIKey: "k", BaseURL: "https://u:secret@daytona.test/api"},
		"a URL with a query":           {APIKey: "k", BaseURL: "https://daytona.test/api?key=secret"},
	} {
		_, err := daytona.New(c)
		require.ErrorIs(t, err, sandbox.ErrInvalid, name)
		assert.NotContains(t, err.Error(), "secret", name)
	}
}

func TestTheEnvironmentIsThatOfTheOfficialSDKs(t *testing.T) {
	clear := func() {
		for _, name := range []string{"API_KEY", "JWT_TOKEN", "ORGANIZATION_ID", "API_URL", "SERVER_URL", "TARGET"} {
			t.Setenv("DAYTONA_"+name, "")
		}
	}
	clear()
	_, err := daytona.FromEnv()
	require.ErrorIs(t, err, sandbox.ErrInvalid)
	assert.ErrorContains(t, err, "DAYTONA_API_KEY")

	name := func() string {
		p, err := daytona.FromEnv()
		require.NoError(t, err)
		return p.Name()
	}
	t.Setenv("DAYTONA_API_KEY", key)
	hosted := name()
	explicit, err := daytona.New(daytona.Config{APIKey: key, BaseURL: daytona.DefaultBaseURL + "/"})
	require.NoError(t, err)
	assert.Equal(t, explicit.Name(), hosted)
	assert.NotContains(t, hosted, key)
	t.Setenv("DAYTONA_JWT_TOKEN", "eyJ")
	assert.Equal(t, hosted, name(), "the key wins")
	t.Setenv("DAYTONA_SERVER_URL", "https://old.test/api")
	old := name()
	assert.NotEqual(t, hosted, old)
	t.Setenv("DAYTONA_API_URL", "https://new.test/api")
	assert.NotEqual(t, old, name())

	t.Setenv("DAYTONA_API_KEY", "")
	_, err = daytona.FromEnv()
	require.ErrorIs(t, err, sandbox.ErrInvalid, "a token needs an organization")
	t.Setenv("DAYTONA_ORGANIZATION_ID", "org")
	before := name()
	t.Setenv("DAYTONA_JWT_TOKEN", "eyK")
	assert.Equal(t, before, name(), "a new token is the same account")
	t.Setenv("DAYTONA_ORGANIZATION_ID", "other")
	assert.NotEqual(t, before, name())
}

func TestHeadersSayWhoAsks(t *testing.T) {
	var got http.Header
	answer := func(r *http.Request, _ string) *http.Response {
		got = r.Header.Clone()
		return says(200, noItems)
	}
	p, _ := stub(t, answer)
	_, err := collect(t.Context(), p, sandbox.Filter{})
	require.NoError(t, err)
	assert.Equal(t, "Bearer "+key, got.Get("Authorization"))
	assert.Equal(t, "0.205.1", got.Get("X-Daytona-SDK-Version"))
	assert.NotEmpty(t, got.Get("X-Daytona-Source"))
	assert.Contains(t, got.Get("User-Agent"), "sandglass/")
	assert.Empty(t, got.Get("X-Daytona-Organization-ID"), "a key is bound to one")
	p, _ = stub(t, answer, func(c *daytona.Config) { c.APIKey, c.Token, c.Organization = "", "eyJ.x.y", "org-7" })
	_, err = collect(t.Context(), p, sandbox.Filter{})
	require.NoError(t, err)
	assert.Equal(t, "Bearer eyJ.x.y", got.Get("Authorization"))
	assert.Equal(t, "org-7", got.Get("X-Daytona-Organization-ID"))
}

func TestStatesAreTranslated(t *testing.T) {
	for state, words := range map[sandbox.State]string{
		sandbox.StateStarting: "creating restoring starting resuming pending_build building_snapshot pulling_snapshot",
		sandbox.StateRunning:  "started resizing snapshotting forking",
		sandbox.StateEnding:   "stopping pausing destroying",
		sandbox.StateDormant:  "stopped paused archiving archived",
		sandbox.StateFailed:   "error build_failed",
		sandbox.StateGone:     "destroyed",
		sandbox.StateUnknown:  "unknown hibernating STARTED",
	} {
		for _, w := range append(strings.Fields(words), map[bool]string{true: ""}[state == sandbox.StateUnknown]) {
			if w != "" || state == sandbox.StateUnknown {
				assert.Equal(t, state, daytona.StateOf(w), "%q", w)
			}
		}
	}
}

func TestTimesAreTheServices(t *testing.T) {
	p, _ := stub(t, func(*http.Request, string) *http.Response {
		return says(200, madeAs(150*time.Second, with("state", "started"), with("errorReason", "see https://x.test/?token=abc")))
	})
	info, err := p.Get(t.Context(), uuid)
	require.NoError(t, err)
	assert.Equal(t, now, info.AsOf.UTC())
	assert.Equal(t, now, info.Created.UTC())
	assert.Equal(t, 150*time.Second, info.Left())
	assert.Equal(t, fixed().Mark.String(), info.Mark.String())
	assert.NotContains(t, info.Detail, "abc")
}

func TestAMarkCountsOnlyUnderItsOwnName(t *testing.T) {
	for name, ours := range map[string]bool{
		fixed().Mark.Name(): true,
		"DESTROYED_" + fixed().Mark.Name() + "_1767323045123": true,
		"fork":                                    false,
		"DESTROYED_fork_1767323045123":            false,
		"DESTROYED_" + fixed().Mark.Name():        false,
		"DESTROYED_" + fixed().Mark.Name() + "_x": false,
	} {
		p, _ := stub(t, func(*http.Request, string) *http.Response { return says(200, madeAs(time.Minute, with("name", name))) })
		info, err := p.Get(t.Context(), uuid)
		require.NoError(t, err)
		assert.Equal(t, ours, info.Mark == fixed().Mark, name)
	}
}

func TestALookThatFindsNothingAsksForWhatIsHidden(t *testing.T) {
	item := func(state string) string {
		return `{"items":[` + madeAs(time.Minute, with("state", state), with("desiredState", "destroyed")) + `],"nextCursor":null}`
	}
	for _, c := range []struct {
		name, list string
		status     int
		state      sandbox.State
		gone       bool
	}{
		{"nothing", noItems, 200, 0, true},
		{"failed", item("error"), 200, sandbox.StateFailed, false},
		{"stale", item("started"), 200, 0, true},
		{"another with that beginning", strings.Replace(item("error"), uuid, uuid+"0", 1), 200, 0, true},
		{"the list fails", `{"statusCode":500,"message":"x"}`, 500, 0, false},
		{"the list is cut off", `{"items":[`, 200, 0, false},
		{"a page without items", `{"nextCursor":null}`, 200, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, s := stub(t, func(r *http.Request, _ string) *http.Response {
				if r.URL.Path == "/api/sandbox" {
					assert.Equal(t, uuid, r.URL.Query().Get("id"))
					assert.Equal(t, "true", r.URL.Query().Get("includeErroredDeleted"))
					return says(c.status, c.list)
				}
				return says(404, notFound)
			})
			info, err := p.Get(t.Context(), uuid)
			assert.Equal(t, c.gone, errors.Is(err, sandbox.ErrNotFound), "%v", err)
			assert.Equal(t, c.state != 0, err == nil)
			assert.Equal(t, c.state, info.State)
			assert.Len(t, s.requests(), 2)
		})
	}
}

func TestAProxysNotFoundProvesNothing(t *testing.T) {
	p, _ := stub(t, func(*http.Request, string) *http.Response {
		return says(404, "<h1>404</h1>", "Content-Type", "text/html")
	})
	_, err := p.Get(t.Context(), uuid)
	require.Error(t, err)
	require.NotErrorIs(t, err, sandbox.ErrNotFound)
	require.Error(t, p.Delete(t.Context(), uuid))
	require.NotErrorIs(t, p.Delete(t.Context(), uuid), sandbox.ErrNotFound)
}

func TestADashboardsPageIsNoAnswer(t *testing.T) {
	p, _ := stub(t, func(*http.Request, string) *http.Response {
		return says(200, "<!doctype html><title>Daytona</title>", "Content-Type", "text/html; charset=utf-8")
	})
	_, err := p.Get(t.Context(), uuid)
	require.ErrorIs(t, err, sandbox.ErrInvalid)
	require.ErrorContains(t, err, "/api")
	require.ErrorIs(t, p.Delete(t.Context(), uuid), sandbox.ErrInvalid, "and no success")
	_, err = p.Extend(t.Context(), sandbox.Info{ID: uuid}, time.Minute)
	require.ErrorIs(t, err, sandbox.ErrInvalid)
	_, err = collect(t.Context(), p, sandbox.Filter{})
	require.ErrorIs(t, err, sandbox.ErrInvalid)
	_, err = p.Check(t.Context())
	require.ErrorIs(t, err, sandbox.ErrInvalid)
}

func TestAListAsksForEverythingInAnOrderThatDoesNotMove(t *testing.T) {
	var queries []url.Values
	p, _ := stub(t, func(r *http.Request, _ string) *http.Response {
		queries = append(queries, r.URL.Query())
		if r.URL.Query().Get("cursor") == "" {
			return says(200, `{"items":[`+madeAs(time.Minute)+`],"nextCursor":"MQ=="}`)
		}
		items := []string{
			madeAs(time.Minute), madeAs(time.Minute, with("id", uuid+"1")),
			madeAs(time.Minute, with("id", uuid+"2"), with("state", "destroyed")),
		}
		return says(200, `{"items":[`+strings.Join(items, ",")+`],"nextCursor":""}`)
	})
	all, err := collect(t.Context(), p, sandbox.Filter{Fleet: "a", Nonce: "b"})
	require.NoError(t, err)
	require.Len(t, all, 2, "once each, and without the destroyed")
	require.Len(t, queries, 2)
	for i, q := range queries {
		assert.Equal(t, "createdAt", q.Get("sort"))
		assert.Equal(t, "asc", q.Get("order"))
		assert.Equal(t, "200", q.Get("limit"))
		assert.Equal(t, "true", q.Get("includeErroredDeleted"))
		assert.JSONEq(t, `{"sandglass-fleet":"a","sandglass-nonce":"b"}`, q.Get("labels"))
		assert.Equal(t, []string{"", "MQ=="}[i], q.Get("cursor"))
		assert.Empty(t, q["states"])
	}
}

func TestAnEndlessListEnds(t *testing.T) {
	pages := 0
	p, _ := stub(t, func(*http.Request, string) *http.Response {
		pages++
		items := make([]string, 0, 200)
		for i := range 200 {
			items = append(items, fmt.Sprintf(`{"id":"s-%d-%d"}`, pages, i))
		}
		return says(200, fmt.Sprintf(`{"items":[%s],"nextCursor":"%d"}`, strings.Join(items, ","), pages))
	})
	n, err := 0, error(nil)
	for _, err = range p.List(t.Context(), sandbox.Filter{}) {
		n++
	}
	require.ErrorIs(t, err, httpapi.ErrEndless)
	assert.LessOrEqual(t, n, 100_001)
	e, ok := errors.AsType[*sandbox.APIError](err)
	require.True(t, ok)
	assert.Equal(t, sandbox.OpList, e.Op)
}

func TestAnExtendIsRoundedDownAndNeverForEver(t *testing.T) {
	p, s := stub(t, func(*http.Request, string) *http.Response {
		return says(201, madeAs(2*time.Minute, with("state", "started")))
	})
	info, err := p.Extend(t.Context(), sandbox.Info{ID: uuid}, 2*time.Minute+59*time.Second)
	require.NoError(t, err)
	assert.Equal(t, 2*time.Minute, info.Left())
	assert.Equal(t, []string{"POST /api/sandbox/" + uuid + "/ttl/2"}, s.requests())
	for _, w := range []time.Duration{0, -time.Minute, 59 * time.Second, 25 * time.Hour} {
		_, err := p.Extend(t.Context(), sandbox.Info{ID: uuid}, w)
		require.ErrorIs(t, err, sandbox.ErrInvalid)
		if w < time.Minute {
			require.ErrorIs(t, p.Shorten(t.Context(), uuid, w), sandbox.ErrInvalid)
		}
	}
	assert.Len(t, s.requests(), 1)
}

func TestAnExtendThatCannotBeReadIsNoSuccess(t *testing.T) {
	for name, body := range map[string]string{
		"no end":                 madeAs(0, without("autoDestroyAt"), with("state", "started")),
		"an end that is no time": madeAs(0, with("autoDestroyAt", "soon"), with("state", "started")),
		"another":                madeAs(time.Minute, with("id", uuid+"1"), with("state", "started")),
		"empty":                  "",
		"null":                   "null",
	} {
		p, _ := stub(t, func(*http.Request, string) *http.Response { return says(200, body) })
		_, err := p.Extend(t.Context(), sandbox.Info{ID: uuid}, time.Minute)
		assert.Error(t, err, name)
	}
}

func TestAnExtendBeyondTheLongestLifeTellsTheEndThatStays(t *testing.T) {
	look := madeAs(90*time.Second, with("state", "started"))
	p, _ := stub(t, func(r *http.Request, _ string) *http.Response {
		if r.Method == http.MethodPost {
			return says(400, `{"statusCode":400,"message":"TTL exceeds the maximum sandbox lifespan"}`)
		}
		return says(200, look)
	})
	info, err := p.Extend(t.Context(), sandbox.Info{ID: uuid}, 3*time.Minute)
	require.NoError(t, err)
	assert.Equal(t, 90*time.Second, info.Left())
	look = madeAs(10*time.Minute, with("state", "started"))
	_, err = p.Extend(t.Context(), sandbox.Info{ID: uuid}, 3*time.Minute)
	require.ErrorIs(t, err, sandbox.ErrInvalid, "it was refused for another reason")
}

func TestAShortenNeverMovesTheEndAway(t *testing.T) {
	for _, c := range []struct {
		left time.Duration
		sent bool
	}{{30 * time.Second, false}, {time.Minute, false}, {64 * time.Second, false}, {70 * time.Second, true}, {time.Hour, true}} {
		p, s := stub(t, func(*http.Request, string) *http.Response { return says(200, madeAs(c.left, with("state", "started"))) })
		require.NoError(t, p.Shorten(t.Context(), uuid, 90*time.Second))
		assert.Equal(t, c.sent, len(s.requests()) == 2, "%v", c.left)
		if c.sent {
			assert.Equal(t, "POST /api/sandbox/"+uuid+"/ttl/1", s.requests()[1])
		}
	}
}

func TestARefusedDeleteIsLookedInto(t *testing.T) {
	for _, c := range []struct {
		name   string
		status int
		look   string
		code   int
		want   error
	}{
		{"being deleted", 409, madeAs(time.Minute, with("state", "destroying"), with("desiredState", "destroyed")), 200, nil},
		{"to be deleted", 409, madeAs(time.Minute, with("state", "started"), with("desiredState", "destroyed")), 200, nil},
		{"starting", 409, madeAs(time.Minute), 200, sandbox.ErrConflict},
		{"gone meanwhile", 409, notFound, 404, sandbox.ErrNotFound},
		{"cannot be seen", 409, `{"statusCode":503,"message":"x"}`, 503, sandbox.ErrConflict},
		{"an older service's word for 409", 400, madeAs(time.Minute), 200, sandbox.ErrConflict},
		{"being deleted, older", 400, madeAs(time.Minute, with("desiredState", "destroyed")), 200, nil},
		{"something else", 400, madeAs(time.Minute, with("state", "started")), 200, sandbox.ErrInvalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, _ := stub(t, func(r *http.Request, _ string) *http.Response {
				switch {
				case r.Method == http.MethodDelete:
					return says(c.status, fmt.Sprintf(`{"statusCode":%d,"message":"Sandbox state change in progress"}`, c.status))
				case strings.HasSuffix(r.URL.Path, "/forks"):
					return says(200, "[]")
				}
				return says(c.code, c.look)
			})
			err := p.Delete(t.Context(), uuid)
			if c.want == nil {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, c.want)
			if c.want != sandbox.ErrNotFound {
				require.NotErrorIs(t, err, sandbox.ErrNotFound)
			}
		})
	}
}

func TestAForkThatIsItsOwnChildIsNoEndlessDelete(t *testing.T) {
	p, s := stub(t, func(r *http.Request, _ string) *http.Response {
		switch {
		case r.Method == http.MethodDelete:
			return says(400, `{"statusCode":400,"message":"has forks"}`)
		case strings.HasSuffix(r.URL.Path, "/forks"):
			return says(200, `[{"id":"a","state":"started"},{"id":"b","state":"started"},null]`)
		}
		id := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
		return says(200, madeAs(time.Minute, with("id", id), with("state", "started")))
	})
	require.Error(t, p.Delete(t.Context(), uuid))
	assert.Less(t, len(s.requests()), 500)
}

func TestIDsThatAreNoneMakeNoRequest(t *testing.T) {
	p, s := stub(t, func(*http.Request, string) *http.Response { return says(200, madeAs(time.Minute)) })
	for _, id := range []string{"", "a/b", "../x", "a b", "ü", "a?b", "a#b", "a%2fb", strings.Repeat("x", 129)} {
		_, err := p.Get(t.Context(), id)
		require.ErrorIs(t, err, sandbox.ErrNotFound)
		require.ErrorIs(t, p.Delete(t.Context(), id), sandbox.ErrNotFound)
		_, err = p.Open(sandbox.Info{ID: id}).Exec(t.Context(), sandbox.Shell("true"))
		require.ErrorIs(t, err, sandbox.ErrNotFound)
	}
	assert.Empty(t, s.requests())
}

func TestCheckSaysWhatIsMissing(t *testing.T) {
	keyed := func(permissions string) func(*http.Request, string) *http.Response {
		return func(r *http.Request, _ string) *http.Response {
			if r.URL.Path == "/api/sandbox" {
				return says(200, noItems)
			}
			assert.Equal(t, "/api/api-keys/current", r.URL.Path)
			return says(200, `{"name":"ci","value":"dtn_***","userId":"u1","permissions":`+permissions+`}`)
		}
	}
	p, _ := stub(t, keyed(`["write:sandboxes","delete:sandboxes"]`))
	account, err := p.Check(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "u1/ci", account.ID)
	assert.True(t, account.SkewKnown)
	assert.InDelta(t, time.Until(now).Hours(), account.Skew.Hours(), 1)
	for _, permissions := range []string{`["write:sandboxes"]`, `["delete:sandboxes"]`, `[]`} {
		p, _ = stub(t, keyed(permissions))
		_, err = p.Check(t.Context())
		require.ErrorIs(t, err, sandbox.ErrPermission)
	}
	p, _ = stub(t, keyed(`null`))
	_, err = p.Check(t.Context())
	require.Error(t, err)
	p, s := stub(t, keyed(`[]`), func(c *daytona.Config) { c.APIKey, c.Token, c.Organization = "", "eyJ", "o" })
	_, err = p.Check(t.Context())
	require.NoError(t, err, "a token's permissions cannot be read")
	assert.Len(t, s.requests(), 1)
	p, _ = stub(t, func(*http.Request, string) *http.Response { return says(401, `{"statusCode":401,"message":"no"}`) })
	_, err = p.Check(t.Context())
	require.ErrorIs(t, err, sandbox.ErrUnauthenticated)
}

func TestAKeyGoesToNoMachineWithoutTLS(t *testing.T) {
	for _, address := range []string{"http://proxy.daytona.test/toolbox", "ftp://x/toolbox", "https://u:p@x/", "toolbox"} {
		p, s := stub(t, func(*http.Request, string) *http.Response {
			return says(200, madeAs(time.Minute, with("state", "started"), with("toolboxProxyUrl", address)))
		})
		_, err := p.Open(sandbox.Info{ID: uuid}).Exec(t.Context(), sandbox.Shell("true"))
		require.Error(t, err, address)
		assert.Len(t, s.requests(), 1, address)
	}
}

func TestEndpointsNeedADeclaredPort(t *testing.T) {
	p, s := stub(t, func(r *http.Request, _ string) *http.Response {
		if strings.HasSuffix(r.URL.Path, "/preview-url") {
			return says(200, `{"sandboxId":"x","url":"https://3000-x.proxy.test","token":"tok-123456"}`)
		}
		return says(200, madeAs(time.Minute, with("labels", map[string]string{"sandglass-ports": "8080,3000"})))
	})
	sb := p.Open(sandbox.Info{ID: uuid})
	for range 2 {
		e, err := sb.Endpoint(t.Context(), 3000)
		require.NoError(t, err)
		token := map[string]string{"X-Daytona-Preview-Token": "tok-123456"}
		assert.Equal(t, sandbox.Endpoint{URL: "https://3000-x.proxy.test", Header: token}, e)
	}
	_, err := sb.Endpoint(t.Context(), 300)
	require.ErrorIs(t, err, sandbox.ErrInvalid)
	assert.Len(t, s.requests(), 3, "one look, and one request for each answer")
}

func TestSnapshotsAreThoseOfTheSandboxAlone(t *testing.T) {
	p, s := stub(t, func(r *http.Request, _ string) *http.Response {
		switch {
		case r.Method == http.MethodDelete:
			return says(200, "")
		case r.URL.Path == "/api/snapshots":
			assert.Equal(t, uuid, r.URL.Query().Get("sourceSandboxId"))
			if r.URL.Query().Get("page") == "1" {
				return says(200, `{"items":[{"id":"s1","sourceSandboxId":"`+uuid+`","createdAt":"2031-05-06T07:08:09Z"},
					{"id":"s2","sourceSandboxId":null}],"total":4,"page":1,"totalPages":2}`)
			}
			return says(200, `{"items":[{"id":"s3","sourceSandboxId":"`+uuid+`","general":true},
				{"id":"s4","sourceSandboxId":"`+uuid+`"}],"total":4,"page":2,"totalPages":2}`)
		}
		return says(404, notFound)
	})
	var ids []string
	for snap, err := range p.Snapshots(t.Context(), uuid) {
		require.NoError(t, err)
		assert.Equal(t, uuid, snap.Source)
		ids = append(ids, snap.ID)
	}
	assert.Equal(t, []string{"s1", "s4"}, ids)
	require.NoError(t, p.DeleteSnapshot(t.Context(), sandbox.Snapshot{ID: "s4", Source: uuid}))
	require.ErrorIs(t, p.DeleteSnapshot(t.Context(), sandbox.Snapshot{ID: "s2", Source: uuid}), sandbox.ErrNotFound)
	for _, r := range s.requests() {
		assert.NotEqual(t, "DELETE /api/snapshots/s2", r)
	}
}

func TestAnEndlessBodyIsCut(t *testing.T) {
	p, _ := stub(t, func(*http.Request, string) *http.Response {
		r := says(200, "")
		r.Body = endless{}
		return r
	})
	_, err := p.Get(t.Context(), uuid)
	require.ErrorIs(t, err, httpapi.ErrTooLarge)
	_, err = collect(t.Context(), p, sandbox.Filter{})
	require.ErrorIs(t, err, httpapi.ErrTooLarge)
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

func (endless) Close() error { return nil }

func TestContextsThatAreOverMakeNoRequest(t *testing.T) {
	p, s := stub(t, func(*http.Request, string) *http.Response { return says(200, madeAs(time.Minute)) })
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	_, err := p.Create(ctx, fixed())
	require.ErrorIs(t, err, why)
	require.ErrorIs(t, p.Delete(ctx, uuid), why)
	_, err = p.Get(ctx, uuid)
	require.ErrorIs(t, err, why)
	_, err = collect(ctx, p, sandbox.Filter{})
	require.ErrorIs(t, err, why)
	assert.Empty(t, s.requests())
}

func FuzzRecord(f *testing.F) {
	f.Add([]byte(madeAs(time.Minute)))
	f.Add([]byte(`{"items":[` + madeAs(time.Minute) + `],"nextCursor":"x"}`))
	f.Add([]byte(`{"id":"a","labels":null,"autoStopInterval":1e300,"autoDestroyAt":"","createdAt":5}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		p, _ := stub(t, func(*http.Request, string) *http.Response { return says(200, string(body)) })
		if info, err := p.Get(t.Context(), uuid); err == nil {
			require.Equal(t, uuid, info.ID)
		}
		n := 0
		for range p.List(t.Context(), sandbox.Filter{}) {
			n++
		}
		require.LessOrEqual(t, n, 1+len(body))
		_, _ = p.Create(t.Context(), fixed())
		_, _ = p.Extend(t.Context(), sandbox.Info{ID: uuid}, time.Minute)
		_ = p.Shorten(t.Context(), uuid, time.Minute)
	})
}

func TestWithoutTTLABeatIsAnActivityAndALook(t *testing.T) {
	interval, state := 5, "started"
	p, s := stub(t, func(r *http.Request, _ string) *http.Response {
		if strings.HasSuffix(r.URL.Path, "/last-activity") {
			return says(201, "") // of a dead one too
		}
		if strings.Contains(r.URL.Path, "/autostop/") {
			interval = 3
		}
		return says(200, madeAs(time.Hour, with("state", state), with("autoStopInterval", interval)))
	}, allowIdle)
	info, err := p.Extend(t.Context(), sandbox.Info{ID: uuid}, 5*time.Minute)
	require.NoError(t, err)
	assert.Equal(t, sandbox.StateRunning, info.State)
	assert.True(t, info.Deadline.IsZero(), "its TTL is no lease")
	assert.Equal(t, []string{"POST /api/sandbox/" + uuid + "/last-activity", "GET /api/sandbox/" + uuid}, s.requests())
	_, err = p.Extend(t.Context(), sandbox.Info{ID: uuid}, 3*time.Minute)
	require.NoError(t, err)
	assert.Equal(t, "POST /api/sandbox/"+uuid+"/autostop/3", s.requests()[4], "another length")
	state = "stopped"
	info, err = p.Extend(t.Context(), sandbox.Info{ID: uuid}, time.Minute)
	require.NoError(t, err)
	assert.Equal(t, sandbox.StateDormant, info.State)
	assert.Len(t, s.requests(), 7, "and nothing is set of what sleeps")

	for _, c := range []struct {
		interval int
		sent     bool
	}{{1, false}, {2, false}, {5, true}, {0, true}} {
		interval = c.interval
		from := len(s.requests())
		require.NoError(t, p.Shorten(t.Context(), uuid, 2*time.Minute))
		assert.Equal(t, c.sent, len(s.requests()) == from+2, "%d", c.interval)
	}
}
