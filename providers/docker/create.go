package docker

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// watchdogUser is a user of no image. Nobody else may trace the watchdog, read its environment or open its files: not
// even root inside, which by default lacks the capability for that, and would have to become this user first.
const watchdogUser = "64738:64738"

//go:embed watchdog.sh
var watchdog string

// Create makes and starts one container, under the name that the mark gives. Its first process is the watchdog, not
// what the image would run. An image that the engine does not have is pulled, without credentials.
//
// A container of the same name and mark is taken for this one, and started if it was only created. One that cannot be
// started, or whose watchdog does not answer, is removed before Create returns; where that fails, its id comes along.
// Where the window has passed before the engine carried the first beat, that is [sandbox.ErrUnavailable].
func (p *Provider) Create(ctx context.Context, req sandbox.CreateRequest) (sandbox.Info, error) {
	host, err := p.host(req.Spec)
	if err = errors.Join(err, fits(req)); err != nil {
		return sandbox.Info{}, p.refuse(sandbox.OpCreate, nil, err)
	}
	image := req.Spec.Image
	if image == "" {
		image = p.image
	}
	user, inherited, err := p.fetch(ctx, image)
	if err != nil {
		return sandbox.Info{}, err
	}
	id, err := p.make(ctx, req, host, image, labelsOf(req, user, inherited))
	if err != nil {
		return sandbox.Info{}, err
	}
	info, err := p.begin(ctx, id, req.Mark, req.Window)
	if err == nil {
		return info, nil
	}
	// Created only, it would stay; half started, it would live on for a window. The caller's context may be over.
	uctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	if undo := p.remove(uctx, id); undo != nil && !errors.Is(undo, sandbox.ErrNotFound) {
		return sandbox.Info{ID: id, Mark: req.Mark}, errors.Join(err, undo)
	}
	return sandbox.Info{}, refused(err)
}

// fits reports every fault of req that the engine would not find.
func fits(req sandbox.CreateRequest) error {
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf(format+": %w", append(args, sandbox.ErrInvalid)...))
	}
	if m, err := sandbox.ParseMark(req.Mark.String()); err != nil || m.Nonce != req.Mark.Nonce {
		fault("mark %q cannot be read back", req.Mark)
	}
	if req.Window < minWindow || req.Window > maxWindow || req.Window%time.Second != 0 {
		fault("window %v is not in %v to %v in whole seconds", req.Window, minWindow, maxWindow)
	}
	if req.Mark.Lifetime < minWindow || req.Mark.Lifetime > maxLifetime {
		fault("lifetime %v is not in %v to %v", req.Mark.Lifetime, minWindow, maxLifetime)
	}
	if len(req.Tags) > maxTags {
		fault("%d tags are more than %d", len(req.Tags), maxTags)
	}
	for k, v := range req.Tags {
		if k == "" || len(k) > maxTagKey || len(v) > maxTagValue {
			fault("tag %.40q is not 1 to %d bytes with a value of at most %d", k, maxTagKey, maxTagValue)
		}
	}
	return errors.Join(faults...)
}

// fetch sees to it that the engine has the image, and returns its user and labels. No container is made here, so
// that every error is a refusal.
func (p *Provider) fetch(ctx context.Context, image string) (user string, labels map[string]string, err error) {
	for pulled := false; ; pulled = true {
		ictx, c := watch(ctx)
		r, err := p.engine.ImageInspect(ictx, image)
		if err == nil {
			if r.Config == nil {
				return "", nil, nil
			}
			return r.Config.User, r.Config.Labels, nil
		}
		if ictx.Err() != nil {
			return "", nil, p.notMade(ictx)
		}
		e := p.apiError(c, sandbox.OpCreate, "", err)
		if e.Status != http.StatusNotFound || pulled {
			if e.Status == http.StatusNotFound {
				e.Kind = sandbox.ErrInvalid // of images, never of sandboxes
			}
			return "", nil, refused(e)
		}
		if err := p.pull(ctx, image); err != nil {
			return "", nil, err
		}
	}
}

func (p *Provider) pull(ctx context.Context, image string) error {
	ctx, c := watch(ctx)
	progress, err := p.engine.ImagePull(ctx, image, client.ImagePullOptions{})
	if err == nil {
		err = progress.Wait(ctx)
		_ = progress.Close()
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return p.notMade(ctx)
	case client.IsErrConnectionFailed(err):
		return refused(p.apiError(c, sandbox.OpCreate, "", err))
	}
	e := p.apiError(c, sandbox.OpCreate, "", err)
	e.Kind = sandbox.ErrInvalid
	e.Message = fmt.Sprintf(
		"the engine has no image %q and cannot pull it: load it there (docker pull, docker load), or name another", image)
	return refused(e)
}

// notMade is the end of ctx before anything was asked to be made.
func (p *Provider) notMade(ctx context.Context) error {
	return &sandbox.APIError{Provider: p.name, Op: sandbox.OpCreate, Refused: true, Err: context.Cause(ctx)}
}

