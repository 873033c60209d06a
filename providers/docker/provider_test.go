package docker_test

import (
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/providers/docker"
	"github.com/sandglass-dev/sandglass/sandbox"
)

func TestAnEngineThatIsNotThereIsARefusalThatSaysWhatToDo(t *testing.T) {
	t.Parallel()
	p, err := docker.New(docker.Config{Host: "unix://" + filepath.Join(t.TempDir(), "none.sock")})
	require.NoError(t, err)
	_, err = p.Check(t.Context())
	require.ErrorIs(t, err, sandbox.ErrUnavailable)
	require.ErrorContains(t, err, "DOCKER_HOST")
	_, err = p.Create(t.Context(), order(time.Minute))
	require.ErrorIs(t, err, sandbox.ErrUnavailable)
	require.True(t, isRefused(err))
}

func isRefused(err error) bool {
	e, ok := errors.AsType[*sandbox.APIError](err)
	return ok && e.Refused
}

func TestClientAndHostTogetherAreInvalid(t *testing.T) {
	t.Parallel()
	c, err := client.New()
	require.NoError(t, err)
	_, err = docker.New(docker.Config{Client: c, Host: "tcp://127.0.0.1:1"})
	require.ErrorIs(t, err, sandbox.ErrInvalid)
	_, err = docker.New(docker.Config{Host: "nonsense"})
	require.ErrorIs(t, err, sandbox.ErrInvalid)
	p, err := docker.New(docker.Config{Client: c, Name: "docker/mine"})
	require.NoError(t, err)
	got, ok := sandbox.As[*client.Client](p)
	require.True(t, ok)
	assert.Same(t, c, got)
	assert.Equal(t, "docker/mine", p.Name())
}

func TestEnginesHaveDifferentNames(t *testing.T) {
	t.Parallel()
	a, err := docker.New(docker.Config{Host: "tcp://127.0.0.1:1"})
	require.NoError(t, err)
	b, err := docker.New(docker.Config{Host: "tcp://127.0.0.1:2"})
	require.NoError(t, err)
	assert.NotEqual(t, a.Name(), b.Name())
	assert.NotContains(t, a.Name(), "127.0.0.1")
}

func TestPortsAreRefusedWhereTheEnginesLoopbackIsNotOurs(t *testing.T) {
	t.Parallel()
	p, err := docker.New(docker.Config{Host: "tcp://192.0.2.1:2375"})
	require.NoError(t, err)
	assert.False(t, p.Capabilities().Endpoints)
	req := order(time.Minute)
	req.Spec.Ports = []int{80}
	_, err = p.Create(t.Context(), req) // no such engine: an answer this quick was not its
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.True(t, isRefused(err))
}

