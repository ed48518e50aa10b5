package check

import (
	"encoding/json"
	"io/fs"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/soft"
	"github.com/culvert-io/culvert/soft/kernel"
)

// A mute node opens and answers nothing.
type mute struct{}

func (mute) Ioctl(uintptr, unsafe.Pointer) error          { return syscall.ENOTTY }
func (mute) Mmap(int64, int, int) (kernel.Mapping, error) { return nil, syscall.ENODEV }
func (mute) Release()                                     {}

func node(t *testing.T, o dev.OS, path string) Node {
	t.Helper()
	for _, n := range lookNodes(o) {
		if n.Path == path {
			return n
		}
	}
	t.Fatalf("%s is not in the report", path)
	return Node{}
}

func register(t *testing.T, o *kernel.OS, path string, f kernel.File, err error) {
	t.Helper()
	if err := o.Register(path, func() (kernel.File, error) { return f, err }); err != nil {
		t.Fatal(err)
	}
}

// An asReal has nodes of software and passes for a real machine.
type asReal struct{ dev.OS }

func (asReal) Simulated() bool { return false }

func TestNodesSayWhatIsWrong(t *testing.T) {
	o := kernel.New(fstest.MapFS{})
	register(t, o, "/dev/gdrdrv", mute{}, nil)
	register(t, o, "/dev/gpumem", mute{}, nil)
	register(t, o, "/dev/nvidiactl", nil, syscall.EACCES)
	register(t, o, "/dev/nvidia0", nil, syscall.EIO)
	for path, want := range map[string]struct {
		present, usable bool
		err, fix        string
	}{
		"/dev/gdrdrv":     {present: true, err: "gdrdrv version", fix: "modprobe gdrdrv"},
		"/dev/gpumem":     {present: true, usable: true},
		"/dev/nvidiactl":  {present: true, err: "permission denied", fix: "give this user access"},
		"/dev/nvidia0":    {present: true, err: "input/output error", fix: "install NVIDIA's driver"},
		"/dev/nvidia-fs0": {fix: "modprobe nvidia-fs"},
	} {
		n := node(t, asReal{dev.Of(o)}, path)
		if n.Present != want.present || n.Usable != want.usable || n.Version != "" ||
			!strings.Contains(n.Err, want.err) || (n.Err == "") != (want.err == "") ||
			!strings.Contains(n.Fix, want.fix) || (n.Fix == "") != (want.fix == "") {
			t.Errorf("%s is %+v, want %+v", path, n, want)
		}
	}
	if n := o.OpenFiles(); n != 0 {
		t.Errorf("%d nodes were left open", n)
	}
}

// Programs read the report: what is there keeps its name.
func TestNodeAsJSON(t *testing.T) {
	m, err := soft.New(soft.Config{Memory: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer m.GPU.Close()
	for path, want := range map[string]string{
		"/dev/gdrdrv":     `{"path":"/dev/gdrdrv","present":true,"usable":true,"for":"GDRCopy","version":"2.6"}`,
		"/dev/gpumem":     `{"path":"/dev/gpumem","present":true,"usable":true,"for":"gpumem: physical pages of GPU memory"}`,
		"/dev/nvidia-uvm": `{"path":"/dev/nvidia-uvm","present":false,"usable":false,"for":"managed memory","note":"the software machine has none"}`,
	} {
		got, err := json.Marshal(node(t, dev.Of(m), path))
		if d := cmp.Diff(want, string(got)); d != "" || err != nil {
			t.Errorf("%s: %v %s", path, err, d)
		}
	}
}

func TestModules(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	root := fstest.MapFS{
		"proc/driver/nvidia-fs/version": file("GDS Version: 1.13\nNVFS version: 2.28\n"),
		"proc/driver/gdrdrv/params":     file("Version: 2.6\nUse persistent mapping: yes\n"),
		"proc/gpumem":                   file("Pinned memory info:\n"),
		"sys/module/nvme":               {Mode: fs.ModeDir | 0o555},
	}
	type state struct {
		Loaded bool
		Detail string
		Fix    bool
	}
	got := map[string]state{}
	for _, m := range lookModules(tree{root}) {
		got[m.Name] = state{m.Loaded, m.Detail, m.Fix != ""}
	}
	want := map[string]state{
		"nvidia":         {false, "", true},
		"nvidia_fs":      {true, "GDS Version: 1.13", false},
		"nvidia_peermem": {false, "", true},
		"gdrdrv":         {true, "2.6", false},
		"gpumem":         {true, "", false},
		"nvme":           {true, "", false},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// The module and the kernel that panic together are named, others are not.
func TestPanicWarning(t *testing.T) {
	for _, c := range []struct {
		module, kernel string
		warns          bool
	}{
		{"version: 2.28.4\n", "6.12.115-amd64", true},
		{"version: 2.26\n", "6.14.0", true},
		{"GDS Version: 1.13\nNVFS version: 2.28\n", "6.12.0", true},
		{"version: 2.28.4\n", "6.11.9", false},
		{"version: 2.28.4\n", "5.15.0-91-generic", false},
		{"version: 2.29.0\n", "6.12.1", false},
		{"version: 3.0\n", "6.12.1", false},
		{"", "6.12.1", false},
		{"version:", "6.12.1", false},
		{"version: 2.28", "unknown: no such file", false},
	} {
		if got := panics(c.module, c.kernel); (got != "") != c.warns {
			t.Errorf("%q on %q: %q", c.module, c.kernel, got)
		}
	}
}
