package modalfake

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
)

// mint makes tokens and knows its own.
type mint struct{ key []byte }

func newMint() *mint {
	m := &mint{make([]byte, 32)}
	_, _ = rand.Read(m.key) // never fails
	return m
}

// claims are what a token says.
type claims struct {
	Use   string `json:"use"`
	Task  string `json:"task_id,omitempty"`
	Exp   int64  `json:"exp,omitempty"`
	Until int64  `json:"until"` // what exp would be if it were told
}

const tokenHead = `{"alg":"HS256","typ":"JWT"}`

func (m *mint) sign(text string) string {
	h := hmac.New(sha256.New, m.key)
	h.Write([]byte(text))
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

func (m *mint) token(c claims) string {
	body, _ := json.Marshal(c) // of strings and numbers
	text := base64.RawURLEncoding.EncodeToString([]byte(tokenHead)) + "." + base64.RawURLEncoding.EncodeToString(body)
	return text + "." + m.sign(text)
}

// check returns what a token says, if it is the mint's own and still good.
func (m *mint) check(token, use string, now time.Time) (claims, bool) {
	text, signature, _ := cutLast(token, ".")
	_, body, _ := strings.Cut(text, ".")
	var c claims
	raw, err := base64.RawURLEncoding.DecodeString(body)
	if err != nil || json.Unmarshal(raw, &c) != nil || !hmac.Equal([]byte(signature), []byte(m.sign(text))) {
		return claims{}, false
	}
	return c, c.Use == use && (c.Until == 0 || now.Unix() < c.Until)
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// Uses of tokens.
const (
	useControl = "control"
	useRouter  = "router"
	useConnect = "connect"
)

func (s *Server) controlToken() string {
	life := s.Quirks().AuthToken
	told := life >= 0
	if life <= 0 {
		life = 20 * time.Minute
	}
	c := claims{Use: useControl, Until: s.svc.Now().Add(life).Unix()}
	if told {
		c.Exp = c.Until
	}
	return s.tokens.token(c)
}

func (s *Server) routerToken(task string) string {
	c := claims{Use: useRouter, Task: task}
	if life := s.Quirks().RouterToken; life >= 0 {
		if life == 0 {
			life = time.Hour
		}
		c.Until = s.svc.Now().Add(life).Unix()
		c.Exp = c.Until
	}
	return s.tokens.token(c)
}

// access is the way to the command router, for whoever made a call.
func (s *Server) access(ctx context.Context, task string) (jwt, url string) {
	url = s.opts.Router
	if url == "" {
		md, _ := metadata.FromIncomingContext(ctx)
		if host := md.Get(":authority"); len(host) > 0 {
			url = "https://" + host[0]
		}
	}
	return s.routerToken(task), url
}

// admit checks who calls.
func (s *Server) admit(ctx context.Context, method string, router bool) error {
	md, _ := metadata.FromIncomingContext(ctx)
	now := s.svc.Now()
	if router {
		for _, v := range md.Get("authorization") {
			if token, ok := strings.CutPrefix(v, "Bearer "); ok {
				if _, good := s.tokens.check(token, useRouter, now); good {
					return nil
				}
			}
		}
		return refuse(codes.Unauthenticated, "Invalid or expired command router token")
	}
	s.mu.Lock()
	denied := s.denied
	s.mu.Unlock()
	id, secret := md.Get("x-modal-token-id"), md.Get("x-modal-token-secret")
	switch {
	case len(id) == 0 || len(secret) == 0:
		return refuse(codes.Unauthenticated, "Token missing. Could not authenticate client.")
	case denied || !slices.Contains(id, s.opts.TokenID) || !slices.Contains(secret, s.opts.TokenSecret):
		return refuse(codes.Unauthenticated, "Token ID is malformed or unknown")
	}
	for _, need := range []string{"x-modal-client-type", "x-modal-client-version"} {
		if len(md.Get(need)) == 0 {
			return invalid("metadata %s is missing", need)
		}
	}
	if method == "AuthTokenGet" || streams[method] {
		return nil // the Go SDK sends no token with streams
	}
	for _, token := range md.Get("x-modal-auth-token") {
		if _, good := s.tokens.check(token, useControl, now); good {
			return nil
		}
	}
	return refuse(codes.Unauthenticated, "Auth token is missing or expired")
}

// streams are the control plane's methods that stream.
var streams = func() map[string]bool {
	all := map[string]bool{}
	for _, d := range pb.ModalClient_ServiceDesc.Streams {
		all[d.StreamName] = true
	}
	return all
}()

func (c *control) AuthTokenGet(context.Context, *pb.AuthTokenGetRequest) (*pb.AuthTokenGetResponse, error) {
	return pb.AuthTokenGetResponse_builder{Token: c.s.controlToken()}.Build(), nil
}

// taskOf checks that a token of the command router is for the task that a call names, and returns its sandbox.
func (r *router) taskOf(ctx context.Context, task string) (*box, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	now := r.s.svc.Now()
	for _, v := range md.Get("authorization") {
		c, good := r.s.tokens.check(strings.TrimPrefix(v, "Bearer "), useRouter, now)
		if !good {
			continue
		}
		if c.Task != task {
			return nil, refuse(codes.PermissionDenied, "the token is for another task")
		}
		r.s.mu.Lock()
		b := r.s.tasks[task]
		r.s.mu.Unlock()
		if b == nil {
			return nil, refuse(codes.NotFound, "Task %s not found", task)
		}
		return b, nil
	}
	return nil, refuse(codes.Unauthenticated, "Invalid or expired command router token")
}