func TestWhatCannotBeHonouredIsRefusedBeforeAnyRequest(t *testing.T) {
	t.Parallel()
	requests := 0
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests++ }))
	defer server.Close()
	p, err := docker.New(docker.Config{Host: "tcp://" + server.Listener.Addr().String()})
	require.NoError(t, err)
	for name, c := range map[string]struct {
		change func(*sandbox.CreateRequest)
		kind   error
	}{
		"disk":             {func(r *sandbox.CreateRequest) { r.Spec.Disk = 1 << 30 }, errors.ErrUnsupported},
		"foreign options":  {func(r *sandbox.CreateRequest) { r.Spec.Native = struct{}{} }, sandbox.ErrInvalid},
		"options by value": {func(r *sandbox.CreateRequest) { r.Spec.Native = docker.Options{} }, sandbox.ErrInvalid},
		"ports offline":    {func(r *sandbox.CreateRequest) { r.Spec.Offline, r.Spec.Ports = true, []int{80} }, sandbox.ErrInvalid},
		"network offline":  {func(r *sandbox.CreateRequest) { r.Spec.Offline, r.Spec.Native = true, &docker.Options{Network: "x"} }, sandbox.ErrInvalid},
		"ports of the host": {func(r *sandbox.CreateRequest) {
			r.Spec.Ports, r.Spec.Native = []int{80}, &docker.Options{Network: "host"}
		}, sandbox.ErrInvalid},
		"negative pids":         {func(r *sandbox.CreateRequest) { r.Spec.Native = &docker.Options{PidsLimit: -1} }, sandbox.ErrInvalid},
		"negative CPU":          {func(r *sandbox.CreateRequest) { r.Spec.CPU = -1 }, sandbox.ErrInvalid},
		"window of a fraction":  {func(r *sandbox.CreateRequest) { r.Window += time.Millisecond }, sandbox.ErrInvalid},
		"window too short":      {func(r *sandbox.CreateRequest) { r.Window = time.Second }, sandbox.ErrInvalid},
		"window too long":       {func(r *sandbox.CreateRequest) { r.Window = 25 * time.Hour }, sandbox.ErrInvalid},
		"lifetime without end":  {func(r *sandbox.CreateRequest) { r.Mark.Lifetime = 1000 * time.Hour }, sandbox.ErrInvalid},
		"no mark":               {func(r *sandbox.CreateRequest) { r.Mark = sandbox.Mark{} }, sandbox.ErrInvalid},
		"long tag":              {func(r *sandbox.CreateRequest) { r.Tags = map[string]string{"k": strings.Repeat("v", 4097)} }, sandbox.ErrInvalid},
		"tag without a name":    {func(r *sandbox.CreateRequest) { r.Tags = map[string]string{"": "v"} }, sandbox.ErrInvalid},
		"variable without name": {func(r *sandbox.CreateRequest) { r.Spec.Env = map[string]string{"": "v"} }, sandbox.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			req := order(time.Minute)
			c.change(&req)
			info, err := p.Create(t.Context(), req)
			require.ErrorIs(t, err, c.kind)
			assert.True(t, isRefused(err))
			assert.Empty(t, info.ID)
		})
	}
	assert.Zero(t, requests)
}

func TestAMissingImageIsInvalidAndLeavesNothing(t *testing.T) {
	t.Parallel()
	p := engine(t)
	req := order(time.Minute)
	req.Spec.Image = "127.0.0.1:1/no/such:image" // a registry that refuses connections
	info, err := p.Create(t.Context(), req)
	require.ErrorIs(t, err, sandbox.ErrInvalid)
	require.NotErrorIs(t, err, sandbox.ErrNotFound)
	require.ErrorContains(t, err, "docker pull")
	assert.True(t, isRefused(err))
	assert.Empty(t, info.ID)
	assert.False(t, exists(t, req.Mark.Name()))

	req.Spec.Image = "No Such Form"
	_, err = p.Create(t.Context(), req)
	require.ErrorIs(t, err, sandbox.ErrInvalid)
}

func TestAnImageWithoutAShellIsInvalidAndLeavesNothing(t *testing.T) {
	t.Parallel()
	p := engine(t)
	req := order(time.Minute)
	req.Spec.Image = imported(t, "no-shell", map[string]string{"/bin/true": "/bin/true"})
	info, err := p.Create(t.Context(), req)
	require.ErrorIs(t, err, sandbox.ErrInvalid)
	require.ErrorContains(t, err, "/bin/sh")
	assert.True(t, isRefused(err))
	assert.Empty(t, info.ID)
	assert.False(t, exists(t, req.Mark.Name()))
}

func TestAShellThatIsNoneIsInvalidAndLeavesNothing(t *testing.T) {
	t.Parallel()
	p := engine(t)
	req := order(time.Minute)
	req.Spec.Image = imported(t, "false-shell", map[string]string{"/bin/sh": "/bin/false"})
	info, err := p.Create(t.Context(), req)
	require.ErrorIs(t, err, sandbox.ErrInvalid)
	assert.True(t, isRefused(err))
	assert.Empty(t, info.ID)
	assert.False(t, exists(t, req.Mark.Name()))
}

