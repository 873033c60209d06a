package shell_test

import (
	"go/parser"
	"go/token"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWhatGrowsWithoutEndReachesALimit(t *testing.T) {
	for _, c := range []struct{ rule, script, says string }{
		{"values", `x=aaaaaaaaaaaaaaaa; while :; do x=$x$x; done`, "too long"},
		{"many values", `x=$(head -c 1000000 /dev/zero | tr '\0' a); i=0
			while :; do eval "v$i=\$x"; i=$((i+1)); done`, "Out of memory"},
		{"replacements", `x=$(head -c 100000 /dev/zero | tr '\0' a); echo ${x//a/$x}`, "too long"},
		{"parameters", `set -- a a a a; while :; do set -- "$@" "$@"; done`, "too long|Out of memory"},
		{"words", `x=$(seq 100000); set -- $x $x $x $x $x $x $x`, "too long|Out of memory"},
		{"substitutions", `x=$(cat /dev/zero)`, "too long"},
		{"functions", `f() { f; }; f`, "nested too deeply"},
		{"functions with parameters", `f() { f "$1$1" "$2"; }; f aaaaaaaa`, "too long|nested|Out of memory"},
		{"evals", `x='eval "$x"'; eval "$x"`, "nested too deeply"},
		{"subshells", `f() { (f); }; f`, "Cannot fork"},
		{"substitutions in substitutions", `f() { x=$(f); }; f`, "Cannot fork"},
		{"scripts that run themselves", `echo 'sh s' > s; sh s`, "Cannot fork|Out of memory"},
		{"function definitions", `i=0; b=$(seq 2000 | sed 's/.*/: &;/')
			while :; do eval "f$i() { $b }"; i=$((i+1)); done`, "Out of memory"},
		{"expressions that hold themselves", `a=b+1; b=a+1; echo $((a))`, "too deep"},
		{"variables that name themselves", `a=b; b=a; echo $((a))`, "too deep"},
		{"brackets", strings.Repeat("(", 200_000), "too complex"},
		{"brackets in variables", `x=$(head -c 9000 /dev/zero | tr '\0' '('); echo $((x))`, "too deep"},
		{"substituted brackets", strings.Repeat("$(", 100_000), "too complex"},
		{"words that nest", strings.Repeat("if ", 80_000), "too complex"},
		{"long scripts", "#" + strings.Repeat("x", 300_000), "too long"},
		{"long lines", `head -c 3000000 /dev/zero | tr '\0' x | grep y`, "too long"},
		{"lines for sort", `yes xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx | sort`, "Out of memory"},
		{"printf", `printf '%99999999d' 1`, "invalid format"},
		{"sed", `yes xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx | sed -n 'H;x;s/x/xxxxxxxxxx/g;x'`, "too long"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			got, _ := inBubble(t, time.Hour, c.script)
			assert.NotZero(t, got.code)
			assert.Regexp(t, c.says, got.errOut)
		})
	}
}

func TestAForkBombIsContained(t *testing.T) {
	got, _ := inBubble(t, time.Minute, `bomb() { bomb | bomb & }; { sleep 0.001; bomb; } & sleep 0.1; echo still here`)
	assert.Equal(t, "still here\n", got.out)
	assert.Contains(t, got.errOut, "Cannot fork")
}

func TestALongChainIsNotNesting(t *testing.T) {
	got, _ := inBubble(t, time.Hour, "true"+strings.Repeat(" && true", 20_000)+"; echo $?; : "+
		strings.Repeat("| : ", 100)+"; echo $((1"+strings.Repeat("+1", 900)+"))")
	assert.Equal(t, "0\n901\n", got.out, got.errOut)
}

// The shell's own files may use nothing that reaches the host. Package time is the one exception, for its clock; the parser's
// packages work on text only.
func TestTheShellCannotTouchTheHost(t *testing.T) {
	allowed := " bufio bytes context errors fmt hash io io/fs maps math math/rand/v2 path reflect regexp slices strconv strings " +
		"sync sync/atomic time unicode unicode/utf8 archive/tar compress/gzip crypto/md5 crypto/sha1 crypto/sha256 crypto/sha512 " +
		"encoding/base64 encoding/hex mvdan.cc/sh/v3/syntax mvdan.cc/sh/v3/pattern "
	entries, err := os.ReadDir(".")
	require.NoError(t, err)
	files := 0
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			assert.False(t, strings.HasSuffix(e.Name(), ".s"), e.Name())
			continue
		}
		files++
		f, err := parser.ParseFile(token.NewFileSet(), e.Name(), nil, parser.ImportsOnly|parser.ParseComments)
		require.NoError(t, err)
		for _, i := range f.Imports {
			path, err := strconv.Unquote(i.Path.Value)
			require.NoError(t, err)
			assert.Contains(t, allowed, " "+path+" ", e.Name())
		}
		src, err := os.ReadFile(e.Name())
		require.NoError(t, err)
		assert.NotContains(t, string(src), "//go:linkname", e.Name())
		assert.NotContains(t, string(src), "tar.FileInfoHeader", e.Name()) // looks up the host's users
	}
	assert.Greater(t, files, 20)
}
