package journal_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/journal"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxtest"
)

func TestAnEntryComesBackAsItWasPut(t *testing.T) {
	dir := spool(t)
	first := open(t, dir)
	kept := entry(nonce("b"), "sb-2")
	kept.Kept = time.Date(2026, 3, 4, 5, 6, 7, 8, time.FixedZone("CET", 3600))
	bare := entry(nonce("c"), "")
	bare.Tags = nil
	large := entry(nonce("d"), strings.Repeat("x", 1000))
	large.Tags = map[string]string{"log": strings.Repeat("\x01", 20_000)}
	put(t, first, entry(nonce("a"), ""), entry(nonce("a"), "sb-1"), kept, bare, large)
	assert.Empty(t, orphans(t, first))

	// Another Journal in the same process is another owner.
	second := open(t, dir)
	assert.Empty(t, orphans(t, second), "the first one holds all of it")
	require.NoError(t, first.Close())
	require.NoError(t, first.Close(), "a second time is quiet")
	kept.Kept = kept.Kept.UTC()
	assert.Equal(t, []sandbox.Entry{entry(nonce("a"), "sb-1"), kept, bare, large}, orphans(t, second))
	assert.Len(t, orphans(t, second), 4, "what was not removed is there the next time")

	for _, n := range []string{"a", "b", "c", "d", "e"} {
		require.NoError(t, second.Remove(t.Context(), nonce(n)))
	}
	require.NoError(t, second.Remove(t.Context(), "../../etc/passwd"), "no nonce, so unknown")
	assert.Empty(t, names(t, dir))
}

func TestWhatWouldNotComeBackIsRefused(t *testing.T) {
	dir := spool(t)
	j := open(t, dir)
	for name, break_ := range map[string]func(*sandbox.Entry){
		"no nonce":            func(e *sandbox.Entry) { e.Mark.Nonce = "" },
		"a path for a nonce":  func(e *sandbox.Entry) { e.Mark.Nonce = "../../../../../x" },
		"no fleet":            func(e *sandbox.Entry) { e.Mark.Fleet = "" },
		"an id that is bytes": func(e *sandbox.Entry) { e.ID = "\xff" },
		"a tag that is bytes": func(e *sandbox.Entry) { e.Tags["x"] = "\xff" },
		"more than a file":    func(e *sandbox.Entry) { e.Tags["x"] = strings.Repeat("x", 1<<20) },
	} {
		t.Run(name, func(t *testing.T) {
			e := entry(nonce("a"), "")
			break_(&e)
			require.ErrorIs(t, j.Put(t.Context(), e), sandbox.ErrInvalid)
			assert.Empty(t, names(t, dir))
		})
	}
}

func TestAnIDThatIsTooLongLeavesTheIntent(t *testing.T) {
	dir := spool(t)
	j := open(t, dir)
	put(t, j, entry(nonce("a"), ""))
	require.ErrorIs(t, j.Put(t.Context(), entry(nonce("a"), strings.Repeat("x", 9000))), sandbox.ErrInvalid)
	require.NoError(t, j.Close())
	assert.Equal(t, []sandbox.Entry{entry(nonce("a"), "")}, orphans(t, open(t, dir)))
}

func TestTheIDFitsWhateverStandsBesideIt(t *testing.T) {
	j := open(t, spool(t))
	for n := 1500; n < 1500+4096; n += 128 {
		e := entry(nonce("a"+letters(n)), "")
		e.Tags["log"] = strings.Repeat("x", n)
		put(t, j, e)
		e.ID, e.Kept = strings.Repeat("i", 1000), time.Date(2026, 3, 4, 5, 6, 7, 123456789, time.UTC)
		put(t, j, e)
	}
}

