package vercel_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/internal/fake/vercelfake"
	"github.com/sandglass-dev/sandglass/providers/vercel"
	"github.com/sandglass-dev/sandglass/sandbox"
)

func oidc(claims string) string {
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln"
}

func TestNewReportsEveryFaultOfAConfig(t *testing.T) {
	for what, c := range map[string]vercel.Config{
		"nothing at all":                 {},
		"no token":                       {Team: "team_1", Project: "p"},
		"two tokens":                     {Team: "team_1", Project: "p", Token: "t", Tokens: func(context.Context) (string, error) { return "", nil }},
		"a token with a line's end":      {Team: "team_1", Project: "p", Token: "t\n"},
		"no team":                        {Project: "p", Token: "t"},
		"no project":                     {Team: "team_1", Token: "t"},
		"a project that is none":         {Team: "team_1", Project: "a/b", Token: "t"},
		"a base URL that is none":        {Team: "team_1", Project: "p", Token: "t", BaseURL: "vercel.com"},
		"a base URL with a password":     {Team: "team_1", Project: "p", Token: "t", BaseURL: "https://u:geheim@vercel.com"},
		"a token of another team":        {Team: "team_1", Project: "p", Token: oidc(`{"owner_id":"team_2","project_id":"p"}`)},
		"an OIDC token without a claim":  {Project: "p", Token: oidc(`{}`)},
		"a token source, without a team": {Project: "p", Tokens: func(context.Context) (string, error) { return "t", nil }},
	} {
		p, err := vercel.New(c)
		assert.Nil(t, p, what)
		assert.ErrorIs(t, err, sandbox.ErrInvalid, what)
		assert.NotContains(t, fmt.Sprint(err), "geheim", what)
	}
	_, err := vercel.New(vercel.Config{})
	assert.ErrorContains(t, err, "no token")
	assert.ErrorContains(t, err, "team")
	assert.ErrorContains(t, err, "project")
}

func TestTheNameTellsProjectsApartAndNotTokens(t *testing.T) {
	name := func(c vercel.Config) string {
		p, err := vercel.New(c)
		require.NoError(t, err)
		return p.Name()
	}
	one := name(vercel.Config{Token: "a", Team: "team_1", Project: "prj_1"})
	assert.Equal(t, one, name(vercel.Config{Token: "b", Team: "team_1", Project: "prj_1"}))
	assert.Equal(t, one, name(vercel.Config{Token: oidc(`{"owner_id":"team_1","project_id":"prj_1"}`)}))
	assert.NotEqual(t, one, name(vercel.Config{Token: "a", Team: "team_1", Project: "prj_2"}))
	assert.NotEqual(t, one, name(vercel.Config{Token: "a", Team: "team_2", Project: "prj_1"}))
	assert.NotEqual(t, one, name(vercel.Config{Token: "a", Team: "team_1", Project: "prj_1", BaseURL: "https://example.com"}))
	assert.Equal(t, "vercel/blue", name(vercel.Config{Token: "a", Team: "team_1", Project: "prj_1", Name: "vercel/blue"}))
}

func TestFromEnvTakesWhatIsSet(t *testing.T) {
	set := func(oidc, token, team, project string) {
		t.Setenv("VERCEL_OIDC_TOKEN", oidc)
		t.Setenv("VERCEL_TOKEN", token)
		t.Setenv("VERCEL_TEAM_ID", team)
		t.Setenv("VERCEL_PROJECT_ID", project)
	}
	set("", "", "", "")
	_, err := vercel.FromEnv()
	assert.ErrorIs(t, err, sandbox.ErrInvalid)
	assert.ErrorContains(t, err, "VERCEL_OIDC_TOKEN")

	set("", "t", "team_1", "prj_1")
	byToken, err := vercel.FromEnv()
	require.NoError(t, err)

	set("", "t", "team_1", "")
	_, err = vercel.FromEnv()
	assert.ErrorIs(t, err, sandbox.ErrInvalid)

	set(oidc(`{"owner_id":"team_1","project_id":"prj_1"}`), "other", "team_other", "prj_other")
	byClaims, err := vercel.FromEnv()
	require.NoError(t, err)
	assert.Equal(t, byToken.Name(), byClaims.Name())
}

func TestARunnerOutlivesItsTokens(t *testing.T) {
	bubble(t, func(w *world) {
		var minted atomic.Int64
		tokens := func(context.Context) (string, error) {
			minted.Add(1)
			return w.fake.MintToken(time.Minute), nil
		}
		p, err := vercel.New(vercel.Config{
			Tokens: tokens, Team: "team_test", Project: "prj_test", BaseURL: base, HTTP: &http.Client{Transport: w.http.Transport},
		})
		require.NoError(t, err)
		m, err := sandbox.NewManager(p, sandbox.Config{Fleet: "fleet", Scope: sandbox.Scope{MaxLifetime: 15 * time.Hour}})
		require.NoError(t, err)
		err = m.WithSandbox(context.Background(), func(ctx context.Context, sb sandbox.Sandbox) error {
			if err := wait(ctx, 13*time.Hour); err != nil {
				return err
			}
			res, err := sb.Exec(ctx, sandbox.Shell("echo alive"))
			assert.Equal(t, "alive\n", string(res.Stdout))
			return err
		})
		assert.NoError(t, err)
		assert.Greater(t, minted.Load(), int64(13*60))
		w.nothing()
	})
}

func TestATokenThatExpiresIsSaidToHaveExpired(t *testing.T) {
	bubble(t, func(w *world) {
		token := w.fake.MintToken(time.Hour)
		p, err := vercel.New(vercel.Config{Token: token, BaseURL: base, HTTP: &http.Client{Transport: w.http.Transport}})
		require.NoError(t, err, "its claims name team and project")
		info, err := p.Create(context.Background(), order(2*time.Hour))
		require.NoError(t, err)
		time.Sleep(90 * time.Minute)
		_, err = p.Get(context.Background(), info.ID)
		assert.ErrorIs(t, err, sandbox.ErrUnauthenticated)
		assert.ErrorContains(t, err, "expired 30m0s ago")
		assert.NotContains(t, fmt.Sprint(err), token)
	})
}

func TestATokenThatIsNotToBeHadOrOfAnotherTeamLeavesTheServiceAlone(t *testing.T) {
	for name, tokens := range map[string]func(context.Context) (string, error){
		"an error":     func(context.Context) (string, error) { return "", errors.New("the vault is shut") },
		"nothing":      func(context.Context) (string, error) { return "", nil },
		"a line":       func(context.Context) (string, error) { return "token\n", nil },
		"another team": func(context.Context) (string, error) { return oidc(`{"owner_id":"team_other"}`), nil },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				_, err := w.p.Create(context.Background(), order(time.Minute))
				assert.ErrorIs(t, err, sandbox.ErrUnauthenticated)
				assert.True(t, apiError(t, err).Refused)
				_, err = w.p.Open(sandbox.Info{ID: "a/b"}).Exec(context.Background(), sandbox.Shell("true"))
				assert.ErrorIs(t, err, sandbox.ErrUnauthenticated)
				assert.Zero(t, w.sent.Load())
			}, func(_ *vercelfake.Options, c *vercel.Config) { c.Token, c.Tokens = "", tokens })
		})
	}
}
