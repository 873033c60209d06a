package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/cmd/sandglass/internal/settings"
	"github.com/sandglass-dev/sandglass/sandbox"
)

func decode[T any](t *testing.T, text string) T {
	t.Helper()
	var v T
	require.NoError(t, json.Unmarshal([]byte(text), &v), "%s", text)
	return v
}

func TestAuditNamesAForgottenSandboxAndDeletesNothing(t *testing.T) {
	e := newE2B(t)
	b := newBench(t, e.env...)
	id := e.make(t, "ci", "dead.1", "a", time.Hour, nil)
	e.make(t, "ci", "alive.2", "b", 2*time.Hour, nil) // its lease runs
	e.forget(t, id)
	r := b.run("audit", "--provider", "e2b", "--fleet", "ci", "--patience", "10ms")
	assert.Equal(t, 1, r.code)
	assert.Contains(t, r.stdout, id)
	assert.Contains(t, r.stdout, "dead.1")
	assert.NotContains(t, r.stdout, "alive.2")
	assert.Zero(t, e.deletes())

	out := decode[struct {
		ExitCode int `json:"exit_code"`
		Accounts []struct {
			Result string
			Leaks  []row
		}
	}](t, b.run("audit", "-p", "e2b", "-f", "ci", "--patience", "10ms", "--json").stdout)
	assert.Equal(t, 1, out.ExitCode)
	require.Len(t, out.Accounts, 1)
	assert.Equal(t, "leak", out.Accounts[0].Result)
	require.Len(t, out.Accounts[0].Leaks, 1)
	assert.Equal(t, id, out.Accounts[0].Leaks[0].ID)
	assert.Zero(t, e.deletes())
}

func TestAuditThatCannotSeeSaysSo(t *testing.T) {
	e := newE2B(t)
	b := newBench(t, e.env...)
	e.make(t, "ci", "dead.1", "a", time.Hour, nil)
	e.fake.SetKey("another")
	r := b.run("audit", "--provider", "e2b", "--fleet", "ci", "--canary")
	assert.Equal(t, 2, r.code)
	assert.Contains(t, r.stdout, "blind")
	assert.Zero(t, e.deletes())
	t.Run("and so does one without settings", func(t *testing.T) {
		assert.Equal(t, 2, b.run("audit", "--provider", "daytona", "--fleet", "ci").code)
		assert.Equal(t, 2, b.run("audit", "--provider", "e2b").code, "without a fleet")
		assert.Equal(t, 2, b.run("audit", "--no-such-flag").code)
	})
}

func TestAuditWithoutAWitnessIsNoCleanAudit(t *testing.T) {
	e := newE2B(t)
	b := newBench(t, e.env...)
	r := b.run("audit", "--provider", "e2b", "--fleet", "ci", "--patience", "10s")
	assert.Equal(t, 3, r.code)
	assert.Contains(t, r.stdout, "--canary")
	assert.Zero(t, e.deletes())

	t.Run("a canary is one", func(t *testing.T) {
		r := b.run("audit", "--provider", "e2b", "--fleet", "ci", "--canary", "--patience", "10s")
		assert.Equal(t, 0, r.code)
		assert.Contains(t, r.stdout, "clean")
		assert.Equal(t, 1, e.deletes(), "of the canary")
		assert.Empty(t, e.fake.Sandboxes())
	})
	t.Run("a sandbox that is known to be alive is one", func(t *testing.T) {
		id := e.make(t, "ci", "alive.2", "b", 2*time.Hour, nil)
		assert.Equal(t, 0, b.run("audit", "-p", "e2b", "-f", "ci", "--witness", id, "--patience", "10s").code)
	})
}

func TestTheWorstAccountDecidesAnAudit(t *testing.T) {
	for _, tt := range []struct{ a, b, want int }{
		{auditClean, auditClean, 0},
		{auditClean, auditUnwitness, 3},
		{auditUnwitness, auditBlind, 2},
		{auditBlind, auditLeak, 1},
		{auditLeak, auditUnwitness, 1},
	} {
		assert.Equal(t, tt.want, worse(tt.a, tt.b))
		assert.Equal(t, tt.want, worse(tt.b, tt.a))
	}
}