func TestAnEntryNeverChangesItsFileOrSize(t *testing.T) {
	dir := spool(t)
	j := open(t, dir)
	put(t, j, entry(nonce("a"), ""))
	before, err := os.Stat(pathOf(dir, nonce("a")))
	require.NoError(t, err)
	assert.EqualValues(t, 8192, before.Size())
	for range 5 {
		put(t, j, entry(nonce("a"), strings.Repeat("i", 1000)))
		after, err := os.Stat(pathOf(dir, nonce("a")))
		require.NoError(t, err)
		assert.True(t, os.SameFile(before, after), "a new file would be unlocked for a moment")
		assert.Equal(t, before.Size(), after.Size())
	}
	assert.Equal(t, []string{nonce("a") + ".entry"}, names(t, dir))
}

func TestARemovedFileIsMadeAnewByPut(t *testing.T) {
	dir := spool(t)
	j := open(t, dir)
	put(t, j, entry(nonce("a"), ""))
	require.NoError(t, os.Remove(pathOf(dir, nonce("a"))))
	put(t, j, entry(nonce("a"), "sb-1"))
	assert.Empty(t, orphans(t, open(t, dir)), "and held")
	require.NoError(t, j.Close())
	assert.Equal(t, []sandbox.Entry{entry(nonce("a"), "sb-1")}, orphans(t, open(t, dir)))
}

func TestTheOwnersEntryIsNobodyElses(t *testing.T) {
	dir := spool(t)
	owner, other := open(t, dir), open(t, dir)
	put(t, owner, entry(nonce("a"), ""))
	require.ErrorIs(t, other.Put(t.Context(), entry(nonce("a"), "sb-2")), journal.ErrOwnerAlive)
	require.ErrorIs(t, other.Remove(t.Context(), nonce("a")), journal.ErrOwnerAlive)
	require.NoError(t, other.Release(t.Context(), nonce("a")), "what is not held is no error")
	put(t, owner, entry(nonce("a"), "sb-1"))
	require.NoError(t, owner.Release(t.Context(), nonce("a")))
	assert.Equal(t, []sandbox.Entry{entry(nonce("a"), "sb-1")}, orphans(t, other))
}

func TestAReleasedEntryOfALivingProcessIsAnybodys(t *testing.T) {
	dir := spool(t)
	daemon, next := open(t, dir), open(t, dir)
	put(t, daemon, entry(nonce("a"), "sb-1"), entry(nonce("b"), "sb-2"))
	require.NoError(t, daemon.Release(t.Context(), nonce("a")))
	// The pid in the file is this very process's, and the boot is this one: neither is judged.
	assert.Equal(t, []string{nonce("a")}, nonces(orphans(t, next)))
	assert.Equal(t, []string{nonce("a")}, nonces(orphans(t, daemon)), "its own process may finish it as well")
	require.NoError(t, daemon.Remove(t.Context(), nonce("a")))
	assert.Equal(t, []string{nonce("b") + ".entry"}, names(t, dir))
}

func TestWhoWorksOnAnOrphanHoldsIt(t *testing.T) {
	dir := spool(t)
	dead := open(t, dir)
	put(t, dead, entry(nonce("a"), "sb-1"), entry(nonce("b"), "sb-2"), entry(nonce("c"), "sb-3"), entry(nonce("d"), "sb-4"))
	require.NoError(t, dead.Close())
	worker, other := open(t, dir), open(t, dir)
	for e, err := range worker.Orphans(t.Context()) {
		require.NoError(t, err)
		assert.NotContains(t, nonces(orphans(t, other)), e.Mark.Nonce, "another journal")
		assert.NotContains(t, nonces(orphans(t, worker)), e.Mark.Nonce, "another loop over the same journal")
		alive, known, err := other.Owner(e.Mark.Nonce)
		require.NoError(t, err)
		assert.True(t, alive && known, "to others somebody is at it")
		alive, known, err = worker.Owner(e.Mark.Nonce)
		require.NoError(t, err)
		assert.True(t, !alive && known, "the taker knows better")
		switch e.Mark.Nonce {
		case nonce("a"):
			require.NoError(t, worker.Remove(t.Context(), e.Mark.Nonce))
			require.NoError(t, worker.Remove(t.Context(), e.Mark.Nonce))
		case nonce("b"):
			put(t, worker, entry(nonce("b"), "sb-new"))
		case nonce("c"):
			continue
		}
		if e.Mark.Nonce == nonce("d") {
			break
		}
	}
	assert.Equal(t, []string{nonce("c"), nonce("d")}, nonces(orphans(t, other)), "b was put and is the worker's now")
	require.NoError(t, worker.Close())
	assert.Equal(t, []sandbox.Entry{entry(nonce("b"), "sb-new"), entry(nonce("c"), "sb-3"), entry(nonce("d"), "sb-4")}, orphans(t, other))
}

