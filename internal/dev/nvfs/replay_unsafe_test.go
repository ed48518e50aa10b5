package nvfs

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
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

	abi "github.com/culvert-io/culvert/internal/abi/nvfs"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/transcript"
)

// What the client makes of a recorded request, where it is not what the module said.
const (
	otherRequest = "sends another request"
	moreRequests = "asks for the rest"
	notDirect    = "ErrNotDirect"
)

// Why.
const (
	noAsync      = "the client waits for its requests: it sends them with the synchronous bit"
	noSuperBlock = "the client identifies files by stat: the super block's number passes the check, and damages the file"
	zeroBytes    = "a WRITE of 0 bytes has stored the shadow buffer"
	falseHole    = "the module calls data a hole, because no driver moved it"
	short        = "the module moves fewer bytes than requested: the client requests the rest"
	unseen       = "the module says full count, and other bytes arrived: only the proof of arrival finds it"
)

// A difference is what the client does on purpose, and why.
type difference struct{ does, reason string }

// clientDiffers is the complete list, by conversation and step.
var clientDiffers = map[string]difference{
	"dm-crypt read.async":                    {otherRequest, noAsync},
	"dm-crypt write.64k":                     {notDirect, zeroBytes},
	"dm-crypt write.1m_window":               {notDirect, zeroBytes},
	"dm-crypt write.1m":                      {notDirect, zeroBytes},
	"dm-crypt write.async":                   {otherRequest, noAsync},
	"dm-crypt write.past_eof":                {notDirect, zeroBytes},
	"raid5 read.async":                       {otherRequest, noAsync},
	"raid5 write.64k":                        {notDirect, zeroBytes},
	"raid5 write.1m_window":                  {notDirect, zeroBytes},
	"raid5 write.1m":                         {notDirect, zeroBytes},
	"raid5 write.async":                      {otherRequest, noAsync},
	"raid5 write.past_eof":                   {notDirect, zeroBytes},
	"unhooked-raw raw.read64k":               {notDirect, falseHole},
	"unhooked-raw raw.read1m":                {notDirect, falseHole},
	"unhooked-raw raw.write64k":              {notDirect, zeroBytes},
	"unhooked-raw raw.read1m_window":         {notDirect, falseHole},
	"unhooked-raw raw.read_async":            {otherRequest, noAsync},
	"unhooked-raw raw.write_async":           {otherRequest, noAsync},
	"unhooked-raw hooked.read_async":         {otherRequest, noAsync},
	"unhooked-raw hooked.write_async":        {otherRequest, noAsync},
	"btrfs read.64k_sb":                      {otherRequest, noSuperBlock},
	"btrfs read.1m_sb":                       {otherRequest, noSuperBlock},
	"btrfs write.64k_sb":                     {otherRequest, noSuperBlock},
	"unwritten-cached read.fresh_window_fa":  {moreRequests, short},
	"unwritten-cached read.cached_window_fa": {moreRequests, short},
	"many-holes read.769":                    {moreRequests, short},
	"many-holes read.2048":                   {moreRequests, short},
	"many-holes read.from_data":              {moreRequests, short},
	"many-holes read.async_2048":             {otherRequest, noAsync},
	"many-holes read.8m_windows":             {moreRequests, short},
	"virtio-file read.64k":                   {notDirect, falseHole},
	"virtio-file read.1m":                    {notDirect, falseHole},
	"virtio-file read.4k":                    {notDirect, falseHole},
	"virtio-file read.async":                 {otherRequest, noAsync},
	"virtio-file write.64k":                  {notDirect, zeroBytes},
	"virtio-file write.1m":                   {notDirect, zeroBytes},
	"virtio-file write.async":                {otherRequest, noAsync},
	"virtio-file read.1m_window":             {notDirect, falseHole},
	"virtio-file write.1m_window":            {notDirect, zeroBytes},
	"virtio-file write.past_eof":             {notDirect, zeroBytes},
}

// clientBelieves are the successes that the recording shows to be wrong.
var clientBelieves = map[string]string{
	"dm-crypt read.64k":       unseen,
	"dm-crypt read.1m_window": unseen,
	"dm-crypt read.1m":        unseen,
	"dm-crypt read.4k":        unseen,
}

