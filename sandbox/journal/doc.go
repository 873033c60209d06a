// Package journal is the crash journal on disk: it remembers creates across a crash of the process, so that the next
// start can end what the last one left. It implements [sandbox.Journal].
//
//	j, err := journal.Open("") // the user's own folder, see DefaultDir
//	...
//	m, err := sandbox.NewManager(p, sandbox.Config{Fleet: "ci", Journal: j})
//
// # Who is dead
//
// A spool folder holds one small file per sandbox, named after its nonce. The owner of the sandbox holds an exclusive
// lock on that file (flock, on Windows LockFileEx) from before the create until the entry is removed. The system drops
// the lock when the process ends, however it ends. Only who could take the lock may call the owner dead. Pid, start
// time, boot id and host name stand in the file for people to read, and are never judged: containers share a spool
// without sharing pids, and cloned hosts share names.
//
// The lock proves nothing where it is not the owner's lock that was taken. So an entry's owner is unknown, and the
// entry is reported and kept, if
//   - the folder lies on a network file system ([Options].AllowNetwork),
//   - the file is a copy: its inode number or its time of birth is not the one that its owner wrote down, or
//   - it was written on another host: the boot differs, and so does the machine or its hardware's id, where both sides
//     know it.
//
// # What it cannot know
//
//   - A copy of a whole disk, block by block (a machine's template, a snapshot, a restored backup), looks like the disk
//     itself after a reboot where the system shows no id of the hardware or hides it (Linux shows it to root only).
//     Keep the spool out of templates.
//   - Where a container runtime has a kernel of its own that keeps locks to itself, a shared folder that looks local
//     makes the living look dead. Give such containers a folder each.
//   - A process that replaces itself by exec loses its locks, since its descriptors close on exec: its scopes are dead,
//     although its pid lives on. That is right, for nobody is left who would end them.
//   - The tests run on Linux. What is particular to macOS, FreeBSD and Windows was compiled and vetted, and not run.
//   - Entries that fit the file are rewritten in place, so that they fit on a full disk too. A file system that copies
//     on write or compresses (btrfs, ZFS) may need new space even so.
//
// # The file
//
// A file has two slots of the same size, in each the whole entry as JSON under a line with version, count and SHA-256,
// padded with spaces. A change goes into the slot that is not the latest, so that a crash in the middle of it leaves the
// one before. The file is written and locked under a hidden temporary name and then linked to its own, so that nobody
// ever sees half of it, or sees it unlocked. A journal needs one open descriptor per open scope.
package journal