func TestALoopThatPanicsLetsGo(t *testing.T) {
	dir := spool(t)
	dead := open(t, dir)
	put(t, dead, entry(nonce("a"), "sb-1"))
	require.NoError(t, dead.Close())
	j := open(t, dir)
	assert.Panics(t, func() {
		for range j.Orphans(t.Context()) {
			panic("boom")
		}
	})
	assert.Len(t, orphans(t, open(t, dir)), 1)
	assert.Len(t, orphans(t, j), 1)
}

func TestEachOrphanIsGivenToOne(t *testing.T) {
	dir := spool(t)
	dead := open(t, dir)
	var want []string
	for i := range 40 {
		n := nonce("a" + letters(i))
		put(t, dead, entry(n, "sb"))
		want = append(want, n)
	}
	require.NoError(t, dead.Close())
	shared := open(t, dir)
	var mu sync.Mutex
	at := map[string]bool{}
	var got []string
	var wg sync.WaitGroup
	for _, j := range []*journal.Journal{shared, shared, open(t, dir), open(t, dir)} {
		wg.Go(func() {
			for e, err := range j.Orphans(t.Context()) {
				if !assert.NoError(t, err) {
					return
				}
				mu.Lock()
				assert.False(t, at[e.Mark.Nonce], "two at one")
				at[e.Mark.Nonce] = true
				got = append(got, e.Mark.Nonce)
				mu.Unlock()
				assert.NoError(t, j.Remove(t.Context(), e.Mark.Nonce))
			}
		})
	}
	wg.Wait()
	slices.Sort(got)
	assert.Equal(t, want, got)
	assert.Empty(t, names(t, dir))
}

func TestOwner(t *testing.T) {
	dir := spool(t)
	owner, other := open(t, dir), open(t, dir)
	put(t, owner, entry(nonce("a"), "sb-1"), entry(nonce("b"), "sb-2"))
	require.NoError(t, owner.Release(t.Context(), nonce("b")))
	require.NoError(t, os.WriteFile(pathOf(dir, nonce("c")), []byte("x"), 0o600))
	for _, tt := range []struct {
		what, nonce  string
		alive, known bool
		err          string
	}{
		{what: "held: alive", nonce: nonce("a"), alive: true, known: true},
		{what: "lock free: dead", nonce: nonce("b"), known: true},
		{what: "broken: unknown", nonce: nonce("c"), err: "broken entry"},
		{what: "no entry: unknown", nonce: nonce("d")},
		{what: "no nonce: unknown", nonce: "../x"},
	} {
		t.Run(tt.what, func(t *testing.T) {
			for _, j := range []*journal.Journal{owner, other} {
				alive, known, err := j.Owner(tt.nonce)
				assert.Equal(t, [2]bool{tt.alive, tt.known}, [2]bool{alive, known})
				if tt.err == "" {
					assert.NoError(t, err)
				} else {
					assert.ErrorContains(t, err, tt.err)
				}
			}
		})
	}
	assert.Len(t, names(t, dir), 3, "asking changes nothing")
}

