package nvfs_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	abi "github.com/culvert-io/culvert/internal/abi/nvfs"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/transcript"
	"github.com/culvert-io/culvert/soft/kernel/nvfs"
)

// Why the emulated module differs. The list is whole: a difference that is not in onPurpose
// fails, and so does a difference in it that is not there.
const (
	noLeak     = "the module leaks the pin, the emulated one releases it"
	noWedge    = "the module's asynchronous transfer of 0 bytes never ends and keeps the mgroup busy, the emulated one completes"
	realActive = "the module's count of active pins goes wrong with refused second MAPs, the emulated one counts pins"
	hostCache  = "the page cache is the host's, and not counted"
	noDevice   = "a file stands for the block device"
)

var onPurpose = map[string]string{
	"main read.bdev_major0":         noDevice,
	"main proc.closed.stats":        realActive,
	"main proc.end.stats":           realActive,
	"dma live.munmap_in_flight":     noLeak,
	"dma meta.munmap_revoked":       noLeak,
	"dma proc.after_writes.stats":   hostCache,
	"dma proc.end.stats":            hostCache + "; " + noLeak,
	"poison leak.live_munmapped":    noLeak,
	"poison live.busy":              noLeak,
	"poison live.busy_munmapped":    noLeak,
	"poison live.batch":             noLeak,
	"poison meta.async_size0":       noWedge,
	"poison read.after_async_size0": noWedge,
	"poison live.3":                 noLeak,
	"poison live.4":                 noLeak,
	"poison proc.end.stats":         noLeak + "; " + noWedge,
	"crash-leak crash.leaked":       noLeak,
}

// inFlight are the steps that find an asynchronous transfer in flight.
var inFlight = []string{"meta.async_before", "busy.second", "munmap.in_flight", "meta.munmap_now"}

// A replayer compares a conversation with the emulated module.
type replayer struct {
	*fixture
	b     transcript.Bindings
	gate  asyncGate
	nodes map[string]dev.Node
	ro    map[string]bool
	fds   map[string]int
	views map[uint64]dev.Mapping
	raw   map[int]extra // by line
	// gpuSize is the size of each buffer, and devices are the names of files that stand for
	// block devices, of which only the first part is there.
	gpuSize uint64
	devices []string
}

// extra are arguments of steps with which data files are looked at.
type extra struct {
	Args struct {
		File      string
		First     int
		Offset    string
		Size      int64
		NewLength int `json:"new_length"`
		Blocks512 int64
	}
}

