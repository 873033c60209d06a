package console_test

import (
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/cmd/sandglass/internal/console"
)

func TestDurationsAreForPeople(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0:                               "0 s",
		400 * time.Millisecond:          "0 s",
		59 * time.Second:                "59 s",
		time.Minute:                     "1 min",
		3*time.Minute + 10*time.Second:  "3 min 10 s",
		2*time.Hour + 5*time.Second:     "2 h",
		25 * time.Hour:                  "1 d 1 h",
		-90 * time.Second:               "-1 min 30 s",
		59*time.Minute + 59*time.Second: "59 min 59 s",
	} {
		assert.Equal(t, want, console.Duration(d))
	}
}

func TestATableIsAlignedByWhatIsSeen(t *testing.T) {
	var b strings.Builder
	table := console.Table{
		Header: []string{"ID", "STATE", "TAGS"},
		Rows:   [][]string{{"é", "running", "a=b"}, {"long-id", "gone", ""}, {"x\n\x1b[31my", "failed", "t"}},
		Style: func(column int, cell string) string {
			if cell == "failed" {
				return console.Red
			}
			return ""
		},
	}
	require.NoError(t, table.Write(&b))
	assert.Equal(t, "ID       STATE    TAGS\n"+
		"é        running  a=b\n"+
		"long-id  gone\n"+
		"x [31my  \x1b[31mfailed\x1b[0m   t\n", b.String(), "control sequences of others are taken out")
}

// stuck is a writer that does not return, as a pipe that nobody reads.
type stuck struct{ released chan struct{} }

func (s stuck) Write(p []byte) (int, error) {
	<-s.released
	return len(p), nil
}

func TestNotesNeverMakeTheirWriterWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stuck{make(chan struct{})}
		n := console.NewNotes()
		go n.Run(s)
		start := time.Now()
		for range 10_000 {
			n.Add("a line")
		}
		assert.Zero(t, time.Since(start))
		n.Close(time.Second)
		assert.Equal(t, time.Second, time.Since(start), "and are given up in the end")
		n.Add("late")
		close(s.released)
	})
}

func TestNotesSayHowManyWereLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b strings.Builder
		n := console.NewNotes()
		for range 300 {
			n.Add("a line")
		}
		go n.Run(&b)
		synctest.Wait()
		n.Add("the next")
		n.Close(time.Second)
		assert.Equal(t, 256, strings.Count(b.String(), "a line\n"))
		assert.Contains(t, b.String(), "44 lines could not be written\nthe next\n")
	})
}

type closed struct{ tries int }

func (c *closed) Write([]byte) (int, error) {
	c.tries++
	return 0, io.ErrClosedPipe
}

func TestNotesGoOnWhereNothingCanBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &closed{}
		n := console.NewNotes()
		go n.Run(c)
		n.Add("one")
		n.Add("two")
		n.Close(time.Second)
		assert.Equal(t, 2, c.tries)
	})
}