func TestWhoHasLeftASandboxForDebuggingCountsAsAliveUntilThen(t *testing.T) {
	for what, tt := range map[string]struct {
		kept  time.Duration
		alive bool
	}{
		"it is still kept":  {time.Hour, true},
		"that time is over": {-time.Second, false},
		"it was never kept": {0, false},
	} {
		t.Run(what, func(t *testing.T) {
			dir := spool(t)
			owner, other := open(t, dir), open(t, dir)
			e := entry(nonce("a"), "sb-1")
			if tt.kept != 0 {
				e.Kept = time.Now().Add(tt.kept)
			}
			put(t, owner, e)
			require.NoError(t, owner.Release(t.Context(), e.Mark.Nonce))
			ask := func(j *journal.Journal, when string) {
				alive, known, err := j.Owner(e.Mark.Nonce)
				require.NoError(t, err)
				assert.Equal(t, [2]bool{tt.alive, true}, [2]bool{alive, known}, when)
			}
			ask(owner, "the one who left it")
			ask(other, "another process")
			for range other.Orphans(t.Context()) {
				ask(other, "while an iteration holds it")
			}
			require.NoError(t, owner.Close())
			ask(other, "when its owner is dead")
		})
	}
}

func TestWhoAsksDoesNotHideAnOrphan(t *testing.T) {
	dir := spool(t)
	dead := open(t, dir)
	put(t, dead, entry(nonce("a"), "sb-1"), entry(nonce("b"), "sb-2"))
	require.NoError(t, dead.Close())
	asker, j := open(t, dir), open(t, dir)
	done, err := asker.Ask(nonce("a"))
	require.NoError(t, err)
	alive, known, err := j.Owner(nonce("a"))
	require.NoError(t, err)
	assert.True(t, !alive && known, "those who ask do not take each other for the owner")
	var found []string
	for e, err := range j.Orphans(t.Context()) {
		require.NoError(t, err)
		found = append(found, e.Mark.Nonce)
		done() // too late for the first look at a
	}
	assert.Equal(t, []string{nonce("b"), nonce("a")}, found)
}

func TestALockOnARemovedFileIsWorthNothing(t *testing.T) {
	dir := spool(t)
	owner, other := open(t, dir), open(t, dir)
	put(t, owner, entry(nonce("a"), "sb-1"))
	lock, err := other.Late(nonce("a"))
	require.NoError(t, err)
	require.NoError(t, owner.Remove(t.Context(), nonce("a")))
	require.ErrorIs(t, lock(), os.ErrNotExist)

	put(t, owner, entry(nonce("a"), "sb-1"))
	lock, err = other.Late(nonce("a"))
	require.NoError(t, err)
	require.NoError(t, owner.Remove(t.Context(), nonce("a")))
	put(t, owner, entry(nonce("a"), "sb-1"))
	require.ErrorIs(t, lock(), os.ErrNotExist, "the name is another file's, whose owner lives")
}

func TestACopyMakesNobodyDead(t *testing.T) {
	dir := spool(t)
	owner := open(t, dir) // alive all the time
	put(t, owner, entry(nonce("a"), "sb-1"))
	copied := spool(t)
	require.NoError(t, os.CopyFS(copied, os.DirFS(dir))) // to "another host", or into a template
	require.NoError(t, os.Chmod(copied, 0o700))
	there := open(t, copied)
	errs := faults(t, there)
	require.Len(t, errs, 1)
	require.ErrorIs(t, errs[0], journal.ErrOwnerUnknown)
	assert.ErrorContains(t, errs[0], pathOf(copied, nonce("a")))
	assert.ErrorContains(t, errs[0], "pid ", "for people")
	_, known, err := there.Owner(nonce("a"))
	assert.False(t, known)
	require.ErrorIs(t, err, journal.ErrOwnerUnknown)
	assert.Len(t, names(t, copied), 1, "kept")
	require.NoError(t, there.Remove(t.Context(), nonce("a")), "a person may remove it")
	assert.Empty(t, names(t, copied))
	assert.Len(t, names(t, dir), 1)
}

