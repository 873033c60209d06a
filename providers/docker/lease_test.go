package docker_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/providers/docker"
	"github.com/sandglass-dev/sandglass/sandbox"
)

// The forms of the watchdog, by the shell that runs it.
func forms(t *testing.T) map[string]func(t *testing.T) string {
	return map[string]func(t *testing.T) string{
		"busybox": func(t *testing.T) string { return image },
		"bash": func(t *testing.T) string {
			return imported(t, "bash", map[string]string{"/bin/sh": "/bin/bash", "/bin/sleep": "/bin/sleep", "/bin/cat": "/bin/cat"})
		},
		"dash beside bash": func(t *testing.T) string {
			return imported(t, "dash-bash", map[string]string{"/bin/sh": "/bin/dash", "/bin/bash": "/bin/bash", "/bin/sleep": "/bin/sleep", "/bin/cat": "/bin/cat"})
		},
		"dash": func(t *testing.T) string {
			return imported(t, "dash", map[string]string{"/bin/sh": "/bin/dash", "/bin/sleep": "/bin/sleep", "/bin/cat": "/bin/cat"})
		},
	}
}

func TestWithoutABeatTheContainerIsGoneWithinItsWindow(t *testing.T) {
	t.Parallel()
	for name, image := range forms(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := engine(t)
			req := order(20 * time.Second)
			req.Spec.Image = image(t)
			began := time.Now()
			info := create(t, p, req)
			assert.LessOrEqual(t, info.Left(), req.Window)
			assert.GreaterOrEqual(t, info.Left(), req.Window-time.Since(began), "the create may have taken most of it")
			run(t, p.Open(info), sandbox.Shell("true"))
			took := until(t, req.Window+time.Second+removal, "the container ends", func() bool { return !exists(t, info.ID) })
			t.Logf("gone %v after its create", took)
			_, err := p.Get(t.Context(), info.ID)
			require.ErrorIs(t, err, sandbox.ErrNotFound)
		})
	}
}

func TestBeatsKeepTheContainerAliveAndNoLongerThanTheHardEnd(t *testing.T) {
	t.Parallel()
	for name, image := range forms(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := engine(t)
			req := order(20 * time.Second)
			req.Spec.Image = image(t)
			req.Mark.Lifetime = 45 * time.Second
			began := time.Now()
			info := create(t, p, req)
			made := time.Now() // its hard end is counted from before
			beat := time.NewTicker(time.Second)
			defer beat.Stop()
			for range beat.C {
				sent := time.Since(made)
				got, err := p.Extend(t.Context(), info, req.Window)
				if err != nil && !errors.Is(err, sandbox.ErrNotFound) && sent < req.Mark.Lifetime {
					continue // not answered in time, as may be on a busy machine: there is room for others
				}
				if err != nil || got.State != sandbox.StateRunning {
					break
				}
				require.Less(t, sent, req.Mark.Lifetime, "a beat moved the hard end")
				assert.LessOrEqual(t, got.Left(), req.Window)
				assert.Equal(t, info.Run, got.Run)
				seen, err := p.Get(t.Context(), info.ID)
				if err == nil && seen.State == sandbox.StateRunning && !seen.Deadline.IsZero() {
					assert.LessOrEqual(t, seen.Left(), req.Window)
				}
			}
			life := time.Since(began)
			assert.Greater(t, life, 2*req.Window, "beats did not keep it alive")
			until(t, removal, "the container ends", func() bool { return !exists(t, info.ID) })
			t.Logf("lived %v of %v", life, req.Mark.Lifetime)
		})
	}
}

func TestRootInsideCanNeitherStopNorKillTheWatchdog(t *testing.T) {
	t.Parallel()
	for name, image := range forms(t) {
		if name == "dash" {
			continue // its clock is a child: see the package comment
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := engine(t)
			req := order(2 * time.Minute) // time enough for what follows on a busy machine
			req.Spec.Image = image(t)
			info := create(t, p, req)
			r, err := p.Open(info).Exec(t.Context(), sandbox.Shell(
				`sleep 60 & for s in STOP KILL TERM HUP INT QUIT USR1 USR2 ALRM PIPE CHLD TSTP TTIN TTOU; do kill -$s 1; done; kill -STOP -1; kill -KILL -1; true`))
			require.NoError(t, err)
			assert.Zero(t, r.ExitCode)
			for _, file := range []string{"environ", "fd/0", "mem"} { // what a debugger needs is asked for in the same way
				r, err := p.Open(info).Exec(t.Context(), sandbox.Shell(": </proc/1/"+file))
				require.NoError(t, err)
				assert.NotZero(t, r.ExitCode, file)
			}
			lastBeat(t, p, info) // the watchdog lives on, listens, and ends
		})
	}
}

