package vercel

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// claims are what an OIDC token says of itself. It is read without a check of its signature, which is the service's
// affair: it only spares the user to say the same again.
type claims struct {
	Owner   string  `json:"owner_id"`
	Project string  `json:"project_id"`
	Expires float64 `json:"exp"` // seconds since 1970
}

// readClaims returns what token says, or nothing: most tokens are no OIDC tokens.
func readClaims(token string) claims {
	var c claims
	part := strings.Split(token, ".")
	if len(part) != 3 {
		return c
	}
	payload, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(part[1], "="))
	if err != nil || json.Unmarshal(payload, &c) != nil {
		return claims{}
	}
	return c
}

// expired returns for how long the token has been out of date, by this machine's clock; 0: it is not, or does not say.
func (c claims) expired(now time.Time) time.Duration {
	if c.Expires <= 0 || c.Expires > 1e11 {
		return 0
	}
	return max(0, now.Sub(time.Unix(int64(c.Expires), 0)))
}

// sendable reports whether a header can hold token.
func sendable(token string) bool {
	return token != "" && !strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' })
}

// token returns the token for one request. An error means that no request has left.
func (p *Provider) token(ctx context.Context, op sandbox.Op, id string) (string, error) {
	token, err := p.tokens(ctx)
	if ctx.Err() != nil {
		return "", p.api.Refuse(op, id, nil, context.Cause(ctx))
	}
	if err == nil && !sendable(token) {
		err = errors.New("it is empty, or holds a character that no header can")
	}
	if err != nil {
		return "", p.api.Refuse(op, id, sandbox.ErrUnauthenticated, fmt.Errorf("no token to be had: %w", err))
	}
	if owner := readClaims(token).Owner; owner != "" && owner != p.team {
		return "", p.api.Refuse(op, id, sandbox.ErrUnauthenticated, fmt.Errorf("the token is of another team than %s", p.team))
	}
	return token, nil
}