func TestAnotherHostMakesNobodyDeadAndARebootDoes(t *testing.T) {
	for _, tt := range []struct {
		name, boot, machine string
		dead                bool
	}{
		{name: "the same boot", boot: "boot 1", machine: "m1", dead: true},
		{name: "a reboot of the same host", boot: "boot 2", machine: "m1", dead: true},
		{name: "another host, whose disk this is a copy of", boot: "boot 2", machine: "m2"},
		{name: "another container under the same kernel", boot: "boot 1", machine: "m2", dead: true},
		{name: "nothing is known of the host", dead: true},
		{name: "no boots are known, and another host", machine: "m2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := spool(t)
			dead, err := journal.OpenAs(dir, "boot 1", "m1")
			require.NoError(t, err)
			put(t, dead, entry(nonce("a"), "sb-1"))
			require.NoError(t, dead.Close())
			j, err := journal.OpenAs(dir, tt.boot, tt.machine)
			require.NoError(t, err)
			t.Cleanup(func() { j.Close() })
			if tt.dead {
				assert.Equal(t, []sandbox.Entry{entry(nonce("a"), "sb-1")}, orphans(t, j))
				return
			}
			errs := faults(t, j)
			require.Len(t, errs, 1)
			assert.ErrorIs(t, errs[0], journal.ErrOwnerUnknown)
			assert.ErrorContains(t, errs[0], "another host")
			assert.ErrorContains(t, errs[0], "boot boot 1", "for people")
		})
	}
}

func TestOnANetworkNobodyIsDead(t *testing.T) {
	dir := spool(t)
	_, err := journal.Options{}.OpenOn(dir, "NFS")
	require.ErrorIs(t, err, errors.ErrUnsupported)
	assert.ErrorContains(t, err, "NFS")
	assert.ErrorContains(t, err, "local disk")

	j, err := journal.Options{AllowNetwork: true}.OpenOn(dir, "NFS")
	require.NoError(t, err)
	t.Cleanup(func() { j.Close() })
	put(t, j, entry(nonce("a"), ""), entry(nonce("b"), ""))
	put(t, j, entry(nonce("a"), "sb-1"))
	require.NoError(t, j.Release(t.Context(), nonce("a")))
	errs := faults(t, j)
	require.Len(t, errs, 1)
	assert.ErrorIs(t, errs[0], journal.ErrOwnerUnknown)
	_, known, err := j.Owner(nonce("a"))
	assert.False(t, known)
	require.ErrorIs(t, err, journal.ErrOwnerUnknown)
	alive, known, err := j.Owner(nonce("b"))
	require.NoError(t, err)
	assert.True(t, alive && known)
	require.NoError(t, j.Remove(t.Context(), nonce("a")))
}