var errNotRecorded = errors.New("the recording has no answer to this request")

// A player is a module that gives the answers of a conversation.
type player struct {
	*liar
	t      *testing.T
	c      *Client
	step   *transcript.Step
	page   []byte // what the answer leaves in the end-fence page
	pages  map[string][]byte
	bound  transcript.Bindings
	shadow map[string]int // sizes
	bufs   map[string]*Buffer
	files  map[string]*File
	paths  map[string]string
	zeroed uint64
}

func (p *player) Open(string) (dev.Node, error) { return p, nil }

func (p *player) Mmap(off int64, n, prot int) (dev.Mapping, error) {
	m, err := p.liar.Mmap(off, n, prot)
	p.bound[p.step.In.Names()[0]] = uint64(m.Addr()) // the step is a MAP
	return m, err
}

// Ioctl compares a request with the recorded one, and answers as the module did.
func (p *player) Ioctl(req uintptr, arg unsafe.Pointer) error {
	a := (*abi.Arg)(arg)
	if err := p.step.In.Match(a[:], p.bound, nil); err != nil || req != uintptr(p.step.Req) {
		return fmt.Errorf("%w: %w", errNotRecorded, err)
	}
	if req == abi.NVFS_IOCTL_MAP {
		var m abi.MapArgs
		m.Decode(a[:])
		p.pages[p.step.In.Names()[2]] = unsafe.Slice(*(**byte)(unsafe.Pointer(&m.EndFenceAddr)), abi.MetaSize)
	}
	out, err := p.step.Out.Fill(p.bound)
	p.check(err)
	copy(a[:], out)
	copy(p.pages[strings.Replace(p.step.In.Names()[0], "shadow", "fence", 1)], p.page)
	if p.step.Err != 0 {
		return syscall.Errno(p.step.Err)
	}
	return nil
}

