package boat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/sandglass-dev/sandglass/internal/contain"
	"github.com/sandglass-dev/sandglass/internal/httpapi"
	"github.com/sandglass-dev/sandglass/sandbox"
)

const (
	createTime = time.Minute    // one create, which is answered before the machine is there
	keyLife    = 23 * time.Hour // of an idempotency key, which the service forgets after 24 h
	renames    = 4              // how often the mark is tried to be written
)

// Create asks for one sandbox and writes the mark on it at once, by a second request: it does not wait until it runs. The
// mark's nonce is the idempotency key, so that the same request brings the same sandbox. A sandbox on which the mark could not
// be written, or which is not as ordered (no end, or a later one; the account's logins in it), is returned with an error.
func (p *Provider) Create(ctx context.Context, req sandbox.CreateRequest) (sandbox.Info, error) {
	body, o, err := p.order(req)
	if err != nil {
		return sandbox.Info{}, p.refuse(sandbox.OpCreate, "", nil, err)
	}
	k := &known{mark: req.Mark, env: maps.Clone(req.Spec.Env), ports: slices.Clone(req.Spec.Ports), public: o.Public}
	k.unsaved = len(k.env) > 0 || len(k.ports) > 0
	return p.post(ctx, req.Mark, body, k)
}

// Order returns the body that [Provider.Create] would send for req, for a journal. There is no secret in it. It makes no
// request.
func (p *Provider) Order(req sandbox.CreateRequest) ([]byte, error) {
	body, _, err := p.order(req)
	if err != nil {
		return nil, p.refuse(sandbox.OpCreate, "", nil, err)
	}
	return httpapi.Encode(body)
}

// Repeat sends a create again of which nothing is known but the mark and the body that [Provider.Order] returned, and
// writes the mark: it returns the sandbox that the first one made. If that never reached the service, it makes one. So
// only whoever holds the journal entry's lock may call it, and must delete what it returns.
//
// The service knows a key for 24 h. After 23 h, by the mark's own time, the error matches [sandbox.ErrInvalid] and no
// request is made: a repetition would make a sandbox, and say nothing of the first.
func (p *Provider) Repeat(ctx context.Context, mark sandbox.Mark, body []byte) (sandbox.Info, error) {
	refuse := func(format string, args ...any) (sandbox.Info, error) {
		return sandbox.Info{}, p.refuse(sandbox.OpCreate, "", sandbox.ErrInvalid, fmt.Errorf(format, args...))
	}
	if m, err := sandbox.ParseMark(mark.String()); err != nil || m.Nonce != mark.Nonce {
		return refuse("mark %q cannot be read back", mark)
	}
	if age := time.Since(mark.Created); age > keyLife || age < -time.Hour {
		return refuse("its key is %v old, and the service keeps keys for 24 h", age.Round(time.Minute))
	}
	var o order
	if err := json.Unmarshal(body, &o); err != nil || o.TTLSeconds < 1 {
		return refuse("the body is none that has a finite end")
	}
	return p.post(ctx, mark, json.RawMessage(body), &known{mark: mark})
}

// post sends a create and writes the mark.
func (p *Provider) post(ctx context.Context, mark sandbox.Mark, body any, k *known) (sandbox.Info, error) {
	var made created
	ans, err := p.do(ctx, httpapi.Request{
		Op: sandbox.OpCreate, Method: http.MethodPost, Path: "/sandboxes", Query: p.query(), Body: body, Out: &made, Rules: creating,
		Header: http.Header{"Idempotency-Key": {mark.Nonce}}, Timeout: createTime,
	})
	if err != nil {
		return sandbox.Info{}, err
	}
	r := made.Sandbox
	p.remember(r.ID, k)
	info := p.info(r, ans)
	if made.Notice != "" {
		p.log.WarnContext(ctx, "the account's plan shortens sandboxes", slog.String("provider", p.name), slog.String("sandbox_id", r.ID),
			slog.String("op", string(sandbox.OpCreate)))
	}
	if err := fit(body, &made); err != nil {
		return info, p.odd(sandbox.OpCreate, r.ID, ans, err)
	}
	if r.Name == mark.String() {
		return info, nil
	}
	named, err := p.rename(ctx, r.ID, mark)
	if err != nil {
		return info, err
	}
	return named, nil
}

// fit reports what makes a sandbox unfit that was ordered by body.
func fit(body any, made *created) error {
	o, ok := body.(*order)
	switch {
	case made.TTL == nil:
		return errors.New("it was made without an end")
	case !ok: // a repetition, whose result is deleted
		return nil
	case *made.TTL > float64(o.TTLSeconds):
		return fmt.Errorf("it was made with a TTL of %v s, longer than the %d s that were asked for", *made.TTL, o.TTLSeconds)
	case made.Sandbox.HoldsLogins && o.NoEnv:
		return errors.New("the account's logins were copied into it, which was not asked for")
	}
	return nil
}

// rename writes the mark. A sandbox without it is one that nobody will find, so that it is tried more than once.
func (p *Provider) rename(ctx context.Context, id string, mark sandbox.Mark) (info sandbox.Info, err error) {
	for attempt, pause := 1, 500*time.Millisecond; ; attempt, pause = attempt+1, 2*pause {
		info, err = p.patch(ctx, sandbox.OpCreate, id, patch{Name: mark.String()})
		if err == nil && info.Mark.String() != mark.String() {
			err = p.odd(sandbox.OpCreate, id, httpapi.Answer{}, errors.New("the service does not keep the name"))
		}
		if err == nil || attempt >= renames || definite(err) {
			return info, err
		}
		if contain.Sleep(ctx, pause) != nil {
			return info, err
		}
	}
}

// definite reports whether err is an answer that asking again will not change.
func definite(err error) bool {
	e, ok := errors.AsType[*sandbox.APIError](err)
	if !ok {
		return true // the context's end
	}
	switch e.Status {
	case http.StatusConflict, http.StatusTooManyRequests, http.StatusRequestTimeout:
		return false
	}
	return e.Status >= 400 && e.Status < 500
}

// created is the answer to a create.
type created struct {
	TTL     *float64 `json:"ttlSeconds"`
	Sandbox *record  `json:"sandbox"`
	Notice  string   `json:"giftLimitNotice"`
}

// Validate reports what is missing.
func (c *created) Validate() error { return c.Sandbox.Validate() }
