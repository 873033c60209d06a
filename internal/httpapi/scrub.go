package httpapi

import (
	"encoding/json"
	"errors"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

const (
	hidden     = "[hidden]"
	minSecret  = 4   // bytes: what is shorter, such as a variable's "1", is in every second word
	maxMessage = 400 // bytes of a service's words
)

// inURL finds addresses; bearer finds what stands behind the word; token finds what looks like a key of the services
// that there are adapters for, or a JSON web token.
var (
	inURL  = regexp.MustCompile(`(?i)\b[a-z][a-z0-9+.-]*://[^\s"'<>\\]+`)
	bearer = regexp.MustCompile(`(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}`)
	token  = regexp.MustCompile(`\b(e2b_[0-9A-Za-z]{8,}|dtn_[0-9A-Za-z]{8,}|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_.-]+)`)
)

// A scrubber takes secrets out of text.
type scrubber struct{ secrets []string }

// add makes s know more secrets, in the forms in which a text may hold them.
func (s *scrubber) add(secrets ...string) {
	for _, secret := range secrets {
		if len(secret) < minSecret {
			continue
		}
		forms := []string{secret, url.QueryEscape(secret), url.PathEscape(secret)}
		if b, err := json.Marshal(secret); err == nil {
			forms = append(forms, strings.Trim(string(b), `"`))
		}
		if b, err := Encode(secret); err == nil {
			forms = append(forms, strings.Trim(string(b), `"`))
		}
		for _, f := range forms {
			if len(f) >= minSecret && !slices.Contains(s.secrets, f) {
				s.secrets = append(s.secrets, f)
			}
		}
	}
	// The longest first, so that none leaves the rest of another that it is the start of.
	slices.SortFunc(s.secrets, func(a, b string) int { return len(b) - len(a) })
}

// scrubberOf knows req's secrets too.
func (c *Client) scrubberOf(req Request) scrubber {
	if len(req.Secrets) == 0 {
		return c.clean
	}
	s := scrubber{secrets: slices.Clone(c.clean.secrets)}
	s.add(req.Secrets...)
	return s
}

// clean returns text without secrets, and with no more of addresses than scheme, host and path.
func (s scrubber) clean(text string) string {
	for _, secret := range s.secrets {
		text = strings.ReplaceAll(text, secret, hidden)
	}
	text = inURL.ReplaceAllStringFunc(text, func(found string) string {
		head, rest, _ := strings.Cut(found, "://")
		rest, query, more := strings.Cut(rest, "?")
		if host, path, ok := strings.Cut(rest, "/"); strings.Contains(host, "@") {
			rest = host[strings.LastIndexByte(host, '@')+1:]
			if ok {
				rest += "/" + path
			}
		}
		if more && query != "" {
			rest += "?" + hidden
		}
		return head + "://" + rest
	})
	text = bearer.ReplaceAllString(text, "$1 "+hidden)
	return token.ReplaceAllString(text, hidden)
}

// short is clean, cut to a readable length.
func (s scrubber) short(text string) string {
	if len(text) > 16*maxMessage { // what follows is cut off anyhow; a secret at the cut is gone with it
		text = text[:16*maxMessage]
	}
	text = strings.ToValidUTF8(s.clean(text), "")
	if len(text) > maxMessage {
		text = strings.ToValidUTF8(text[:maxMessage], "") + " ..."
	}
	return text
}

// error returns err without the request's address and without secrets. What had secrets in it can still be asked for
// with errors.Is, but is not to be had any more.
func (s scrubber) error(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	if said, clean := err.Error(), s.short(err.Error()); said != clean {
		return scrubbed{clean, err}
	}
	return err
}

type scrubbed struct {
	said string
	err  error
}

func (e scrubbed) Error() string        { return e.said }
func (e scrubbed) Is(target error) bool { return errors.Is(e.err, target) }