func TestWhatCannotBeReadIsReportedAndKept(t *testing.T) {
	dir := spool(t)
	dead := open(t, dir)
	put(t, dead, entry(nonce("a"), "sb-1"), entry(nonce("g"), "sb-7"))
	require.NoError(t, dead.Close())
	good, err := os.ReadFile(pathOf(dir, nonce("a")))
	require.NoError(t, err)
	other := journal.Reseal(good, func(slot string) string { return strings.Replace(slot, "journal 1 ", "journal 2 ", 1) })
	half := slices.Concat(good[:4096], other[4096:])
	for name, content := range map[string][]byte{
		nonce("b") + ".entry": nil,
		nonce("c") + ".entry": good[:len(good)-1],
		nonce("d") + ".entry": other,
		nonce("e") + ".entry": half,
		nonce("f") + ".entry": make([]byte, 8192),
		"notes.txt":           []byte("not ours"),
		"short.entry":         good,
		".hidden":             nil,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	require.NoError(t, os.Mkdir(pathOf(dir, nonce("h")), 0o700))
	before := names(t, dir)
	j := open(t, dir)
	var found []string
	said := map[string]string{}
	for e, err := range j.Orphans(t.Context()) {
		if err == nil {
			found = append(found, e.Mark.Nonce)
			continue
		}
		for _, name := range before {
			if strings.Contains(err.Error(), filepath.Join(dir, name)) {
				said[name] = err.Error()
			}
		}
	}
	assert.Equal(t, []string{nonce("a"), nonce("g")}, found, "the rest follow")
	want := map[string]string{
		nonce("b") + ".entry": "broken entry",
		nonce("c") + ".entry": "broken entry",
		nonce("d") + ".entry": "another version",
		nonce("e") + ".entry": "another version",
		nonce("f") + ".entry": "broken entry",
		nonce("h") + ".entry": "no regular file",
		"notes.txt":           "no entry",
		"short.entry":         "no entry",
	}
	assert.ElementsMatch(t, slices.Collect(maps.Keys(want)), slices.Collect(maps.Keys(said)))
	for name, what := range want {
		assert.Contains(t, said[name], what)
	}
	assert.Equal(t, before, names(t, dir), "all kept")
	require.Error(t, j.Put(t.Context(), entry(nonce("f"), "")), "nor is it written over")
	require.NoError(t, j.Remove(t.Context(), nonce("f")))
}

func TestAnEntryUnderAnothersNameIsReported(t *testing.T) {
	dir := spool(t)
	dead := open(t, dir)
	put(t, dead, entry(nonce("a"), "sb-1"))
	require.NoError(t, dead.Close())
	require.NoError(t, os.Rename(pathOf(dir, nonce("a")), pathOf(dir, nonce("b"))))
	errs := faults(t, open(t, dir))
	require.Len(t, errs, 1)
	assert.ErrorContains(t, errs[0], "another sandbox")
}

func TestWhatADeadWriterDidNotFinishIsCleared(t *testing.T) {
	dir := spool(t)
	j := open(t, dir)
	put(t, j, entry(nonce("a"), "sb-1"))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "."+nonce("b")+"-X.new"), []byte("half"), 0o600))
	second := filepath.Join(dir, "."+nonce("a")+"-Y.new") // died between the two names of a whole file
	if err := os.Link(pathOf(dir, nonce("a")), second); err != nil {
		t.Skip("no links here: ", err)
	}
	other := open(t, dir)
	assert.Empty(t, orphans(t, other))
	assert.Equal(t, []string{filepath.Base(second), nonce("a") + ".entry"}, names(t, dir), "its owner lives")
	require.NoError(t, j.Close())
	assert.Len(t, orphans(t, other), 1)
	assert.Equal(t, []string{nonce("a") + ".entry"}, names(t, dir))
}

func TestPutsAreNotDisturbedByWhoClearsAway(t *testing.T) {
	dir := spool(t)
	j, other := open(t, dir), open(t, dir)
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for ctx.Err() == nil {
				for e, err := range other.Orphans(ctx) {
					assert.True(t, err != nil && ctx.Err() != nil, "%v %v", e, err)
				}
			}
		})
	}
	for i := range 100 {
		e := entry(nonce("a"+letters(i)), "")
		require.NoError(t, j.Put(t.Context(), e))
		require.NoError(t, j.Remove(t.Context(), e.Mark.Nonce))
	}
	stop()
	wg.Wait()
	assert.Empty(t, names(t, dir))
}