// The engine's answer to the start is held back until the watchdog has come to the end of its lease.
func TestALeaseThatEndsBeforeTheFirstBeatIsNoFaultOfTheImage(t *testing.T) {
	t.Parallel()
	direct := engine(t)
	isStart := func(r *http.Request) bool {
		return strings.Contains(r.URL.Path, "/containers/") && strings.HasSuffix(r.URL.Path, "/start")
	}
	for name, c := range map[string]struct {
		window  time.Duration
		earlier bool // an earlier create of the same mark has started it
	}{"its own window": {window: 2 * time.Second}, "that of an earlier create": {window: time.Minute, earlier: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := throughProxy(t)
			req := order(c.window)
			if c.earlier {
				create(t, direct, req)
			}
			p.add(&fault{about: isStart, once: true, do: func(p *proxy, w http.ResponseWriter, r *http.Request) {
				said := httptest.NewRecorder()
				p.forward.ServeHTTP(said, r)
				words := strings.Split(r.URL.Path, "/")
				id := words[len(words)-2]
				if c.earlier {
					assert.NoError(t, direct.Shorten(t.Context(), id, 2*time.Second))
				}
				for exists(t, id) {
					<-time.After(50 * time.Millisecond)
				}
				w.WriteHeader(said.Code)
			}})
			info, err := p.provider.Create(t.Context(), req)
			require.ErrorIs(t, err, sandbox.ErrUnavailable)
			require.NotErrorIs(t, err, sandbox.ErrInvalid)
			require.NotContains(t, err.Error(), "/bin/sh")
			assert.True(t, isRefused(err), "it is gone, so that another try can do no harm")
			assert.Empty(t, info.ID)
			assert.False(t, exists(t, req.Mark.Name()))
		})
	}
}

func TestACreateCancelledAtAnyPointLeavesNothingThatRunsWithoutALease(t *testing.T) {
	t.Parallel()
	p := engine(t)
	c := judge(t)
	owner := strings.ToLower(rand.Text())
	marked := client.ContainerListOptions{All: true, Filters: client.Filters{}.Add("label", sandbox.FleetKey+"="+owner)}
	for i := range 12 {
		req := order(4 * time.Second)
		req.Mark.Fleet = owner
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*15*time.Millisecond)
		info, err := p.Create(ctx, req)
		cancel()
		if err != nil {
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		if isRefused(err) {
			assert.Empty(t, info.ID)
			// The engine may still be removing it.
			until(t, removal, "nothing, as was said", func() bool { return !exists(t, req.Mark.Name()) })
		}
	}
	<-time.After(5 * time.Second) // what was on its way has arrived
	var left []container.Summary
	until(t, 5*time.Second+removal, "nothing runs", func() bool {
		r, err := c.ContainerList(context.Background(), marked)
		require.NoError(t, err)
		left = r.Items
		return !slices.ContainsFunc(left, func(s container.Summary) bool { return s.State != container.StateCreated })
	})
	t.Logf("%d created and not started", len(left))
	for _, s := range left {
		_, err := c.ContainerRemove(context.Background(), s.ID, client.ContainerRemoveOptions{Force: true})
		require.NoError(t, err)
	}
}

func TestTheSameMarkNeverMakesASecondContainer(t *testing.T) {
	t.Parallel()
	p := engine(t)
	req := order(time.Minute)
	info := create(t, p, req)
	again, err := p.Create(t.Context(), req)
	require.NoError(t, err)
	assert.Equal(t, info.ID, again.ID)
	assert.Equal(t, info.Run, again.Run)

	other := req
	other.Mark.Fleet = "another"
	_, err = p.Create(t.Context(), other)
	require.ErrorIs(t, err, sandbox.ErrConflict)
	assert.True(t, isRefused(err))
	assert.True(t, exists(t, info.ID))
}