func TestLsShowsWhatIsOursAndMarksWhatNobodyOwns(t *testing.T) {
	e := newE2B(t)
	b := newBench(t, e.env...)
	ours := e.make(t, "ci", "build-7.1", "a", time.Hour, map[string]string{"commit_sha": "4f1c9a7"})
	other := e.make(t, "elsewhere", "x.1", "b", time.Hour, nil)
	paused := e.make(t, "ci", "dead.1", "c", time.Hour, nil)
	e.forget(t, paused)
	stray := stranger(t, e)

	r := b.run("ls") // of all accounts that the environment names
	assert.Equal(t, 0, r.code)
	lines := map[string]string{}
	for _, line := range strings.Split(r.stdout, "\n") {
		if cells := strings.Fields(line); len(cells) > 1 {
			lines[cells[1]] = line
		}
	}
	assert.Regexp(t, `running +ci +build-7\.1 +\S+ s +(59 min|1 h).* commit_sha=4f1c9a7$`, lines[ours])
	assert.Regexp(t, `running +elsewhere +x\.1`, lines[other])
	assert.Regexp(t, `dormant +ci +dead\.1 .* none$`, lines[paused])
	assert.Regexp(t, `running +- +unattributed`, lines[stray])
	assert.NotContains(t, r.stdout, "\x1b", "no colours without a terminal")

	t.Run("of one fleet, the rest is counted", func(t *testing.T) {
		r := b.run("ls", "--provider", "e2b", "--fleet", "ci")
		assert.NotContains(t, r.stdout, other)
		assert.Contains(t, r.stdout, "1 of other fleets")
		assert.Contains(t, r.stdout, stray)
	})
	t.Run("as JSON", func(t *testing.T) {
		l := decode[listing](t, b.run("ls", "-p", "e2b", "-f", "ci", "--json").stdout)
		require.Len(t, l.Sandboxes, 3)
		assert.Equal(t, 1, l.Others)
		assert.Empty(t, l.Unseen)
		last := l.Sandboxes[2]
		assert.True(t, last.Unattributed)
		assert.Equal(t, stray, last.ID)
		for _, s := range l.Sandboxes {
			if s.ID == ours {
				assert.Equal(t, map[string]string{"commit_sha": "4f1c9a7"}, s.Tags)
				assert.Equal(t, time.Hour, s.HardEnd.Sub(s.Created))
				assert.InDelta(t, time.Hour, s.Deadline.Sub(s.AsOf), float64(time.Minute))
			}
		}
	})
	t.Run("an account that cannot be seen is an error, and the others are shown", func(t *testing.T) {
		b := newBench(t, append([]string{"BAD_KEY=e2b_0bad0bad0bad0bad0bad0bad0bad0bad0bad0bad", "FAKE_URL=" + strings.TrimPrefix(e.env[1], "E2B_API_URL=")}, e.env...)...)
		b.configure(`{"accounts": {"blue": {"provider": "e2b", "E2B_API_KEY": "BAD_KEY", "E2B_API_URL": "FAKE_URL"}}}`)
		r := b.run("ls")
		assert.Equal(t, 1, r.code)
		assert.Contains(t, r.stdout, ours)
		assert.Contains(t, r.stdout, "e2b/blue: could not be seen")
		assert.NotContains(t, r.stdout+r.stderr, "0bad0bad")
	})
}

// stranger makes a sandbox as somebody does who has never heard of marks.
func stranger(t *testing.T, e *emulated) string {
	t.Helper()
	base := strings.TrimPrefix(e.env[1], "E2B_API_URL=")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/sandboxes", strings.NewReader(`{"templateID":"base","timeout":600}`))
	require.NoError(t, err)
	req.Header.Set("X-API-Key", fakeKey)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, http.StatusCreated, resp.StatusCode)
	var made struct{ SandboxID string }
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&made))
	return made.SandboxID
}