func TestOrphansAreReaped(t *testing.T) {
	t.Parallel()
	for name, image := range forms(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := engine(t)
			req := order(10 * time.Minute)
			req.Spec.Image = image(t)
			info := create(t, p, req)
			sb := p.Open(info)
			run(t, sb, sandbox.Shell(`i=0; while [ $i -lt 20 ]; do (sleep 0.1 & ) ; i=$((i+1)); done`))
			zombies := `n=0; for s in /proc/[0-9]*/stat; do read -r l <$s || continue; l=${l##*) }; case $l in Z*) n=$((n+1));; esac; done; echo $n`
			until(t, removal, "no process stays a zombie", func() bool { return run(t, sb, sandbox.Shell(zombies)) == "0\n" })
		})
	}
}

func TestShortenBringsTheEndNearerAndNeverMovesItAway(t *testing.T) {
	t.Parallel()
	p := engine(t)
	req := order(10 * time.Minute)
	info := create(t, p, req)
	const near = time.Minute
	began := time.Now()
	require.NoError(t, p.Shorten(t.Context(), info.ID, near))
	left := dated(t, p, info.ID).Left()
	assert.LessOrEqual(t, left, near)
	assert.GreaterOrEqual(t, left, near-2*time.Since(began), "an answer's own time is taken off too")
	require.NoError(t, p.Shorten(t.Context(), info.ID, 5*time.Minute))
	assert.LessOrEqual(t, dated(t, p, info.ID).Left(), near)
	require.NoError(t, p.Shorten(t.Context(), info.ID, 2*time.Second))
	until(t, 3*time.Second+removal, "the container ends", func() bool { return !exists(t, info.ID) })
	require.ErrorIs(t, p.Shorten(t.Context(), info.ID, 2*time.Second), sandbox.ErrNotFound)
}

// dated is the first look that a watchdog answers in time, as a busy machine may keep it from doing.
func dated(t *testing.T, p *docker.Provider, id string) (info sandbox.Info) {
	t.Helper()
	until(t, time.Minute, "a look tells of the lease", func() bool {
		var err error
		info, err = p.Get(t.Context(), id)
		require.NoError(t, err)
		return !info.Deadline.IsZero()
	})
	return info
}

func TestAPausedContainerIsResidueThatNoBeatWakes(t *testing.T) {
	t.Parallel()
	p := engine(t)
	c := judge(t)
	req := order(30 * time.Second)
	info := create(t, p, req)
	made := time.Now()
	_, err := c.ContainerPause(t.Context(), info.ID, client.ContainerPauseOptions{})
	require.NoError(t, err)
	got, err := p.Extend(t.Context(), info, req.Window)
	require.NoError(t, err)
	assert.Equal(t, sandbox.StateDormant, got.State)
	assert.True(t, got.Deadline.IsZero())
	var listed []sandbox.Info
	for i, err := range p.List(t.Context(), sandbox.Filter{Nonce: req.Mark.Nonce}) {
		require.NoError(t, err)
		listed = append(listed, i)
	}
	require.Len(t, listed, 1)
	assert.Equal(t, sandbox.StateDormant, listed[0].State)

	// Its window passes meanwhile: woken, it ends at once, whatever is written to it.
	<-time.After(time.Until(made.Add(req.Window + time.Second)))
	require.True(t, exists(t, info.ID), "the engine's pause freezes the watchdog")
	_, err = c.ContainerUnpause(t.Context(), info.ID, client.ContainerUnpauseOptions{})
	require.NoError(t, err)
	until(t, time.Second+removal, "the container ends", func() bool { return !exists(t, info.ID) })
}

func TestAFullProcessTableBlocksNeitherBeatsNorTheEnd(t *testing.T) {
	t.Parallel()
	for name, image := range forms(t) {
		if name == "dash" || name == "dash beside bash" {
			continue // the one ends at once, since its clock is a child that must be born each second; the other is bash
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := engine(t)
			c := judge(t)
			req := order(beating)
			req.Spec.Image = image(t)
			req.Spec.Native = &docker.Options{PidsLimit: 24}
			info := create(t, p, req)
			go func() { _, _ = p.Open(info).Exec(t.Context(), sandbox.Shell(`while sleep 600 & do :; done; wait`)) }()
			beats(t, p, info, 30, func() bool { return processes(t, c, info.ID) >= 23 })
			beats(t, p, info, 12, nil)
			lastBeat(t, p, info)
		})
	}
}