func TestWhatWasOnlyCreatedIsResidueAndStartedByARepeatedCreate(t *testing.T) {
	t.Parallel()
	p := engine(t)
	c := judge(t)
	req := order(time.Minute)
	info := create(t, p, req)
	r, err := c.ContainerInspect(t.Context(), info.ID, client.ContainerInspectOptions{})
	require.NoError(t, err)
	require.NoError(t, p.Delete(t.Context(), info.ID))
	until(t, removal, "removed", func() bool { return !exists(t, info.ID) })

	made, err := c.ContainerCreate(t.Context(), client.ContainerCreateOptions{
		Name: req.Mark.Name(), Config: r.Container.Config, HostConfig: r.Container.HostConfig,
	})
	require.NoError(t, err)
	got, err := p.Get(t.Context(), made.ID)
	require.NoError(t, err)
	assert.Equal(t, sandbox.StateDormant, got.State)
	assert.Equal(t, req.Mark.String(), got.Mark.String())
	assert.True(t, got.Deadline.IsZero())
	assert.Len(t, list(t, p, sandbox.Filter{Fleet: fleet, Nonce: req.Mark.Nonce}), 1)

	again, err := p.Create(t.Context(), req)
	require.NoError(t, err)
	assert.Equal(t, made.ID, again.ID)
	assert.Equal(t, sandbox.StateRunning, again.State)
}

func list(t *testing.T, p *docker.Provider, f sandbox.Filter) []sandbox.Info {
	t.Helper()
	var all []sandbox.Info
	for info, err := range p.List(t.Context(), f) {
		require.NoError(t, err)
		all = append(all, info)
	}
	return all
}

func TestMarkTagsAndTimesAreReadBack(t *testing.T) {
	t.Parallel()
	p := engine(t)
	const window = 10 * time.Minute
	req := order(window)
	req.Tags = map[string]string{"agent_job_id": "7", "empty": "", "ключ": "=,\"\n"}
	began := time.Now()
	info := create(t, p, req)
	var seen []sandbox.Info
	until(t, time.Minute, "every look has an answer on the lease in time", func() bool {
		get, err := p.Get(t.Context(), info.ID)
		require.NoError(t, err)
		seen = []sandbox.Info{info, get}
		for _, f := range []sandbox.Filter{{Fleet: fleet}, {}, {Nonce: req.Mark.Nonce}} {
			all := list(t, p, f)
			i := slices.IndexFunc(all, func(i sandbox.Info) bool { return i.ID == info.ID })
			require.GreaterOrEqual(t, i, 0, "%+v", f)
			seen = append(seen, all[i])
		}
		return !slices.ContainsFunc(seen, func(i sandbox.Info) bool { return i.Deadline.IsZero() })
	})
	elapsed := time.Since(began)
	for _, i := range seen {
		assert.Equal(t, req.Mark.String(), i.Mark.String())
		assert.Equal(t, req.Tags, i.Tags)
		assert.Equal(t, sandbox.StateRunning, i.State)
		assert.Equal(t, info.Run, i.Run)
		assert.Equal(t, info.Created, i.Created)
		assert.LessOrEqual(t, i.Left(), window)
		assert.GreaterOrEqual(t, i.Left(), window-2*elapsed, "an answer's own time is taken off too")
		assert.WithinDuration(t, time.Now(), i.AsOf, elapsed+time.Minute, "the test's engine shares our clock")
		assert.Equal(t, i.Created.Add(time.Hour), i.HardDeadline())
	}
	assert.Empty(t, list(t, p, sandbox.Filter{Fleet: "no-such-fleet"}))
}

func TestAMarkCountsOnlyUnderItsOwnName(t *testing.T) {
	t.Parallel()
	p := engine(t)
	c := judge(t)
	req := order(time.Minute)
	req.Tags = map[string]string{"a": "1", "b": "2"}
	info := create(t, p, req)
	committed, err := c.ContainerCommit(t.Context(), info.ID, client.ContainerCommitOptions{Reference: "sandglass-test/committed:" + req.Mark.Nonce})
	require.NoError(t, err)
	t.Cleanup(func() {
		_, _ = c.ImageRemove(context.Background(), committed.ID, client.ImageRemoveOptions{Force: true, PruneChildren: true})
	})

	foreign, err := c.ContainerCreate(t.Context(), client.ContainerCreateOptions{Image: committed.ID})
	require.NoError(t, err)
	t.Cleanup(func() {
		_, _ = c.ContainerRemove(context.Background(), foreign.ID, client.ContainerRemoveOptions{Force: true})
	})
	got, err := p.Get(t.Context(), foreign.ID)
	require.NoError(t, err)
	assert.Zero(t, got.Mark)
	assert.Empty(t, got.Tags)
	for _, i := range list(t, p, sandbox.Filter{Nonce: req.Mark.Nonce}) {
		assert.Equal(t, i.ID == info.ID, i.Mark.Nonce == req.Mark.Nonce)
	}

	ours := order(time.Minute)
	ours.Spec.Image = "sandglass-test/committed:" + req.Mark.Nonce
	ours.Tags = map[string]string{"b": "3"}
	made := create(t, p, ours)
	assert.Equal(t, ours.Tags, made.Tags)
	assert.Equal(t, ours.Mark.String(), made.Mark.String())
}