func TestLsWatchShowsTheListAgainAndAgainUntilItIsEnded(t *testing.T) {
	e := newE2B(t)
	b := newBench(t, e.env...)
	id := e.make(t, "ci", "build-7.1", "a", time.Hour, nil)
	cmd := b.command(t.Context(), "ls", "--watch", "--every", "100ms")
	var out watcher
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(t, cmd.Start())
	require.Eventually(t, func() bool { return strings.Count(out.String(), id) >= 3 }, time.Minute, 20*time.Millisecond)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	assert.NoError(t, cmd.Wait(), "its end is no failure")
}

func TestSweepDeletesWhatNobodyWantsAndKeepsTheLiving(t *testing.T) {
	e := newE2B(t)
	b := newBench(t, e.env...)
	dead := e.make(t, "ci", "dead.1", "a", time.Hour, nil)
	kept := e.make(t, "ci", "dead.2", "b", time.Hour, map[string]string{"keep": "1"})
	other := e.make(t, "elsewhere", "x.1", "c", time.Hour, nil)
	for _, id := range []string{dead, kept, other} {
		e.forget(t, id)
	}
	e.fake.Service().Advance(2 * time.Hour)
	alive := e.make(t, "ci", "alive.2", "d", time.Hour, nil)

	t.Run("but not in a dry run", func(t *testing.T) {
		r := b.run("sweep", "-p", "e2b", "-f", "ci", "--dry-run", "--protect", "keep")
		assert.Equal(t, 0, r.code)
		assert.Contains(t, r.stdout, "would delete")
		assert.Zero(t, e.deletes())
	})
	t.Run("nor what is too young", func(t *testing.T) {
		assert.Equal(t, 0, b.run("sweep", "-p", "e2b", "-f", "ci", "--older-than", "24h").code)
		assert.Zero(t, e.deletes())
	})
	t.Run("nor without a fleet", func(t *testing.T) {
		r := b.run("sweep", "-p", "e2b")
		assert.Equal(t, 2, r.code)
		assert.Contains(t, r.stderr, "--fleet")
		assert.Zero(t, e.deletes())
	})
	r := b.run("sweep", "--provider", "e2b", "--fleet", "ci", "--protect", "keep", "--json")
	assert.Equal(t, 0, r.code)
	report := decode[struct {
		Accounts []struct{ Outcomes map[string]int }
	}](t, r.stdout)
	require.Len(t, report.Accounts, 1)
	assert.Equal(t, map[string]int{"deleted": 1, "kept": 2}, report.Accounts[0].Outcomes)
	here := map[string]bool{}
	for info := range e.p.List(t.Context(), sandbox.Filter{}) {
		here[info.ID] = true
	}
	assert.Equal(t, map[string]bool{kept: true, other: true, alive: true}, here)
}

func TestASweepThatLeavesSomethingFails(t *testing.T) {
	e := newE2B(t)
	b := newBench(t, e.env...)
	for _, nonce := range []string{"a", "b", "c"} {
		e.forget(t, e.make(t, "ci", "dead.1", nonce, time.Hour, nil))
	}
	e.fake.Service().Advance(2 * time.Hour)
	r := b.run("sweep", "-p", "e2b", "-f", "ci", "--max-deletes", "1")
	assert.Equal(t, 1, r.code, "two are left for later")
	assert.Contains(t, r.stderr, "limit of deletes")
	assert.Equal(t, 1, e.deletes())
	e.fake.SetKey("another")
	r = b.run("sweep", "-p", "e2b", "-f", "ci")
	assert.Equal(t, 1, r.code, "nothing can be seen")
	assert.Contains(t, r.stderr, "could not see")
}

