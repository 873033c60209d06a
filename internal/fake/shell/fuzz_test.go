package shell_test

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/sandglass-dev/sandglass/internal/fake/shell"
)

// No script panics, outlives its context or leaves a goroutine, which would keep the bubble from ending.
func FuzzScript(f *testing.F) {
	for _, s := range corpus(f) {
		f.Add(s.text)
	}
	for _, s := range []string{
		"f() { f | f & }; f", "while :; do :; done", "x=a; while :; do x=$x$x; done", "${x:-${y:=$((z+=1))}}", "$((", "`", "<<E",
		"[[ a =~ ( ]]", "echo ${x//[/]}", "case a in [) esac", "printf %*d", "sed 's/\\(/x/'", "expr ( (", "find ! !",
		"tar x", "test ( )", "kill -9 $$ &", "trap 'kill $$' TERM; kill $$", "exec <&- >&-; echo x; read y",
		"{1..9}{1..9}{1..9}", "timeout 0 yes | head -c1", "\"\"&0\xff", "${x/}${x//}${x#}${x-}",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, script string) {
		synctest.Test(t, func(t *testing.T) {
			const limit = 100 * time.Millisecond
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			fsys := shell.NewFS()
			fsys.SetQuota(8 << 20)
			begin := time.Now()
			code := shell.Run(ctx, fsys, shell.Command{
				Args: []string{"bash", "-c", script}, Dir: "/tmp", Stdout: io.Discard, Stderr: io.Discard,
			})
			assert.LessOrEqual(t, time.Since(begin), limit)
			assert.GreaterOrEqual(t, code, 0)
			assert.LessOrEqual(t, code, 255)
		})
	})
}