func TestIDsThatAreNoneAreNotFound(t *testing.T) {
	t.Parallel()
	p := engine(t)
	info := create(t, p, order(time.Minute))
	for _, id := range []string{"", "x", "../containers", info.Mark.Name(), info.ID[:12], strings.Repeat("0", 64), strings.ToUpper(info.ID), info.ID + "/"} {
		_, err := p.Get(t.Context(), id)
		require.ErrorIs(t, err, sandbox.ErrNotFound, id)
		require.ErrorIs(t, p.Delete(t.Context(), id), sandbox.ErrNotFound, id)
		_, err = p.Extend(t.Context(), sandbox.Info{ID: id}, time.Minute)
		require.ErrorIs(t, err, sandbox.ErrNotFound, id)
		require.ErrorIs(t, p.Shorten(t.Context(), id, time.Minute), sandbox.ErrNotFound, id)
		_, err = p.Open(sandbox.Info{ID: id}).Exec(t.Context(), sandbox.Shell("true"))
		require.ErrorIs(t, err, sandbox.ErrNotFound, id)
		require.ErrorIs(t, p.Open(sandbox.Info{ID: id}).Download(t.Context(), "/x", nil), sandbox.ErrNotFound, id)
	}
	assert.True(t, exists(t, info.ID))
}

func TestARestartByHandIsAnotherRun(t *testing.T) {
	t.Parallel()
	p := engine(t)
	const window = 30 * time.Second
	info := create(t, p, order(window))
	_, err := judge(t).ContainerRestart(t.Context(), info.ID, client.ContainerRestartOptions{})
	require.NoError(t, err)
	got, err := p.Get(t.Context(), info.ID)
	if errors.Is(err, sandbox.ErrNotFound) {
		return // newer engines let automatic removal win
	}
	require.NoError(t, err)
	require.Equal(t, sandbox.StateRunning, got.State)
	assert.NotEqual(t, info.Run, got.Run)
	// A busy engine of version 20.10 may be slow to wire up the streams of what it has restarted, or never do it. Then
	// no beat reaches the watchdog, which counts from its start anew, and the lease ends the container.
	until(t, window+2*removal, "a beat is answered, or the lease has ended it", func() bool {
		got, err = p.Extend(t.Context(), info, window)
		return err == nil || !exists(t, info.ID)
	})
	if err == nil {
		assert.NotEqual(t, info.Run, got.Run)
	} else {
		t.Log("ended by its lease; the last beat said:", err)
	}
}

func TestDeleteRemovesTheContainerAndItsVolumes(t *testing.T) {
	t.Parallel()
	p := engine(t)
	c := judge(t)
	req := order(time.Minute)
	req.Spec.Image = imports(t, "volume", derived(t, nil), "VOLUME /data")
	info := create(t, p, req)
	r, err := c.ContainerInspect(t.Context(), info.ID, client.ContainerInspectOptions{})
	require.NoError(t, err)
	require.Len(t, r.Container.Mounts, 1)
	require.NoError(t, p.Delete(t.Context(), info.ID))
	until(t, removal, "removed", func() bool { return !exists(t, info.ID) })
	require.ErrorIs(t, p.Delete(t.Context(), info.ID), sandbox.ErrNotFound)
	_, err = c.VolumeInspect(t.Context(), r.Container.Mounts[0].Name, client.VolumeInspectOptions{})
	require.Error(t, err)
}

