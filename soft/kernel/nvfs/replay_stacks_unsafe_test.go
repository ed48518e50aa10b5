package nvfs_test

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/transcript"
	softblock "github.com/culvert-io/culvert/soft/block"
	"github.com/culvert-io/culvert/soft/kernel/nvfs"
	"github.com/culvert-io/culvert/soft/kernel/nvfs/nvmestorage"
	"github.com/culvert-io/culvert/soft/pcie"
)

// Why the emulated module differs in the recordings above block stacks.
const (
	stateCounter = "the module counts a READ that the file system fails under io_state_err, the emulated one under err"
	timing       = "differs from run to run of the module, too"
)

func init() {
	maps.Copy(onPurpose, map[string]string{
		"unhooked-raw stat.bdev":          noDevice,
		"btrfs proc.end.stats":            stateCounter,
		"unwritten-cached proc.end.stats": hostCache,
		"many-holes read.async_2048":      timing,
		"virtio-file write.async":         timing,
		"many-holes proc.end.stats":       timing,
	})
}

// recordedStacks are the conversations and what was below the files.
var recordedStacks = map[string]string{
	"dm-crypt": "crypt", "raid5": "raid5", "unhooked-raw": "", "btrfs": "btrfs", "unwritten-cached": "", "many-holes": "", "virtio-file": "virtio",
}

// A stackDriver is the storage module of these recordings. One file may be on another
// drive.
type stackDriver struct {
	*nvmestorage.Driver
	unserved uint64 // inode
}

func (d *stackDriver) Version() string { return "(null)" } // as recorded

func (d *stackDriver) Serves(fd int) bool {
	var st unix.Stat_t
	return d.Driver.Serves(fd) && unix.Fstat(fd, &st) == nil && st.Ino != d.unserved
}

func TestReplayStacks(t *testing.T) {
	text, err := os.ReadFile("testdata/nvidia-fs-stacks.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	text = uniform(text)
	lines := bytes.Split(text, []byte("\n"))
	all := parse(t, bytes.NewReader(text))
	if len(all) != len(recordedStacks) {
		t.Errorf("%d conversations, want %d", len(all), len(recordedStacks))
	}
	for name, c := range all {
		t.Run(name, func(t *testing.T) {
			stack, ok := recordedStacks[name]
			if !ok {
				t.Fatal("nobody knows what was below the files")
			}
			replayStack(t, c, lines, stack)
		})
	}
}

func replayStack(t *testing.T, c *transcript.Conversation, lines [][]byte, stack string) {
	layers, err := softblock.ParseLayers(stack)
	if err != nil {
		t.Fatal(err)
	}
	var r *replayer
	d := &stackDriver{Driver: nvmestorage.New(func() (*pcie.Function, error) { return r.Near, nil }, false)}
	d.Below(layers)
	r = newReplayer(newFixture(t, false, nvfs.Config{Callback: true, Storage: []nvfs.Storage{d}}))
	r.devices = []string{"bdev", "hdev"}
	if c.Name == "many-holes" {
		r.gpuSize = 16 << 20
	}
	d.unserved = r.stackFiles(c.Name)
	r.replay(c, lines)
}

// stackFiles makes the files of a recording, and returns the inode of the one that is on
// a drive without hooks.
func (r *replayer) stackFiles(conversation string) (unserved uint64) {
	r.t.Helper()
	const size = 1 << 20
	b := pattern(7, size)
	switch conversation {
	case "unwritten-cached":
		r.allocated("fa", size, 0, nil)
		r.allocated("part", size, 256<<10, b[256<<10:320<<10])
	case "many-holes":
		alt := map[int64][]byte{}
		whole := pattern(7, 16<<20)
		for off := int64(0); off < int64(len(whole)); off += 2 * block {
			alt[off] = whole[off : off+block]
		}
		r.file("alt", int64(len(whole)), alt)
	case "unhooked-raw":
		r.file("hdev", size, map[int64][]byte{0: b})
		var st unix.Stat_t
		r.check(unix.Stat(r.file("bdev", size, map[int64][]byte{0: b}), &st))
		return st.Ino
	default:
		r.file("a", size, map[int64][]byte{0: b})
		r.file("w", size, map[int64][]byte{0: b})
	}
	return 0
}

// allocated makes a file of unwritten extents, with bytes at one place.
func (r *replayer) allocated(name string, size, off int64, b []byte) {
	r.t.Helper()
	f, err := os.OpenFile(r.file(name, 0, nil), os.O_RDWR, 0)
	r.check(err)
	defer f.Close()
	if err := unix.Fallocate(int(f.Fd()), 0, 0, size); err != nil {
		r.t.Skip("needs a file system with fallocate: ", err)
	}
	_, err = f.WriteAt(b, off)
	r.check(errors.Join(err, f.Sync()))
}

// ciphertext is what the drive below a layer that encrypts has.
func (r *replayer) ciphertext(name string) []byte {
	r.t.Helper()
	layers, err := softblock.ParseLayers("crypt")
	r.check(err)
	b := r.content(name)
	layers[0].Transform(b, 0)
	return b
}

// store writes through the page cache.
func (r *replayer) store(s *transcript.Step, off int64) string {
	r.t.Helper()
	f, err := os.OpenFile(filepath.Join(r.dir, r.raw[s.Line].Args.File), os.O_RDWR, 0)
	r.check(err)
	defer f.Close()
	n := int(s.Args.Length)
	_, err = f.WriteAt(r.wanted(s.Args.With, 0, n), off)
	r.check(err)
	return ""
}
