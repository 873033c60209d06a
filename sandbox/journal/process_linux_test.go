package journal_test

import (
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/sandglass-dev/sandglass/sandbox/journal"
)

// namespaced puts a process into a pid namespace of its own, where it is process 1.
func namespaced(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
}

// Two containers with one spool: each is pid 1, under the same boot. So the pid in the dead one's entry is one that lives,
// and the pid in the living one's entry is of nobody else whom the replaying process can see.
func TestPidNamespacesWithOneSpool(t *testing.T) {
	dir := spool(t)
	doomed := spawn(t, namespaced, "own", dir, nonce("a"))
	assert.Equal(t, "1", doomed.expect("holds as"))
	sibling := spawn(t, namespaced, "own", dir, nonce("b"))
	assert.Equal(t, "1", sibling.expect("holds as"))

	look := func() []string {
		c := spawn(t, namespaced, "replay", dir)
		assert.Equal(t, "1", c.expect("ready as"))
		c.say()
		return c.orphans()
	}
	assert.Empty(t, look(), "both live")
	doomed.kill()
	assert.Equal(t, []string{nonce("a")}, look(), "the dead one's, and only that")
	sibling.kill()
	assert.Equal(t, []string{nonce("a"), nonce("b")}, look())
}

func TestNetworkFileSystemsAreKnown(t *testing.T) {
	for magic, name := range map[uint32]string{
		0x6969: "NFS", 0xFE534D42: "SMB", 0xFF534D42: "SMB", 0x65735546: "FUSE", 0x01021997: "9P", 0x00C36400: "Ceph", 0x0BD00BD0: "Lustre",
	} {
		assert.Equal(t, name, journal.NetworkName(magic))
	}
	for _, local := range []uint32{0xEF53, 0x58465342, 0x9123683E, 0x2FC12FC1, 0x01021994, 0x794C7630} {
		assert.Empty(t, journal.NetworkName(local), "ext4, XFS, Btrfs, ZFS, tmpfs, overlay")
	}
}
