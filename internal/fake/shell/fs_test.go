package shell_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/internal/fake/shell"
)

func read(t *testing.T, f *shell.FS, name string) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, f.ReadFile(name, &b))
	return b.String()
}

func TestAWrittenFileIsReadBack(t *testing.T) {
	f := shell.NewFS()
	big := strings.Repeat("0123456789", 100_000)
	require.NoError(t, f.WriteFile("/a/b/c", strings.NewReader(big)))
	assert.Equal(t, big, read(t, f, "/a/b/c"))
	require.NoError(t, f.WriteFile("/a/b/c", strings.NewReader("short")))
	assert.Equal(t, "short", read(t, f, "/a/b/c"), "what was there is replaced")
	got := runCommand(t, f, shell.Command{Args: []string{"cat", "/a/b/c"}})
	assert.Equal(t, "short", got.out)
}

func TestAFailedWriteLeavesAPart(t *testing.T) {
	f := shell.NewFS()
	broken := io.MultiReader(strings.NewReader("part"), iotest.ErrReader(errors.New("broken")))
	err := f.WriteFile("/x", broken)
	assert.ErrorContains(t, err, "broken")
	assert.Equal(t, "part", read(t, f, "/x"))
}

func TestErrorsOfFilesAreThoseOfPackageFS(t *testing.T) {
	f := shell.NewFS()
	var pathError *fs.PathError
	err := f.ReadFile("/none", io.Discard)
	assert.ErrorIs(t, err, fs.ErrNotExist)
	assert.ErrorAs(t, err, &pathError)
	assert.ErrorIs(t, f.ReadFile("relative", io.Discard), fs.ErrInvalid)
	assert.ErrorIs(t, f.WriteFile("relative", strings.NewReader("")), fs.ErrInvalid)
	assert.ErrorIs(t, f.ReadFile("/dev/zero", io.Discard), fs.ErrInvalid)
	assert.Error(t, f.ReadFile("/etc", io.Discard))
	assert.Error(t, f.WriteFile("/etc", strings.NewReader("")))
	assert.Error(t, f.WriteFile("/etc/passwd/x", strings.NewReader("")))
	assert.Error(t, f.WriteFile("/x/", strings.NewReader("")))
	assert.Error(t, f.WriteFile("/"+strings.Repeat("n", 256), strings.NewReader("")))
	assert.Error(t, f.WriteFile(strings.Repeat("/n", 4096), strings.NewReader("")))
	assert.ErrorContains(t, f.ReadFile("/etc/passwd", failingWriter{}), "full")
}

func TestTheQuotaIsAFullDisk(t *testing.T) {
	f := shell.NewFS()
	f.SetQuota(1 << 20)
	err := f.WriteFile("/big", strings.NewReader(strings.Repeat("x", 2<<20)))
	assert.ErrorContains(t, err, "No space left on device")
	got := runCommand(t, f, shell.Command{Args: []string{"sh", "-c", `
		rm /big; yes > /tmp/f; echo $?; cp /tmp/f /tmp/g 2>/dev/null; echo $?; mkdir /tmp/d 2>/dev/null; echo $?
		rm /tmp/f /tmp/g; mkdir /tmp/d; echo $?
		i=0; while echo > /tmp/d/$i; do i=$((i+1)); done 2>/dev/null; [ $i -gt 100 ] && [ $i -lt 2100 ] && echo entries cost`}})
	assert.Equal(t, "1\n1\n1\n0\nentries cost\n", got.out)
	assert.Contains(t, got.errOut, "yes: write error: No space left on device")
}

func TestSpaceComesBackWhenNobodyUsesAFile(t *testing.T) {
	f := shell.NewFS()
	f.SetQuota(1 << 20)
	got := runCommand(t, f, shell.Command{Args: []string{"sh", "-c", `
		fill() { head -c 700000 /dev/zero > $1 2>/dev/null; echo $?; }
		fill a; exec 3<a; rm a; fill b; rm b   # still open: no room
		exec 3<&-; fill c; ln c d; rm c; fill e; rm d e; fill f
		mv f g; fill h; rm g h; fill i; > i; fill j; truncate -s 600000 i 2>/dev/null; echo $?`}})
	assert.Equal(t, "0\n1\n0\n1\n0\n1\n0\n0\n1\n", got.out)
}

func TestOneFileSystemServesManyCommandsAtOnce(t *testing.T) {
	f := shell.NewFS()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			name := fmt.Sprintf("/tmp/%d", i)
			assert.NoError(t, f.WriteFile(name+"/in", strings.NewReader("x\n")))
			got := runCommand(t, f, shell.Command{Dir: name, Args: []string{"sh", "-c", `
				for i in 1 2 3 4 5; do cat in >> out; echo shared >> /tmp/shared; done; ls /tmp >/dev/null; wc -l < out`}})
			assert.Equal(t, "5\n", got.out)
		})
	}
	wg.Wait()
	assert.Equal(t, 40, strings.Count(read(t, f, "/tmp/shared"), "shared\n"))
}

func TestTreesCannotBeTiedIntoKnots(t *testing.T) {
	got := run(t, `
		mkdir -p a/b; mv a a/b/c; echo $?; cp -r a a/b/c; echo $?
		ln -s loop loop; cat loop; echo $?; ln -s . here; cat here/here/here/none; echo $?
		mv / x; echo $?; rm -rf /; echo $?; rmdir ..; echo $?; ln a hard; echo $?`)
	assert.Equal(t, strings.Repeat("1\n", 8), got.out)
	assert.Contains(t, got.errOut, "Too many levels of symbolic links")
}