func TestSweepEveryGoesOnUntilItIsEnded(t *testing.T) {
	e := newE2B(t)
	b := newBench(t, e.env...)
	id := e.make(t, "ci", "dead.1", "a", 100*time.Hour, nil)
	e.forget(t, id) // residue, which two passes have to see
	cmd := b.command(t.Context(), "sweep", "-p", "e2b", "-f", "ci", "--every", "200ms", "--grace", "1ms")
	var out watcher
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(t, cmd.Start())
	out.await(t, "1 deleted")
	assert.Empty(t, e.fake.Sandboxes())
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	assert.NoError(t, cmd.Wait())
}

func TestKillEndsAndVerifies(t *testing.T) {
	e := newE2B(t)
	b := newBench(t, e.env...)
	one := e.make(t, "ci", "build-7.1", "a", time.Hour, map[string]string{"commit_sha": "4f1c9a7"})
	two := e.make(t, "ci", "build-7.1", "b", time.Hour, map[string]string{"commit_sha": "0000000"})
	three := e.make(t, "ci", "build-8.1", "c", time.Hour, map[string]string{"commit_sha": "4f1c9a7"})
	four := e.make(t, "elsewhere", "build-7.1", "d", time.Hour, map[string]string{"commit_sha": "4f1c9a7"})
	here := func() (ids []string) {
		for info := range e.p.List(t.Context(), sandbox.Filter{}) {
			ids = append(ids, info.ID)
		}
		return ids
	}

	r := b.run("kill", "-p", "e2b", "-f", "ci", "--tag", "commit_sha=4f1c9a7", "--dry-run")
	assert.Equal(t, 0, r.code)
	assert.Equal(t, 2, strings.Count(r.stdout, "would delete"))
	assert.Len(t, here(), 4)

	r = b.run("kill", "-p", "e2b", "-f", "ci", "--tag", "commit_sha=4f1c9a7", "--owner", "build-7.1")
	assert.Equal(t, 0, r.code)
	assert.ElementsMatch(t, []string{two, three, four}, here(), "%s was chosen", one)

	r = b.run("kill", "--provider", "e2b", "--json", two, "i0000000000000000000")
	assert.Equal(t, 0, r.code)
	got := decode[struct{ Sandboxes []ending }](t, r.stdout).Sandboxes
	outcomes := map[string]string{}
	for _, s := range got {
		outcomes[s.ID] = s.Outcome
	}
	assert.Equal(t, map[string]string{two: "deleted", "i0000000000000000000": "not there"}, outcomes)
	assert.ElementsMatch(t, []string{three, four}, here())

	t.Run("what is nobody's only if that is said", func(t *testing.T) {
		id := stranger(t, e)
		r := b.run("kill", "-p", "e2b", id)
		assert.Equal(t, 1, r.code)
		assert.Contains(t, r.stdout, "--any")
		assert.Contains(t, here(), id)
		assert.Equal(t, 0, b.run("kill", "-p", "e2b", "--any", id).code)
		assert.NotContains(t, here(), id)
	})
	t.Run("not what is of another fleet than named", func(t *testing.T) {
		r := b.run("kill", "-p", "e2b", "-f", "ci", four)
		assert.Equal(t, 1, r.code)
		assert.Contains(t, r.stdout, "elsewhere")
		assert.Contains(t, here(), four)
	})
	t.Run("and what cannot be deleted is left, and said", func(t *testing.T) {
		e.fake.Service().Fault(sandbox.OpDelete, denied())
		defer e.fake.Service().Heal()
		r := b.run("kill", "-p", "e2b", three)
		assert.Equal(t, 1, r.code)
		assert.Regexp(t, `left +e2b/\S+ +`+three, r.stdout)
	})
	t.Run("never a whole fleet by leaving everything out", func(t *testing.T) {
		before := e.deletes()
		assert.Equal(t, 2, b.run("kill", "-p", "e2b", "-f", "ci").code)
		assert.Equal(t, 2, b.run("kill", "-p", "e2b", "--owner", "build-8.1").code, "without a fleet")
		assert.Equal(t, before, e.deletes())
	})
}

