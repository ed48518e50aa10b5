package nvfs_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	abi "github.com/culvert-io/culvert/internal/abi/nvfs"
	"github.com/culvert-io/culvert/internal/dev"
	client "github.com/culvert-io/culvert/internal/dev/nvfs"
	"github.com/culvert-io/culvert/internal/transcript"
	"github.com/culvert-io/culvert/soft/kernel/nvfs"
)

// A spyOS writes down what goes through its nodes.
type spyOS struct {
	dev.OS
	seen []transcript.Exchange
}

type spyNode struct {
	dev.Node
	o *spyOS
}

func (o *spyOS) Open(path string) (dev.Node, error) {
	n, err := o.OS.Open(path)
	return &spyNode{n, o}, err
}

func (n *spyNode) Ioctl(req uintptr, arg unsafe.Pointer) error {
	x := transcript.Exchange{Req: req, In: append([]byte{}, unsafe.Slice((*byte)(arg), abi.ArgSize)...)}
	x.Err = n.Node.Ioctl(req, arg)
	x.Out = append([]byte{}, unsafe.Slice((*byte)(arg), abi.ArgSize)...)
	n.o.seen = append(n.o.seen, x)
	return x.Err
}

// The client sends, byte for byte, what was recorded with the real module, and
// the emulated module answers the same.
func TestClientSendsWhatWasRecorded(t *testing.T) {
	file, err := os.Open("testdata/nvidia-fs.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	c := parse(t, file)["dma"]
	w := newFixture(t, true, nvfs.Config{Callback: true})
	w.dataFiles()
	spy := &spyOS{OS: dev.Of(w.OS)}
	cl, err := client.Open(spy)
	w.check(err)
	s := &session{fixture: w, c: cl, addr: w.alloc(2 << 20)}
	s.b, err = cl.Register(client.Config{Addr: s.addr, Size: 1 << 20, Location: 0x100, Shadow: page, Zero: s.zero})
	w.check(err)
	bind := transcript.Bindings{"gpu0": s.addr}
	sent := 0
	for _, step := range c.Steps {
		if step.Call != "ioctl" || !strings.Contains(" map.shadow0 read.64k read.16k_dev read.1m_window read.across_eof read.odd_tail "+
			"read.sparse_64k_window read.sparse_from_data write.64k write.4k_dev write.1m_window write.hole write.fallocated ", " "+step.Name+" ") {
			continue
		}
		if step.Req != abi.NVFS_IOCTL_MAP {
			s.perform(step, bind, spy)
		}
		x := spy.seen[0]
		if transcript.Number(x.Req) != step.Req {
			t.Errorf("%s: request %#x", step.Name, x.Req)
		}
		if err := step.In.Match(x.In, bind, nil); err != nil {
			t.Errorf("%s: sent: %v", step.Name, err)
		}
		if err := step.Out.Match(x.Out, bind, nil); err != nil {
			t.Errorf("%s: answered: %v", step.Name, err)
		}
		sent++
	}
	if sent != 13 {
		t.Errorf("%d requests were compared, want 13", sent)
	}
	s.close()
}

// perform has the client do what a step asks for.
func (s *session) perform(step *transcript.Step, bind transcript.Bindings, spy *spyOS) {
	s.t.Helper()
	var name string
	for _, n := range step.In.Names() {
		if after, ok := strings.CutPrefix(n, "ino."); ok {
			name = after
		}
	}
	known := transcript.Bindings{}
	for _, n := range step.In.Names() {
		known[n] = bind[n]
	}
	raw, err := step.In.Fill(known)
	s.check(err)
	var a abi.IOArgs
	a.Decode(raw)
	f := s.open(filepath.Join(s.dir, name))
	var st unix.Stat_t
	s.check(unix.Stat(filepath.Join(s.dir, name), &st))
	for n := range bind { // each file has its own, and a new descriptor each time
		if strings.HasPrefix(n, "fd.") {
			delete(bind, n)
		}
	}
	bind["ino."+name], bind["major."+name], bind["minor."+name] = st.Ino, uint64(unix.Major(st.Dev)), uint64(unix.Minor(st.Dev))
	spy.seen = nil
	do := s.b.Read
	if step.Req == abi.NVFS_IOCTL_WRITE {
		do = s.b.Write
	}
	if _, err := do(f, a.Offset, a.Size, a.DevPtrOff); err != nil {
		s.t.Errorf("%s: %v", step.Name, err)
	}
}