func TestAnEndedContextStopsBeforeTheDisk(t *testing.T) {
	dir := spool(t)
	j := open(t, dir)
	put(t, j, entry(nonce("a"), ""))
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	require.ErrorIs(t, j.Put(ctx, entry(nonce("b"), "")), cause)
	require.ErrorIs(t, j.Put(ctx, entry(nonce("a"), "sb-1")), cause)
	require.ErrorIs(t, j.Remove(ctx, nonce("a")), cause)
	require.ErrorIs(t, j.Release(ctx, nonce("a")), cause)
	require.NoError(t, j.Close())
	j = open(t, dir)
	for _, err := range j.Orphans(ctx) {
		require.ErrorIs(t, err, cause)
	}
	assert.Equal(t, []sandbox.Entry{entry(nonce("a"), "")}, orphans(t, j))
}

func TestAClosedJournalRefusesCalls(t *testing.T) {
	j := open(t, spool(t))
	require.NoError(t, j.Close())
	require.ErrorIs(t, j.Put(t.Context(), entry(nonce("a"), "")), os.ErrClosed)
	require.ErrorIs(t, j.Remove(t.Context(), nonce("a")), os.ErrClosed)
	require.ErrorIs(t, j.Release(t.Context(), nonce("a")), os.ErrClosed)
	for _, err := range j.Orphans(t.Context()) {
		require.ErrorIs(t, err, os.ErrClosed)
	}
	assert.Empty(t, names(t, j.Dir()))
}

func TestConcurrentCallsOnOneEntryAgree(t *testing.T) {
	dir := spool(t)
	j := open(t, dir)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for k := range 10 {
				assert.NoError(t, j.Put(t.Context(), entry(nonce("a"), "sb-"+letters(k))))
				switch i % 4 {
				case 0:
					assert.NoError(t, j.Remove(t.Context(), nonce("a")))
				case 1:
					assert.NoError(t, j.Release(t.Context(), nonce("a")))
				case 2:
					for _, err := range j.Orphans(t.Context()) {
						assert.NoError(t, err)
					}
				}
			}
		})
	}
	wg.Wait()
	put(t, j, entry(nonce("a"), "last"))
	assert.Empty(t, orphans(t, open(t, dir)))
	require.NoError(t, j.Remove(t.Context(), nonce("a")))
	assert.Empty(t, names(t, dir))
}

func TestAScopeIsInTheJournalForAsLongAsItsSandbox(t *testing.T) {
	dir := spool(t)
	synctest.Test(t, func(t *testing.T) {
		j, err := journal.Open(dir)
		require.NoError(t, err)
		other, err := journal.Open(dir)
		require.NoError(t, err)
		m, err := sandbox.NewManager(sandboxtest.New(sandboxtest.Everything()), sandbox.Config{Fleet: "ci", Journal: j})
		require.NoError(t, err)
		err = m.WithSandbox(t.Context(), func(ctx context.Context, sb sandbox.Sandbox) error {
			live := m.Live()
			require.Len(t, live, 1)
			alive, known, err := other.Owner(live[0].Mark.Nonce)
			require.NoError(t, err)
			assert.True(t, alive && known)
			require.NoError(t, j.Close()) // as if the process had died
			found := orphans(t, other)
			require.Len(t, found, 1)
			assert.Equal(t, sb.ID(), found[0].ID)
			assert.Equal(t, live[0].Mark, found[0].Mark)
			return nil
		})
		require.NoError(t, err)
		j, err = journal.Open(dir)
		require.NoError(t, err)
		m, err = sandbox.NewManager(sandboxtest.New(sandboxtest.Everything()), sandbox.Config{Fleet: "ci", Journal: j})
		require.NoError(t, err)
		require.NoError(t, m.WithSandbox(t.Context(), func(context.Context, sandbox.Sandbox) error { return nil }))
		assert.Len(t, names(t, dir), 1, "of the scope that lost its journal; the second one's is gone")
	})
}

func TestDefaultDir(t *testing.T) {
	dir, err := journal.DefaultDir()
	require.NoError(t, err)
	assert.True(t, filepath.IsAbs(dir))
	assert.Equal(t, filepath.Join("sandglass", "journal"), filepath.Join(filepath.Base(filepath.Dir(dir)), filepath.Base(dir)))
}
