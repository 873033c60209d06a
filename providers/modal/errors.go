package modal

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sandglass-dev/sandglass/sandbox"
)

const (
	maxMessage = 400 // bytes of the service's words
	hidden     = "[hidden]"
	minSecret  = 4 // bytes: what is shorter, such as a variable's "1", is in every second word
)

// secretive finds the service's tokens, JSON web tokens, and addresses, which may hold some.
var secretive = regexp.MustCompile(`\b(?:a[ks]|o[cv])-[A-Za-z0-9]{8,}|\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_.-]+|(?i)\b[a-z][a-z0-9+.-]*://\S+`)

// clean returns text shortened and without secrets.
func (p *Provider) clean(text string, secrets ...string) string {
	secrets = append(slices.Clone(p.secrets), secrets...)
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) }) // so that none leaves the rest of another
	for _, s := range secrets {
		if len(s) >= minSecret {
			text = strings.ReplaceAll(text, s, hidden)
		}
	}
	text = secretive.ReplaceAllString(text, hidden)
	if len(text) > maxMessage {
		text = text[:maxMessage] + "..."
	}
	return strings.ToValidUTF8(text, "")
}

// kinds are what the service's codes mean for a call about one sandbox.
func kindOf(f *failure) error {
	switch f.code {
	case codeNotFound:
		return sandbox.ErrNotFound
	case codeExists, codePrecondition, codeAborted:
		return sandbox.ErrConflict
	case codeExhausted:
		if f.throttled {
			return sandbox.ErrRateLimited
		}
		return sandbox.ErrQuota // or a rate: without a time to try again, nothing tells them apart
	case codeInvalid, codeOutOfRange, codeBuild:
		return sandbox.ErrInvalid
	case codeUnauthenticated:
		return sandbox.ErrUnauthenticated
	case codePermission:
		return sandbox.ErrPermission
	case codeUnavailable, codeInternal, codeDeadlineExceeded:
		return sandbox.ErrUnavailable
	case codeUnimplemented:
		return errors.ErrUnsupported
	}
	return nil
}

// fail returns the error of a call that was made: the cause of ctx if that has ended.
func (p *Provider) fail(ctx context.Context, op sandbox.Op, id string, err error, secrets ...string) error {
	if expired(ctx) {
		return context.Cause(ctx)
	}
	return p.told(op, id, err, secrets...)
}

// told returns what the service said.
func (p *Provider) told(op sandbox.Op, id string, err error, secrets ...string) *sandbox.APIError {
	e := &sandbox.APIError{Provider: p.name, Op: op, ID: id}
	f, ok := errors.AsType[*failure](err)
	if !ok {
		e.Err = err
		return e
	}
	e.Code, e.Message, e.RetryAfter, e.Kind = f.code, p.clean(f.message, secrets...), f.retryAfter, kindOf(f)
	if e.Kind == sandbox.ErrUnauthenticated {
		e.Err = errors.New("are MODAL_TOKEN_ID and MODAL_TOKEN_SECRET, or the profile's tokens, right and not revoked?")
	}
	return e
}

// refuse returns the error of something that was not asked of the service.
func (p *Provider) refuse(op sandbox.Op, id string, kind, err error) error {
	return &sandbox.APIError{Provider: p.name, Op: op, ID: id, Refused: true, Kind: kind, Err: err}
}

// failed returns the error of an answer that is no use.
func (p *Provider) failed(op sandbox.Op, id string, kind, err error) error {
	return &sandbox.APIError{Provider: p.name, Op: op, ID: id, Kind: kind, Err: err}
}

// codeIs reports whether the service said code.
func codeIs(err error, code string) bool {
	f, ok := errors.AsType[*failure](err)
	return ok && f.code == code
}

// expired reports whether ctx has ended. The service is told of a deadline, and may say that it has passed at the very
// moment at which ctx is about to.
func expired(ctx context.Context) bool {
	if at, ok := ctx.Deadline(); ok && !time.Now().Before(at) {
		<-ctx.Done()
	}
	return ctx.Err() != nil
}