// make asks once for the container, without starting it, and returns its id.
func (p *Provider) make(
	ctx context.Context, req sandbox.CreateRequest, host *container.HostConfig, image string, labels map[string]string,
) (string, error) {
	never, seconds := false, func(d time.Duration) string { return strconv.FormatInt(int64(d/time.Second), 10) }
	cfg := &container.Config{
		Image:  image,
		Labels: labels,
		// The rest is last, and out of reach of the caller's options: it is the lease.
		User:        watchdogUser, // commands run as the image's user, or another
		Entrypoint:  []string{"/bin/sh", "-c", watchdog, "sandglass", watchdog, seconds(req.Window), seconds(req.Mark.Lifetime)},
		OpenStdin:   true,      // the way of the beats
		StopSignal:  "SIGKILL", // the watchdog hears no other
		Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
	}
	for k, v := range req.Spec.Env {
		cfg.Env = append(cfg.Env, k+"="+v)
	}
	slices.Sort(cfg.Env)
	for _, port := range req.Spec.Ports {
		inside, _ := network.PortFrom(uint16(port), network.TCP)
		if cfg.ExposedPorts == nil {
			cfg.ExposedPorts, host.PortBindings = network.PortSet{}, network.PortMap{}
		}
		cfg.ExposedPorts[inside] = struct{}{}
		host.PortBindings[inside] = []network.PortBinding{{HostIP: netip.AddrFrom4([4]byte{127, 0, 0, 1})}}
	}
	host.AutoRemove = true
	host.RestartPolicy = container.RestartPolicy{Name: container.RestartPolicyDisabled}
	host.Init = &never // the watchdog is process 1, or it could be stopped from inside
	host.LogConfig = container.LogConfig{Type: "none"}

	cctx, c := watch(ctx)
	r, err := p.engine.ContainerCreate(cctx, client.ContainerCreateOptions{Name: req.Mark.Name(), Config: cfg, HostConfig: host})
	if err == nil {
		return r.ID, nil
	}
	if status, left := c.seen(); cctx.Err() != nil && status == 0 {
		if !left {
			return "", p.notMade(cctx)
		}
		return "", context.Cause(cctx) // it may have been made
	}
	e := p.apiError(c, sandbox.OpCreate, "", err)
	_, left := c.seen()
	switch {
	case e.Status == http.StatusConflict:
		return p.twin(ctx, req.Mark, e)
	case e.Status == http.StatusNotFound: // the image, or a network, was removed since
		e.Kind = sandbox.ErrInvalid
		return "", refused(e)
	case e.Status >= 400 && e.Status < 500 || !left:
		return "", refused(e)
	}
	return "", e
}

// twin returns the id of the container that has the mark's name, if it was made for this very mark.
func (p *Provider) twin(ctx context.Context, mark sandbox.Mark, conflict *sandbox.APIError) (string, error) {
	ctx, c := watch(ctx)
	r, err := p.engine.ContainerInspect(ctx, mark.Name(), client.ContainerInspectOptions{})
	if err != nil {
		// It may be the one of an earlier, unanswered request.
		return "", p.fail(ctx, c, sandbox.OpCreate, "", err)
	}
	info := inspected(r.Container, c.asOf())
	if info.Mark.String() != mark.String() || info.State == sandbox.StateEnding || info.State == sandbox.StateFailed {
		return "", refused(conflict)
	}
	return info.ID, nil
}

// begin starts the container and returns when its watchdog has answered.
func (p *Provider) begin(ctx context.Context, id string, mark sandbox.Mark, window time.Duration) (sandbox.Info, error) {
	const needs = "a sandbox needs an image with a /bin/sh that every user may run: it runs the watchdog that ends the sandbox"
	began := time.Now() // the watchdog counts from its start, which is no earlier
	sctx, c := watch(ctx)
	if _, err := p.engine.ContainerStart(sctx, id, client.ContainerStartOptions{}); err != nil {
		if sctx.Err() != nil {
			return sandbox.Info{}, &sandbox.APIError{Provider: p.name, Op: sandbox.OpCreate, Err: context.Cause(sctx)}
		}
		e := p.apiError(c, sandbox.OpCreate, "", err)
		if e.Status == http.StatusBadRequest { // the engine could not run what it was told to, by its own words
			e.Message = needs
		}
		return sandbox.Info{}, e
	}
	status, _ := c.seen()
	ran := status == http.StatusNotModified // before, by an earlier create of the same mark; not told of a Config.Client
	var said answer
	var silent error
	var info sandbox.Info
	var err error
	for asked := time.Now(); ; {
		// Of a watchdog that has ended, the engine may not know yet, and may even keep the line to it open.
		said, silent = p.tellWithin(ctx, answerTime, id, opSet, window)
		info, err = p.look(ctx, sandbox.OpCreate, id, false)
		if silent == nil || err != nil || info.State != sandbox.StateRunning || time.Since(asked) > startTime {
			break
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	if ctx.Err() != nil {
		return sandbox.Info{}, &sandbox.APIError{Provider: p.name, Op: sandbox.OpCreate, Err: context.Cause(ctx)}
	}
	switch {
	case errors.Is(err, sandbox.ErrNotFound), err == nil && info.State == sandbox.StateEnding:
		if took := time.Since(began); ran || took >= min(window, mark.Lifetime) { // by then a good watchdog has ended too
			return sandbox.Info{}, &sandbox.APIError{
				Provider: p.name, Op: sandbox.OpCreate, Kind: sandbox.ErrUnavailable,
				Message: "the engine took longer than the lease to start it and to carry the first beat",
				Err:     fmt.Errorf("the watchdog, whose window is %v, has ended within %v", window, took.Round(time.Millisecond)),
			}
		}
		return sandbox.Info{}, &sandbox.APIError{
			Provider: p.name, Op: sandbox.OpCreate, Kind: sandbox.ErrInvalid, Message: needs,
			Err: errors.New("the watchdog ended at once"),
		}
	case silent != nil && err == nil:
		return sandbox.Info{}, &sandbox.APIError{
			Provider: p.name, Op: sandbox.OpCreate, Err: fmt.Errorf("is %s, but its watchdog does not answer: %w", info.Detail, silent),
		}
	case silent != nil:
		return sandbox.Info{}, silent
	case err != nil: // the watchdog is proof enough that it runs; the rest the next look will tell
		return p.granted(ctx, sandbox.Info{ID: id, Mark: mark}, said)
	}
	said.fill(&info)
	return info, nil
}
