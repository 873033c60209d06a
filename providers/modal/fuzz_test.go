package modal_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/sandglass-dev/sandglass/providers/modal"
)

func FuzzWhatABeatSaysIsReadOrRefused(f *testing.F) {
	for _, s := range []string{"", "\n", "17999\n", "0\n", "-1\n", "1e9\n", "99999999999\n", "12 34\n", "１２\n", "+5\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, said string) {
		left, ok := modal.ReadLeft(said)
		if ok {
			assert.GreaterOrEqual(t, left, time.Duration(0))
			assert.Less(t, left, 250*24*time.Hour)
		}
	})
}

func FuzzABeatInATagIsReadOrIgnored(f *testing.F) {
	for _, s := range []string{`["true"]`, `[]`, `[""]`, `null`, `{}`, `["a","b"]`, `"x"`, `[1]`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if args := modal.BeatOf(map[string]string{"sandglass-beat": text}); args != nil {
			assert.NotEmpty(t, args[0])
		}
	})
}

func FuzzTimesAreReadOrLeftOut(f *testing.F) {
	for _, s := range []float64{0, -1, 1e300, 1_790_000_000.123456, 0.0000001} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s float64) {
		if at := modal.At(s); !at.IsZero() {
			assert.InDelta(t, s, float64(at.UnixMicro())/1e6, 2e-6)
		}
	})
}

func FuzzErrorsShowNoSecret(f *testing.F) {
	p, err := modal.New(modal.Config{TokenID: "ak-secret123", TokenSecret: "as-secret456"})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(p.Close)
	f.Add("x ak-secret123 y", "hunter22")
	f.Fuzz(func(t *testing.T, text, secret string) {
		got := p.Clean(text+" as-secret456 "+text, secret)
		assert.NotContains(t, got, "as-secret456")
		assert.NotContains(t, got, "ak-secret123")
		assert.LessOrEqual(t, len(got), 410)
	})
}