func TestManyDeletesAtOnceAreAllAccepted(t *testing.T) {
	t.Parallel()
	p := engine(t)
	info := create(t, p, order(time.Minute))
	results := make(chan error, 6)
	for range cap(results) {
		go func() { results <- p.Delete(t.Context(), info.ID) }()
	}
	for range cap(results) {
		if err := <-results; err != nil {
			require.ErrorIs(t, err, sandbox.ErrNotFound)
		}
	}
	until(t, removal, "removed", func() bool { return !exists(t, info.ID) })
}

func TestLimitsReachTheEngineAndOptionsDoNotReachTheLease(t *testing.T) {
	t.Parallel()
	p := engine(t)
	req := order(time.Minute)
	req.Spec.CPU, req.Spec.Memory, req.Spec.Offline = 0.5, 64<<20, true
	req.Spec.Native = &docker.Options{CapDrop: []string{"NET_RAW"}, SecurityOpt: []string{"no-new-privileges"}, ExtraHosts: []string{"x:192.0.2.1"}, ShmSize: 1 << 20}
	info := create(t, p, req)
	r, err := judge(t).ContainerInspect(t.Context(), info.ID, client.ContainerInspectOptions{})
	require.NoError(t, err)
	h := r.Container.HostConfig
	assert.EqualValues(t, 500_000_000, h.NanoCPUs)
	assert.EqualValues(t, 64<<20, h.Memory)
	assert.EqualValues(t, 64<<20, h.MemorySwap)
	assert.EqualValues(t, docker.DefaultPidsLimit, *h.PidsLimit)
	assert.EqualValues(t, "none", h.NetworkMode)
	assert.EqualValues(t, 1<<20, h.ShmSize)
	assert.True(t, h.AutoRemove)
	assert.False(t, *h.Init)
	sb := p.Open(info)
	assert.Equal(t, "lo\n", run(t, sb, sandbox.Cmd{Args: []string{"ls", "/sys/class/net"}}))
	assert.Contains(t, run(t, sb, sandbox.Cmd{Args: []string{"cat", "/etc/hosts"}}), "192.0.2.1")

	req = order(time.Minute)
	req.Spec.Memory = 1 // less than any engine takes
	_, err = p.Create(t.Context(), req)
	require.ErrorIs(t, err, sandbox.ErrInvalid)
	assert.True(t, isRefused(err))
	assert.False(t, exists(t, req.Mark.Name()))
}

func TestAnEndpointIsReachedFromThisMachine(t *testing.T) {
	t.Parallel()
	p := engine(t)
	req := order(time.Minute)
	req.Spec.Ports = []int{8080, 9090}
	sb := p.Open(sandbox.Info{ID: create(t, p, req).ID})
	require.NoError(t, sb.Upload(t.Context(), "/www/index.html", strings.NewReader("hello")))
	run(t, sb, sandbox.Shell("httpd -p 8080 -h /www"))
	e, err := sb.Endpoint(t.Context(), 8080)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(e.URL, "http://127.0.0.1:"))
	visitor := &http.Client{Timeout: 10 * time.Second}
	defer visitor.CloseIdleConnections()
	until(t, time.Minute, "served", func() bool {
		r, err := visitor.Get(e.URL + "/index.html")
		if err != nil {
			return false
		}
		defer r.Body.Close()
		return r.StatusCode == http.StatusOK
	})
	second, err := sb.Endpoint(t.Context(), 9090)
	require.NoError(t, err)
	assert.NotEqual(t, e.URL, second.URL)
	for _, port := range []int{80, 0, -1, 65536 + 8080} {
		_, err = sb.Endpoint(t.Context(), port)
		require.ErrorIs(t, err, sandbox.ErrInvalid)
	}
}

func TestCheckSaysWhoTheEngineIs(t *testing.T) {
	t.Parallel()
	p := engine(t)
	account, err := p.Check(t.Context())
	require.NoError(t, err)
	assert.NotEmpty(t, account.ID)
	assert.True(t, account.SkewKnown)
	assert.Less(t, account.Skew.Abs(), 30*time.Second, "the test's engine shares our clock")
}