func TestASteadyFlowOfOrphansDelaysNeitherBeatsNorTheEnd(t *testing.T) {
	t.Parallel()
	for name, image := range forms(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := engine(t)
			req := order(beating)
			req.Spec.Image = image(t)
			info := create(t, p, req)
			go func() {
				_, _ = p.Open(info).Exec(t.Context(), sandbox.Shell(`while :; do (sleep 0.02 &); sleep 0.02; done`))
			}()
			beats(t, p, info, 3, nil)
			lastBeat(t, p, info)
		})
	}
}

// bomb makes processes as fast as it can and, other than a shell, goes on when there is no room for one. They live for long
// enough to fill the table also on a machine that has little time for this.
const bomb = `for i in 1 2 3; do awk 'BEGIN { while (1) system("sleep 4 & sleep 4 &") }' & done; wait`

func TestAForkBombBlocksNeitherBeatsNorTheEnd(t *testing.T) {
	t.Parallel()
	p := engine(t)
	c := judge(t)
	req := order(beating)
	req.Spec.CPU = 0.5 // for the sake of the other tests
	req.Spec.Native = &docker.Options{PidsLimit: 64}
	info := create(t, p, req)
	go func() { _, _ = p.Open(info).Exec(t.Context(), sandbox.Shell(bomb)) }()
	beats(t, p, info, 60, func() bool { return processes(t, c, info.ID) >= 62 })
	beats(t, p, info, 12, nil)
	beats(t, p, info, 60, func() bool { return processes(t, c, info.ID) >= 50 }) // it is not over
	lastBeat(t, p, info)
}

// processes is how many the engine counts inside.
func processes(t *testing.T, c *client.Client, id string) int {
	t.Helper()
	top, err := c.ContainerTop(t.Context(), id, client.ContainerTopOptions{})
	require.NoError(t, err)
	return len(top.Processes)
}

// beating is the window while beats are sent, of which a busy machine takes many seconds for one of them.
const beating = 30 * time.Second

// beats sends n beats, one a second, or fewer where it is enough.
func beats(t *testing.T, p *docker.Provider, info sandbox.Info, n int, enough func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for range n {
		sent := time.Now()
		got, err := p.Extend(t.Context(), info, beating)
		require.NoError(t, err)
		require.Equal(t, sandbox.StateRunning, got.State)
		require.LessOrEqual(t, got.Left(), beating)
		require.GreaterOrEqual(t, got.Left(), beating-time.Since(sent), "it counts anew")
		if enough != nil && enough() {
			return
		}
		<-tick.C
	}
	if enough != nil {
		t.Fatal("not what this test is about within its beats")
	}
}

// lastBeat leaves the container 10 s, and requires that it then ends.
func lastBeat(t *testing.T, p *docker.Provider, info sandbox.Info) {
	t.Helper()
	const window = 10 * time.Second
	got, err := p.Extend(t.Context(), info, window)
	require.NoError(t, err)
	require.LessOrEqual(t, got.Left(), window)
	took := until(t, window+time.Second+removal, "the container ends", func() bool { return !exists(t, info.ID) })
	t.Logf("gone %v after its last beat", took)
}

// No driver that is common limits one container's disk, so that only the engine's whole disk can be filled: by leave.
func TestAFullDiskBlocksNeitherBeatsNorTheEnd(t *testing.T) {
	if os.Getenv("SANDGLASS_FILL_DISK") != "1" {
		t.Skip("fills the engine's disk for a moment: set SANDGLASS_FILL_DISK=1 for an engine of which nothing else is asked")
	}
	p := engine(t)
	req := order(beating)
	req.Spec.Offline = true
	info := create(t, p, req)
	sb := p.Open(info)
	go func() {
		_, _ = sb.Exec(t.Context(), sandbox.Shell("dd if=/dev/zero of=/fill bs=1048576; while :; do echo x >>/fill2; done 2>/dev/null"))
	}()
	full := func() bool {
		r, err := sb.Exec(t.Context(), sandbox.Shell("echo more >/more && cat /more"))
		t.Logf("writing: %d %s %v", r.ExitCode, r.Stderr, err)
		return err == nil && r.ExitCode != 0
	}
	beats(t, p, info, 30, full)
	require.Error(t, sb.Upload(t.Context(), "/tmp/x", strings.NewReader(strings.Repeat("x", 1<<20))), "the disk is full")
	beats(t, p, info, 8, nil)
	got, err := p.Get(t.Context(), info.ID)
	require.NoError(t, err)
	assert.Equal(t, sandbox.StateRunning, got.State)
	lastBeat(t, p, info)
}