func TestReplay(t *testing.T) {
	text, err := os.ReadFile("testdata/nvidia-fs.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	text = uniform(text)
	lines := bytes.Split(text, []byte("\n"))
	all := parse(t, bytes.NewReader(text))
	if len(all) != 8 {
		t.Errorf("%d conversations, want 8", len(all))
	}
	for name, c := range all {
		t.Run(name, func(t *testing.T) { replay(t, c, lines) })
	}
}

// uniform makes text of all offsets: those in files are numbers, those of
// mappings text.
func uniform(text []byte) []byte {
	return regexp.MustCompile(`"offset": ?(\d+)`).ReplaceAll(text, []byte(`"offset":"$1"`))
}

// parse reads the conversations, by name.
func parse(t *testing.T, r io.Reader) map[string]*transcript.Conversation {
	t.Helper()
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	list, err := transcript.Parse(bytes.NewReader(uniform(text)))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*transcript.Conversation{}
	for _, c := range list {
		all[c.Name] = c
	}
	return all
}

func replay(t *testing.T, c *transcript.Conversation, lines [][]byte) {
	hooks := c.Name == "dma"
	r := newReplayer(newFixture(t, hooks, nvfs.Config{Callback: true, RWStats: hooks}))
	r.m.HideBlocks(c.Name == "xfs")
	r.dataFiles()
	r.replay(c, lines)
}

func newReplayer(w *fixture) *replayer {
	return &replayer{
		fixture: w, b: transcript.Bindings{}, gpuSize: 2 << 20,
		nodes: map[string]dev.Node{}, ro: map[string]bool{}, fds: map[string]int{}, views: map[uint64]dev.Mapping{}, raw: map[int]extra{},
	}
}

func (r *replayer) replay(c *transcript.Conversation, lines [][]byte) {
	t := r.t
	r.gate.shut()
	r.Points.Hook(r.gate.hook)
	for _, s := range c.Steps {
		var x extra
		r.check(json.Unmarshal(lines[s.Line-1], &x))
		r.raw[s.Line] = x
		if !slices.Contains(inFlight, s.Name) && s.Args.Knob != "revoke" {
			r.settle()
		}
		diff := r.step(s)
		reason := onPurpose[c.Name+" "+s.Name]
		if diff != "" && reason == "" {
			t.Errorf("step %s: %s (%s)", s.Name, diff, s.Note)
		}
		if diff == "" && reason != "" {
			t.Errorf("step %s does not differ any more, though it may: %s", s.Name, reason)
		}
	}
	r.settle()
	for _, m := range r.views {
		r.check(m.Unmap())
	}
	for _, n := range r.nodes {
		r.check(n.Close())
	}
	for _, fd := range r.fds {
		r.check(unix.Close(fd))
	}
	r.close()
}

// settle lets asynchronous transfers end.
func (r *replayer) settle() {
	r.gate.open()
	r.m.Idle()
	r.gate.shut()
}

func (r *replayer) step(s *transcript.Step) string {
	calls := map[string]func(*transcript.Step) string{
		"read": r.read, "open": r.open, "close": r.closeFile, "ioctl": r.ioctl, "mmap": r.mmap, "munmap": r.munmap, "mremap": r.mremap,
		"access": r.access, "compare": r.compare, "file": r.lookAtFile, "stat": r.stat, "stub": r.stub, "note": r.note,
	}
	call := calls[s.Call]
	if call == nil {
		r.t.Fatalf("no way to replay a call of %q", s.Call)
	}
	return call(s)
}

// errno compares the error of a call.
func errno(s *transcript.Step, err error) string {
	var no syscall.Errno
	if err != nil && !errors.As(err, &no) {
		return fmt.Sprintf("an error without errno: %v", err)
	}
	if int(no) != s.Err {
		return fmt.Sprintf("errno %d (%v), want %d", int(no), no, s.Err)
	}
	return ""
}

// bind makes what placeholders stand for.
func (r *replayer) bind(names ...string) {
	for _, name := range names {
		if _, known := r.b[name]; known {
			continue
		}
		switch {
		case strings.HasPrefix(name, "gpu"):
			r.b[name] = r.alloc(r.gpuSize)
		case strings.HasPrefix(name, "fence"), name == "anon0", name == "entries":
			r.b[name] = address(r.memory(4096))
		}
	}
}

var expr = regexp.MustCompile(`^<([a-z0-9.]+)(?:\+(0x[0-9a-f]+))?>$`)

// value is an expression in the arguments.
func (r *replayer) value(s string) uint64 {
	r.t.Helper()
	m := expr.FindStringSubmatch(s)
	if m == nil {
		v, err := strconv.ParseUint(s, 0, 64)
		r.check(err)
		return v
	}
	r.bind(m[1])
	add, _ := strconv.ParseUint(m[2], 0, 64) // 0 where there is none
	v, ok := r.b[m[1]]
	if !ok {
		r.t.Fatalf("<%s> has no value", m[1])
	}
	return v + add
}

var gpuName = regexp.MustCompile(`GPU 0000:00:00\.0  uuid:[5a-]+ :`)

func (r *replayer) read(s *transcript.Step) string {
	got, err := fs.ReadFile(r.OS.FS(), strings.TrimPrefix(s.Args.Path, "/"))
	if err != nil {
		return err.Error()
	}
	// Our GPU has a name.
	text := regexp.MustCompile(`GPU [0-9a-f:.]+  uuid:[0-9a-f-]{36} :`).ReplaceAllString(string(got), "GPU :")
	want := regexp.QuoteMeta(gpuName.ReplaceAllString(*s.Args.Text, "GPU :"))
	want = strings.ReplaceAll(want, "<n>", "[0-9.]+")
	if !regexp.MustCompile("^" + want + "$").MatchString(text) {
		return fmt.Sprintf("text is\n%s\nwant\n%s", text, *s.Args.Text)
	}
	return ""
}

func (r *replayer) open(s *transcript.Step) string {
	flags, err := strconv.ParseInt(s.Args.Flags, 8, 32)
	r.check(err)
	if strings.HasPrefix(s.Args.Path, "/dev/nvidia-fs") {
		n, err := dev.Of(r.OS).Open(s.Args.Path)
		r.nodes[s.FD], r.ro[s.FD] = n, flags == 0
		return errno(s, err)
	}
	name := filepath.Base(s.Args.Path)
	if strings.HasPrefix(s.Args.Path, "/dev/") {
		name = s.FD
	}
	fd, err := unix.Open(filepath.Join(r.dir, name), int(flags), 0)
	r.check(err)
	var st unix.Stat_t
	r.check(unix.Fstat(fd, &st))
	gen, _ := unix.IoctlGetInt(fd, 0x80087601) // 0, which is not compared, where a file system has none
	r.fds[s.FD] = fd
	for name, v := range map[string]uint64{
		"ino": st.Ino, "major": uint64(unix.Major(st.Dev)), "minor": uint64(unix.Minor(st.Dev)), "fd": uint64(fd), "gen": uint64(gen),
		"sbmajor": uint64(unix.Major(st.Dev + 1)), "sbminor": uint64(unix.Minor(st.Dev + 1)), // see SuperBlock
	} {
		r.b[name+"."+s.FD] = v
	}
	return ""
}

func (r *replayer) closeFile(s *transcript.Step) string {
	n := r.nodes[s.FD]
	delete(r.nodes, s.FD)
	return errno(s, n.Close())
}

// argument places bytes in memory as the recording did.
func (r *replayer) argument(s *transcript.Step, in []byte) []byte {
	mem := r.memory(2 * 4096)
	arg := mem[64 : 64+len(in)]
	if s.Args.Placement != "" {
		arg = mem[4096-len(in) : 4096]
		r.check(unix.Mprotect(mem[4096:], unix.PROT_NONE))
	}
	copy(arg, in)
	if strings.Contains(s.Note, "not writable") {
		r.check(unix.Mprotect(mem, unix.PROT_READ))
	}
	return arg
}

func (r *replayer) ioctl(s *transcript.Step) string {
	n := r.nodes[s.FD]
	if s.In == nil {
		return errno(s, n.Ioctl(uintptr(s.Req), nil))
	}
	r.bind(s.In.Names()...)
	in, err := s.In.Fill(r.b)
	r.check(err)
	arg := r.argument(s, in)
	if diff := errno(s, n.Ioctl(uintptr(s.Req), unsafe.Pointer(&arg[0]))); diff != "" {
		return diff
	}
	if err := s.Out.Match(arg, r.b, nil); err != nil {
		return err.Error()
	}
	return ""
}

func (r *replayer) mmap(s *transcript.Step) string {
	n, off := r.nodes[s.FD], r.value(s.Args.Offset)
	prot := 0
	for name, bit := range map[string]int{"READ": unix.PROT_READ, "WRITE": unix.PROT_WRITE, "EXEC": unix.PROT_EXEC} {
		if strings.Contains(s.Args.Prot, name) {
			prot |= bit
		}
	}
	var m dev.Mapping
	var err error
	switch {
	case r.ro[s.FD] && prot&unix.PROT_WRITE != 0:
		err = syscall.EACCES // by the kernel
	case s.Args.Flags == "PRIVATE":
		err = r.OS.File(n.Fd()).(*nvfs.File).MmapPrivate()
	default:
		m, err = n.Mmap(int64(off), int(s.Args.Length), prot)
	}
	if diff := errno(s, err); diff != "" || err != nil {
		return diff
	}
	addr := uint64(m.Addr())
	r.b[strings.Trim(string(s.Ret), "<>")] = addr
	r.views[addr] = m
	return ""
}

func (r *replayer) munmap(s *transcript.Step) string {
	addr := r.value(s.Args.At)
	m := r.views[addr]
	if m == nil || m.Len() != int(s.Args.Length) {
		return errno(s, r.m.VMAAt(addr).Split())
	}
	delete(r.views, addr)
	return errno(s, m.Unmap())
}

func (r *replayer) mremap(s *transcript.Step) string {
	return errno(s, r.m.VMAAt(r.value(s.Args.At)).Remap(r.raw[s.Line].Args.NewLength))
}

func (r *replayer) isGPU(addr uint64) bool {
	return slices.ContainsFunc(r.bufs, func(a gpu.Addr) bool { return addr >= uint64(a) && addr < uint64(a)+r.gpuSize })
}

// bytes are those at an address, by any owner.
func (r *replayer) bytes(addr uint64, n int) []byte {
	if r.isGPU(addr) {
		return r.Read(addr, n)
	}
	return bytes.Clone(at(addr, n))
}

func (r *replayer) access(s *transcript.Step) string {
	addr, n := r.value(s.Args.At), int(s.Args.Length)
	if s.Args.Op == "load" {
		if err := s.Out.Match(r.bytes(addr, n), r.b, nil); err != nil {
			return err.Error()
		}
		return ""
	}
	data := make([]byte, n)
	var v int
	if s.In != nil {
		in, err := s.In.Fill(r.b)
		r.check(err)
		copy(data, in)
	} else if _, err := fmt.Sscanf(s.Args.With, "pattern %d", &v); err == nil {
		data = pattern(v, n)
	} else if _, err := fmt.Sscanf(s.Args.With, "byte %x", &v); err == nil {
		data = bytes.Repeat([]byte{byte(v)}, n)
	} else {
		r.t.Fatalf("access with %q", s.Args.With)
	}
	if r.isGPU(addr) {
		r.Write(addr, data)
	} else {
		copy(at(addr, n), data)
	}
	return ""
}

// content reads a data file.
func (r *replayer) content(name string) []byte {
	r.t.Helper()
	b, err := os.ReadFile(filepath.Join(r.dir, name))
	r.check(err)
	return b
}

var (
	fromFile   = regexp.MustCompile(`^file (\w+) at (0x[0-9a-f]+|0)`)
	fromMemory = regexp.MustCompile(`^((?:gpu|shadow)\d) at (0x[0-9a-f]+|0)`)
)

// wanted are the bytes that a comparison is with.
func (r *replayer) wanted(with string, off, n int) []byte {
	r.t.Helper()
	switch {
	case strings.HasPrefix(with, "bytes cc"):
		return bytes.Repeat([]byte{0xcc}, n)
	case with == "bytes 00":
		return make([]byte, n)
	case with == "pattern 5":
		return pattern(5, n)
	case with == "ciphertext of file a at 0":
		return r.ciphertext("a")[:n]
	case with == "old content":
		return pattern(7, 1<<20)[off : off+n]
	case with == "last 8 KiB of file a":
		return r.content("a")[1<<20-8<<10:]
	}
	if m := fromFile.FindStringSubmatch(with); m != nil {
		start, err := strconv.ParseUint(m[2], 0, 64)
		r.check(err)
		return r.content(m[1])[start : start+uint64(n)]
	}
	if m := fromMemory.FindStringSubmatch(with); m != nil {
		start, err := strconv.ParseUint(m[2], 0, 64)
		r.check(err)
		return r.bytes(r.b[m[1]]+start, n)
	}
	r.t.Fatalf("a comparison with %q", with)
	return nil
}

func (r *replayer) compare(s *transcript.Step) string {
	n := int(s.Args.Length)
	x := r.raw[s.Line].Args
	if x.File == "" {
		return differ(s, firstDiff(r.bytes(r.value(s.Args.At), n), r.wanted(s.Args.With, 0, n)))
	}
	b := r.content(x.File)
	off, err := strconv.Atoi(x.Offset)
	r.check(err)
	if int64(len(b)) != x.Size && !slices.Contains(r.devices, x.File) {
		return fmt.Sprintf("file %s has %d bytes, want %d", x.File, len(b), x.Size)
	}
	return differ(s, firstDiff(b[off:off+n], r.wanted(s.Args.With, off, n)))
}

// differ compares whether contents differ.
func differ(s *transcript.Step, diff string) string {
	switch {
	case s.Ret != "false":
		return diff
	case diff == "":
		return "the contents are the same"
	}
	return ""
}

func (r *replayer) lookAtFile(s *transcript.Step) string {
	x := r.raw[s.Line].Args
	off, err := strconv.Atoi(x.Offset)
	r.check(err)
	if s.Args.Op == "store" {
		return r.store(s, int64(off))
	}
	b := r.content(x.File)
	if int64(len(b)) != x.Size && !slices.Contains(r.devices, x.File) {
		return fmt.Sprintf("file %s has %d bytes, want %d", x.File, len(b), x.Size)
	}
	if err := s.Out.Match(b[off:off+x.First], r.b, nil); err != nil {
		return err.Error()
	}
	return ""
}

func (r *replayer) stat(s *transcript.Step) string {
	x := r.raw[s.Line].Args
	fi, err := os.Stat(filepath.Join(r.dir, x.File))
	r.check(err)
	if blocks := fi.Sys().(*syscall.Stat_t).Blocks; fi.Size() != x.Size || blocks != x.Blocks512 && x.File != "alt" { // some of alt's are its extent tree's
		return fmt.Sprintf("%d bytes in %d blocks, want %d in %d", fi.Size(), blocks, x.Size, x.Blocks512)
	}
	return ""
}

func (r *replayer) stub(s *transcript.Step) string {
	switch s.Args.Knob {
	case "fail_next":
		r.fail = 1
	case "live":
		if got := strconv.Itoa(r.RM.Live()); got != string(s.Ret) {
			return fmt.Sprintf("%s pins live, want %s", got, s.Ret)
		}
	case "revoke":
		done := make(chan struct{})
		go func() {
			r.RM.Revoke() // waits for a transfer in flight
			close(done)
		}()
		r.gate.open()
		<-done
		r.settle()
	default:
		r.t.Fatalf("no such knob: %q", s.Args.Knob)
	}
	return ""
}

// note is what the module had no answer for: it crashed. The emulated one has one.
func (r *replayer) note(s *transcript.Step) string {
	a := abi.MapArgs{Size: page, CPUVAddr: r.b["shadow0"], GPUVAddr: r.value("<gpu0>"), EndFenceAddr: r.value("<fence0>"), SbufBlock: 16}
	switch s.Name {
	case "crash.map_inside":
		a.CPUVAddr += 4096
		a.SbufBlock = 15
	case "crash.map_blocks0":
		a.SbufBlock = 0
	case "crash.revoke", "crash.revoke_leaked":
		r.RM.Revoke()
		if n := r.RM.Live(); n != 0 {
			return fmt.Sprintf("%d pins are left", n)
		}
		return ""
	default:
		r.t.Fatalf("a note called %q", s.Name)
	}
	arg, err := ioctl(r.nodes["nvfs"], abi.NVFS_IOCTL_MAP, a.Encode)
	if !errors.Is(err, syscall.EPERM) || arg.Return() != -int64(syscall.EINVAL) {
		return fmt.Sprintf("%v, result %d", err, arg.Return())
	}
	return ""
}