func TestWhatDoctorAdvisesSetsAnAccountUp(t *testing.T) {
	r := newBench(t).run("doctor")
	assert.Equal(t, exitUsage, r.code)
	assert.Contains(t, r.stderr, "--provider kubernetes")
	_, list, _ := strings.Cut(r.stderr, "set one of ")
	list, _, _ = strings.Cut(list, ", or name")
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	for _, advised := range strings.Split(list, ", ") {
		s, err := settings.Load("", func(v string) string {
			if v == advised {
				return "set"
			}
			return ""
		})
		require.NoError(t, err)
		assert.Len(t, s.Names(), 1, advised)
	}
}

func TestDoctorTellsWhatIsRightWhatIsWrongAndWhatNobodyKnows(t *testing.T) {
	e := newE2B(t)
	b := newBench(t, e.env...)
	e.make(t, "ci", "build-7.1", "a", time.Hour, nil)
	stranger(t, e)
	r := b.run("doctor")
	assert.Equal(t, 0, r.code)
	for _, want := range []string{
		`key accepted +yes`, `may delete +yes`, `plan +not knowable`, `clock right +yes`, `alive now +1 of ours \(ci: 1\), 1 unattributed`,
		`after a crash +a crash now would bill at most 3 min 5 s \(window 3 min \+ the service's lateness 5 s\)`, `usable +not there yet`,
	} {
		assert.Regexp(t, want, r.stdout)
	}
	assert.Zero(t, e.deletes())
	_, err := os.Stat(b.journal())
	assert.ErrorIs(t, err, os.ErrNotExist, "who looks makes nothing")

	t.Run("a window is judged", func(t *testing.T) {
		assert.Contains(t, b.run("doctor", "-p", "e2b", "--window", "1m").stdout, "at most 1 min 5 s")
		r := b.run("doctor", "-p", "e2b", "--max-lifetime", "1000h")
		assert.Equal(t, 1, r.code)
		assert.Contains(t, r.stdout, "WRONG")
	})
	t.Run("a key that is not accepted", func(t *testing.T) {
		e.fake.SetKey("another")
		defer e.fake.SetKey(fakeKey)
		r := b.run("doctor", "-p", "e2b", "--json")
		assert.Equal(t, 1, r.code)
		d := decode[diagnosis](t, r.stdout)
		require.Len(t, d.Accounts, 1)
		assert.Equal(t, "no", d.Accounts[0].Key)
		assert.Nil(t, d.Accounts[0].Alive)
		assert.Contains(t, strings.Join(d.Accounts[0].Faults, "\n"), "E2B_API_KEY", "what to check")
		assert.NotContains(t, r.stdout+r.stderr, "5afe5afe")
	})
	t.Run("a journal that cannot be written", func(t *testing.T) {
		file := filepath.Join(b.dir, "file")
		require.NoError(t, os.WriteFile(file, nil, 0o600))
		r := b.run("doctor", "-p", "e2b", "--journal", file)
		assert.Equal(t, 1, r.code)
		assert.Regexp(t, `usable +no`, r.stdout)
	})
	t.Run("nothing is set up", func(t *testing.T) {
		r := newBench(t).run("doctor")
		assert.Equal(t, 2, r.code)
		assert.Contains(t, r.stderr, "E2B_API_KEY")
	})
}

