package sandbox_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/sandbox"
)

func mark() sandbox.Mark {
	return sandbox.Mark{
		Fleet: "ci.agents-1", Owner: "host.example.4711", Nonce: "abcdefghijklmn27",
		Created: time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC), Lifetime: 62*time.Minute + 130*time.Millisecond,
	}
}

func TestMarkReadsBackWhatItWrote(t *testing.T) {
	long := mark()
	long.Fleet, long.Owner = strings.Repeat("f.", 16), strings.Repeat("-o", 16)
	long.Lifetime = 10 * 365 * 24 * time.Hour
	for _, m := range []sandbox.Mark{mark(), long} {
		s := m.String()
		got, err := sandbox.ParseMark(s)
		require.NoError(t, err)
		assert.Equal(t, m, got)
		assert.LessOrEqual(t, len(s), 120)
		assert.Empty(t, strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-"))
	}
	assert.Equal(t, "1.b.ci.agents-1.host.example.4711.abcdefghijklmn27.tpb280.27qgy.0e88092d", mark().String(), "the form is a contract with every sandbox that is alive")
	assert.Equal(t, "sandglass-abcdefghijklmn27", mark().Name())
}

func TestMarkThatWasChangedIsForeign(t *testing.T) {
	whole := mark().String()
	for name, s := range map[string]string{
		"empty": "", "a word": "mine", "cut": whole[:len(whole)-1], "longer": whole + "0", "other version": "2" + whole[1:],
		"upper case": strings.ToUpper(whole), "space around": " " + whole, "other fleet": strings.Replace(whole, "ci", "cj", 1),
	} {
		_, err := sandbox.ParseMark(s)
		assert.ErrorIs(t, err, sandbox.ErrInvalid, name)
	}
	for i := range whole { // every single character counts
		changed := whole[:i] + "x" + whole[i+1:]
		if changed == whole {
			continue
		}
		_, err := sandbox.ParseMark(changed)
		assert.Error(t, err, changed)
	}
}

func FuzzParseMark(f *testing.F) {
	f.Add(mark().String())
	f.Add("1.0...aaaaaaaaaaaaaaaa.0.0.00000000")
	f.Add("1.zzzzzzzzz.a.b.c")
	f.Fuzz(func(t *testing.T, s string) {
		m, err := sandbox.ParseMark(s)
		if err != nil {
			assert.Zero(t, m)
			return
		}
		assert.Equal(t, s, m.String(), "there is one way to write a mark")
	})
}

func FuzzMarkRoundTrip(f *testing.F) {
	f.Add("ci", "host.1", "abcdefghijklmn27", int64(1790000000), int64(3600000))
	f.Fuzz(func(t *testing.T, fleet, owner, nonce string, at, ms int64) {
		m := sandbox.Mark{
			Fleet: fleet, Owner: owner, Nonce: nonce,
			Created: time.Unix(at%1e11, 0).UTC(), Lifetime: time.Duration(ms%1e12) * time.Millisecond,
		}
		got, err := sandbox.ParseMark(m.String())
		if err == nil {
			assert.Equal(t, m, got, "a mark that parses is the one that was written")
		}
	})
}