// The engine's own clock is in its Date header; here it is a day ahead of ours, and the statuses are no engine's.
func TestTimesAreTheEnginesAndErrorsGoByStatus(t *testing.T) {
	t.Parallel()
	id := strings.Repeat("a", 64)
	ahead := time.Now().Add(24 * time.Hour).UTC().Truncate(time.Second)
	status := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Date", ahead.Format(http.TimeFormat))
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Api-Version", "1.41")
		switch {
		case strings.HasSuffix(r.URL.Path, "/_ping"):
		case status != http.StatusOK:
			w.WriteHeader(status)
			_, _ = w.Write([]byte(`{"message":"No such container: is already in progress"}`)) // words decide nothing
		default:
			_, _ = w.Write([]byte(`[{"Id":"` + id + `","State":"paused","Created":1000,"Names":["/x"]}]`))
		}
	}))
	defer server.Close()
	p, err := docker.New(docker.Config{Host: "tcp://" + server.Listener.Addr().String()})
	require.NoError(t, err)
	info, err := p.Get(t.Context(), id)
	require.NoError(t, err)
	assert.Equal(t, ahead, info.AsOf.UTC())
	assert.Equal(t, time.Unix(1000, 0).UTC(), info.Created)
	assert.Equal(t, sandbox.StateDormant, info.State)

	own, err := client.New(client.WithHost("tcp://" + server.Listener.Addr().String()))
	require.NoError(t, err)
	theirs, err := docker.New(docker.Config{Client: own})
	require.NoError(t, err)
	kinds := map[int]error{
		400: sandbox.ErrInvalid, 401: sandbox.ErrUnauthenticated, 403: sandbox.ErrPermission, 404: sandbox.ErrNotFound,
		409: sandbox.ErrConflict, 429: sandbox.ErrRateLimited, 500: nil, 503: sandbox.ErrUnavailable,
	}
	all := []error{sandbox.ErrInvalid, sandbox.ErrUnauthenticated, sandbox.ErrPermission, sandbox.ErrNotFound, sandbox.ErrConflict, sandbox.ErrRateLimited, sandbox.ErrUnavailable}
	for code := range maps.Keys(kinds) {
		status = code
		for _, p := range []*docker.Provider{p, theirs} {
			if p == theirs && code == 429 {
				continue // the client has no class for it
			}
			_, err := p.Get(t.Context(), id)
			e, ok := errors.AsType[*sandbox.APIError](err)
			require.True(t, ok)
			assert.Equal(t, code, e.Status)
			for _, kind := range all {
				assert.Equal(t, kind == kinds[code], errors.Is(err, kind), "%d %v", code, kind)
			}
			if code != 409 {
				require.Error(t, p.Delete(t.Context(), id))
			} else {
				require.NoError(t, p.Delete(t.Context(), id), "the removal is on its way already")
			}
		}
	}
	status = http.StatusInternalServerError
	for _, err := range p.List(t.Context(), sandbox.Filter{}) {
		require.Error(t, err)
	}
}

func TestAnEngineThatHangsIsLeftWhenTheContextEnds(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and never answers
	require.NoError(t, err)
	defer l.Close()
	p, err := docker.New(docker.Config{Host: "tcp://" + l.Addr().String()})
	require.NoError(t, err)
	why := errors.New("enough")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, why)
	defer cancel()
	id := strings.Repeat("a", 64)
	_, err = p.Get(ctx, id)
	require.ErrorIs(t, err, why)
	_, err = p.Extend(ctx, sandbox.Info{ID: id}, time.Minute)
	require.ErrorIs(t, err, why)
	require.ErrorIs(t, p.Delete(ctx, id), why)
	for _, err := range p.List(ctx, sandbox.Filter{}) {
		require.ErrorIs(t, err, why)
	}
	_, err = p.Create(ctx, order(time.Minute))
	require.ErrorIs(t, err, why)
	assert.True(t, isRefused(err), "the request for a container was never sent")
}