func TestAnAccountOfTheFileTakesItsKeyFromTheVariableThatItNames(t *testing.T) {
	e := newE2B(t)
	url := strings.TrimPrefix(e.env[1], "E2B_API_URL=")
	b := newBench(t, "BLUE_KEY="+fakeKey, "BLUE_URL="+url, "E2B_API_KEY=e2b_0bad0bad0bad0bad0bad0bad0bad0bad0bad0bad", "E2B_DOMAIN=other.example")
	b.configure(`{
		"fleet": "ci", "providers": ["blue"],
		"accounts": {"blue": {"provider": "e2b", "E2B_API_KEY": "BLUE_KEY", "E2B_API_URL": "BLUE_URL", "E2B_SANDBOX_URL": "BLUE_URL"}}
	}`)
	id := e.make(t, "ci", "build-7.1", "a", time.Hour, nil)
	r := b.run("ls")
	assert.Contains(t, r.stdout, id)
	assert.Contains(t, r.stdout, "e2b/blue")

	t.Run("and hands it on to the program under its official name", func(t *testing.T) {
		r := b.run("run", "--", "sh", "-c", `echo "$E2B_API_KEY $E2B_API_URL [$E2B_DOMAIN] $SANDGLASS_PROVIDER"; test "$E2B_SANDBOX_ID" = "$SANDGLASS_SANDBOX_ID"`)
		assert.Equal(t, 0, r.code)
		assert.Equal(t, fakeKey+" "+url+" [] blue\n", r.stdout)
	})
	for name, text := range map[string]string{
		"a key in the file":      `{"accounts": {"blue": {"provider": "e2b", "E2B_API_KEY": "` + fakeKey + `"}}}`,
		"an unknown provider":    `{"accounts": {"blue": {"provider": "e3b"}}}`,
		"an unofficial name":     `{"accounts": {"blue": {"provider": "e2b", "API_KEY": "BLUE_KEY"}}}`,
		"a provider's own name":  `{"accounts": {"e2b": {"provider": "e2b"}}}`,
		"an unknown setting":     `{"fleets": "ci"}`,
		"no JSON":                `fleet: ci`,
		"more than one document": `{} {}`,
	} {
		t.Run(name+" is refused", func(t *testing.T) {
			b.configure(text)
			r := b.run("ls", "-p", "e2b")
			assert.Equal(t, 2, r.code)
			assert.Contains(t, r.stderr, "config.json")
			assert.NotContains(t, r.stdout+r.stderr, "5afe5afe")
		})
	}
	t.Run("a file that is asked for must be there", func(t *testing.T) {
		assert.Equal(t, 2, b.run("ls", "-p", "e2b", "--config", "nosuch.json").code)
	})
	t.Run("a variable that is not set is an error", func(t *testing.T) {
		b.configure(`{"accounts": {"blue": {"provider": "e2b", "E2B_API_KEY": "RED_KEY"}}}`)
		r := b.run("ls", "-p", "blue")
		assert.Equal(t, 2, r.code)
		assert.Contains(t, r.stderr, "RED_KEY, which is not set")
	})
}

func TestFlagsGoBeforeTheEnvironmentAndThatBeforeTheFile(t *testing.T) {
	e := newE2B(t)
	b := newBench(t, e.env...)
	b.configure(`{"fleet": "file", "providers": ["e2b"]}`)
	assert.Contains(t, b.run("sweep", "--dry-run").stdout, "of fleet file")
	b.env = append(b.env, "SANDGLASS_FLEET=environment")
	assert.Contains(t, b.run("sweep", "--dry-run").stdout, "of fleet environment")
	assert.Contains(t, b.run("sweep", "--dry-run", "--fleet", "flag").stdout, "of fleet flag")
}

func TestAPathThatIsEmptyIsNone(t *testing.T) {
	e := newE2B(t)
	b := newBench(t, e.env...)
	b.env = append(b.env, "SANDGLASS_JOURNAL=", "SANDGLASS_HISTORY=", "SANDGLASS_CONFIG=", "SANDGLASS_FLEET=ci", "SANDGLASS_PROVIDER=e2b")
	for _, flags := range [][]string{nil, {"--journal=", "--config="}} {
		r := b.run(append([]string{"doctor"}, flags...)...)
		assert.Zero(t, r.code)
		assert.Contains(t, r.stdout, "journal ("+b.journal()+")", "not the folder that it was called in")
		assert.NotContains(t, r.stdout, "WRONG")
	}
	for _, flags := range [][]string{nil, {"--history=", "--output="}} {
		r := b.run(append([]string{"report"}, flags...)...)
		assert.NotContains(t, r.stderr, b.dir, "of which it wants to read or write the folder")
		assert.NotEmpty(t, r.stdout)
	}
}