func (p *player) check(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// TestReplayStacks: the client against the module's recorded answers above block stacks.
// It sends the recorded bytes, and takes for success only what was one, apart from what
// the lists say.
func TestReplayStacks(t *testing.T) {
	text, err := os.ReadFile("../../../soft/kernel/nvfs/testdata/nvidia-fs-stacks.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	// Offsets in files are numbers, those of mappings text.
	text = regexp.MustCompile(`"offset": ?(\d+)`).ReplaceAll(text, []byte(`"offset":"$1"`))
	all, err := transcript.Parse(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.Split(text, []byte("\n"))
	if len(all) != 7 {
		t.Errorf("%d conversations, want 7", len(all))
	}
	for _, c := range all {
		t.Run(c.Name, func(t *testing.T) { replayStack(t, c, lines) })
	}
}

func replayStack(t *testing.T, c *transcript.Conversation, lines [][]byte) {
	p := &player{
		liar: &liar{modules: "nvme: (null)\nwekafsio: 1\n"}, t: t, pages: map[string][]byte{}, bound: transcript.Bindings{},
		shadow: map[string]int{}, bufs: map[string]*Buffer{}, files: map[string]*File{}, paths: map[string]string{},
	}
	var err error
	p.c, err = Open(p)
	p.check(err)
	seen := map[string]bool{}
	for i, s := range c.Steps {
		p.step = s
		switch {
		case s.Call == "open" && !strings.HasPrefix(s.Args.Path, "/dev/nvidia-fs"):
			p.open(s.FD)
		case s.Call == "file":
			p.touch(lines[s.Line-1])
		case s.Call == "mmap":
			p.shadow[strings.Trim(string(s.Ret), "<>")] = int(s.Args.Length)
		case s.Call == "munmap":
			name := strings.Trim(s.Args.At, "<>")
			p.check(p.bufs[name].Close())
		case s.Call == "ioctl" && uintptr(s.Req) == abi.NVFS_IOCTL_MAP:
			p.register()
		case s.Call == "ioctl":
			name := c.Name + " " + s.Name
			seen[name] = true
			p.judge(name, after(c, i))
		}
	}
	for name := range clientDiffers {
		if strings.HasPrefix(name, c.Name+" ") && !seen[name] {
			t.Errorf("no step %q", name)
		}
	}
	p.check(p.c.Close())
	if p.mapped != 0 {
		t.Errorf("%d mappings are left", p.mapped)
	}
}

// after are the steps up to the next request: they look at what it did.
func after(c *transcript.Conversation, i int) []*transcript.Step {
	rest := c.Steps[i+1:]
	if n := slices.IndexFunc(rest, func(s *transcript.Step) bool { return s.Call == "ioctl" }); n >= 0 {
		return rest[:n]
	}
	return rest
}

// register makes a buffer as the recorded MAP does.
func (p *player) register() {
	p.t.Helper()
	names := p.step.In.Names()
	p.bound[names[1]] = base + uint64(names[1][len("gpu")]-'0')<<32
	known := transcript.Bindings{names[0]: 0, names[1]: p.bound[names[1]], names[2]: 0}
	in, err := p.step.In.Fill(known)
	p.check(err)
	var m abi.MapArgs
	m.Decode(in)
	p.bufs[names[0]], err = p.c.Register(Config{
		Addr: m.GPUVAddr, Size: uint64(m.Size), Location: m.PDevInfo, Shadow: p.shadow[names[0]],
		Zero: func(_, n uint64) error { p.zeroed += n; return nil },
	})
	p.check(err)
}

// judge lets the client do a recorded transfer, and compares what it makes of the answer
// with what the module said and with what the bytes were.
func (p *player) judge(name string, then []*transcript.Step) {
	p.t.Helper()
	p.page = p.leaves(then)
	said, does := p.said(), p.transfer()
	on, listed := clientDiffers[name]
	switch {
	case listed && does != on.does:
		p.t.Errorf("%s: the client: %s, want: %s (%s)", name, does, on.does, on.reason)
	case !listed && does != said:
		p.t.Errorf("%s: the client: %s, the module: %s", name, does, said)
	}
	believed := !listed && p.step.Err == 0 && !sparse(p.page) && !arrived(then)
	if (clientBelieves[name] != "") != believed {
		p.t.Errorf("%s: a success with wrong bytes: %v", name, believed)
	}
}

// said is the module's answer.
func (p *player) said() string {
	known := transcript.Bindings{}
	for _, n := range p.step.Out.Names() {
		known[n] = 0
	}
	out, err := p.step.Out.Fill(known)
	p.check(err)
	n := (*abi.Arg)(out).Return()
	if n < 0 {
		return syscall.Errno(-n).Error()
	}
	return fmt.Sprint(n, " bytes")
}

// transfer does the step's transfer.
func (p *player) transfer() string {
	p.t.Helper()
	names := p.step.In.Names()
	in, err := p.step.In.Fill(p.bound)
	p.check(err)
	var a abi.IOArgs
	a.Decode(in)
	b, f := p.bufs[names[0]], p.files[strings.TrimPrefix(names[1], "ino.")]
	do := b.Read
	if uintptr(p.step.Req) == abi.NVFS_IOCTL_WRITE {
		do = b.Write
	}
	p.zeroed = 0
	n, err := do(f, a.Offset, a.Size, a.DevPtrOff)
	var no syscall.Errno
	switch {
	case errors.Is(err, errNotRecorded) && n > 0:
		return moreRequests
	case errors.Is(err, errNotRecorded):
		return otherRequest
	case errors.Is(err, ErrNotDirect):
		return notDirect
	case errors.As(err, &no):
		return no.Error()
	case err != nil:
		return err.Error()
	}
	if want := p.holes(a.Offset + n); p.zeroed != want {
		p.t.Errorf("%s: zeroed %d bytes, the page lists %d", p.step.Name, p.zeroed, want)
	}
	return fmt.Sprint(n, " bytes")
}

// holes are the bytes of holes in the page, up to an offset in the file.
func (p *player) holes(end int64) (n uint64) {
	if !sparse(p.page) {
		return 0
	}
	var s abi.Sparse
	p.check(abi.ParseSparse(p.page, &s))
	for _, h := range s.Holes {
		off := s.Offset + int64(h.Start)*abi.BLOCK_SIZE
		n += uint64(min(int64(h.Blocks)*abi.BLOCK_SIZE, end-off))
	}
	return n
}

func sparse(page []byte) bool { return page != nil && page[abi.MetaState] == abi.META_SPARSE }

// leaves is the end-fence page after a transfer, nil if it was not recorded. Of some pages
// only the beginning was: the other holes are those of the file, every second block.
func (p *player) leaves(then []*transcript.Step) []byte {
	for _, s := range then {
		if s.Call != "access" || s.Args.Op != "load" || !strings.HasPrefix(s.Args.At, "<fence") {
			continue
		}
		recorded, err := s.Out.Fill(p.bound)
		p.check(err)
		page := append(recorded, make([]byte, abi.MetaSize-len(recorded))...)
		if !sparse(page) {
			return page
		}
		le := binary.LittleEndian
		for k := (len(recorded) - abi.MetaList) / 4; k < int(le.Uint32(page[abi.MetaHoles:])); k++ {
			hole := page[abi.MetaList+4*k:]
			le.PutUint16(hole, uint16(2*k+1))
			le.PutUint16(hole[2:], 1)
		}
		return page
	}
	return nil
}

// arrived reports whether the bytes were where they belong, as far as it was recorded.
func arrived(then []*transcript.Step) bool {
	for _, s := range then {
		read := strings.HasPrefix(s.Args.At, "<gpu") && strings.HasPrefix(s.Args.With, "file ")
		write := s.Args.At == "" && strings.HasPrefix(s.Args.With, "gpu")
		if s.Call == "compare" && (read || write) && s.Ret == "false" {
			return false
		}
	}
	return true
}

// open makes a file of the recording and opens it. Files stand for block devices.
func (p *player) open(name string) {
	p.t.Helper()
	path := filepath.Join(p.t.TempDir(), name)
	p.paths[name] = path
	p.check(writeRecorded(path))
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_DIRECT, 0)
	p.check(err)
	look, err := os.Open(path)
	p.check(err)
	p.t.Cleanup(func() { _ = errors.Join(f.Close(), look.Close()) })
	n, err := NewFile(path, int(f.Fd()), int(look.Fd()))
	p.check(err)
	p.files[name] = n
	for k, v := range map[string]uint64{
		"ino": n.ino, "major": uint64(n.major), "minor": uint64(n.minor), "fd": uint64(n.fd),
		"sbmajor": uint64(n.major), "sbminor": uint64(n.minor) + 1,
	} {
		p.bound[k+"."+name] = v
	}
}

// writeRecorded makes a file of the recording. Unwritten blocks are zeros here: SEEK_DATA
// calls them data, as it does the recorded ones while their pages are cached.
func writeRecorded(path string) error {
	b := pattern(7, size)
	switch filepath.Base(path) {
	case "fa":
		clear(b)
	case "part":
		clear(b[:256<<10])
		clear(b[320<<10:])
	case "alt":
		return writeAlternate(path, pattern(7, 16<<20))
	}
	return os.WriteFile(path, b, 0o600)
}

// writeAlternate writes every other block: the rest are holes.
func writeAlternate(path string, b []byte) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	errs := []error{f.Truncate(int64(len(b)))}
	for off := 0; off < len(b); off += 2 * abi.BLOCK_SIZE {
		_, err := f.WriteAt(b[off:off+abi.BLOCK_SIZE], int64(off))
		errs = append(errs, err)
	}
	return errors.Join(append(errs, f.Close())...)
}

func pattern(seed, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(seed + i + 7*(i>>8) + 31*(i>>16))
	}
	return b
}

// touch stores to a file through the page cache, as a step of the recording does.
func (p *player) touch(line []byte) {
	p.t.Helper()
	var x struct {
		Args struct {
			File, Offset, Op string
			Length           int
		}
	}
	p.check(json.Unmarshal(line, &x))
	if x.Args.Op != "store" {
		return
	}
	off, err := strconv.ParseInt(x.Args.Offset, 10, 64)
	p.check(err)
	f, err := os.OpenFile(p.paths[x.Args.File], os.O_RDWR, 0)
	p.check(err)
	_, err = f.WriteAt(pattern(5, x.Args.Length), off)
	p.check(errors.Join(err, f.Close()))
}
