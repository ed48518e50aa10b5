package lab

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/culvert-io/culvert/lab/internal/job"
)

func needBusybox(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("busybox"); err != nil {
		t.Skip("needs busybox (package busybox-static)")
	}
}

// unpack reads an archive with somebody else's tool.
func unpack(t *testing.T, archive []byte) string {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command("busybox", "cpio", "-id")
	cmd.Dir, cmd.Stdin = dir, bytes.NewReader(archive)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

// A kernel with modules, a program and a job end up where init looks for them.
func TestPack(t *testing.T) {
	needBusybox(t)
	dir := t.TempDir()
	put := func(name, text string) string {
		t.Helper()
		p := filepath.Join(dir, name)
		if err := writeFile(p, []byte(text)); err != nil {
			t.Fatal(err)
		}
		return p
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	put("modules/modules.dep", "kernel/xfs.ko: kernel/lib-crc.ko\nkernel/lib-crc.ko:\n")
	put("modules/modules.builtin", "kernel/nvme.ko\n")
	put("modules/kernel/xfs.ko", "\x7fELF xfs")
	put("modules/kernel/lib-crc.ko", string(gzipped([]byte("\x7fELF crc"))))
	c := contents{
		init:     put("init", "the init"),
		programs: map[string]string{"/lab/bin/x.test": self},
		kernel:   Kernel{Modules: filepath.Join(dir, "modules")},
		modules:  []string{"nvme", "xfs"},
		job:      job.Job{Boot: 3, Args: []string{"/lab/bin/x.test"}},
	}
	var b bytes.Buffer
	if err := c.pack(&b); err != nil {
		t.Fatal(err)
	}
	root := unpack(t, b.Bytes())
	read := func(name string) string {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Error(err)
		}
		return string(b)
	}
	if got := read("init"); got != "the init" {
		t.Errorf("init is %q", got)
	}
	if got := read("lab/modules/lib_crc.ko"); got != "\x7fELF crc" {
		t.Errorf("the module was packed as %q", got)
	}
	var j job.Job
	if err := json.Unmarshal([]byte(read(job.Path)), &j); err != nil {
		t.Fatal(err)
	}
	want := job.Job{Boot: 3, Args: []string{"/lab/bin/x.test"}, Modules: []string{"/lab/modules/lib_crc.ko", "/lab/modules/xfs.ko"}}
	if diff := cmp.Diff(want, j); diff != "" {
		t.Errorf("job (-want +got):\n%s", diff)
	}
	if got, err := os.ReadFile(self); err != nil || read("lab/bin/x.test") != string(got) {
		t.Error("the program was changed on its way")
	}
}

func TestPackRefuses(t *testing.T) {
	needBusybox(t)
	init := filepath.Join(t.TempDir(), "init")
	if err := os.WriteFile(init, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]contents{
		"no such file": {init: init + ".gone"},
		"mkfs.zfs":     {init: init, mkfs: []string{"zfs"}},
		"gone.test":    {init: init, programs: map[string]string{"/x": "/gone.test"}},
		"modules.dep":  {init: init, kernel: Kernel{Modules: "/gone"}},
	} {
		if err := c.pack(new(bytes.Buffer)); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("err = %v, want one about %s", err, name)
		}
	}
}

func TestContents(t *testing.T) {
	l := &Lab{init: "/cache/init"}
	g := Guest{Drives: []Drive{{ID: "raw"}, {ID: "nv0", FS: "xfs", Sector: 4096}}}.withDefaults()
	c := l.contents(g, Command{Args: []string{"/tmp/go-build/x.test", "-test.v"}, Env: []string{"A=b"}, Dir: "/src"}, nil, 2)
	c.job.Seed = nil // different every time
	want := job.Job{
		Boot: 2, Mounts: []job.Mount{{Drive: "nv0", FS: "xfs", Sector: 4096}},
		Args: []string{"/lab/bin/x.test", "-test.v"}, Dir: "/src",
		Env: []string{"PATH=/bin:/sbin:/lab/bin", "HOME=/", "TMPDIR=/mnt/nv0", "A=b"},
	}
	if diff := cmp.Diff(want, c.job); diff != "" {
		t.Errorf("job (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"/lab/bin/x.test": "/tmp/go-build/x.test"}, c.programs); diff != "" {
		t.Errorf("programs (-want +got):\n%s", diff)
	}
	// A command of the guest brings no program.
	c = l.contents(Guest{}.withDefaults(), Command{Args: []string{"uname"}}, nil, 1)
	if len(c.programs) != 0 || c.job.Args[0] != "uname" {
		t.Errorf("contents of a busybox applet: %+v", c)
	}
}

func TestShares(t *testing.T) {
	root := t.TempDir()
	deep := filepath.Join(root, "a", "b")
	if err := os.MkdirAll(deep, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "go.mod"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := Command{Dir: deep}.shares()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]job.Share{{Tag: "share0", Path: root}}, got); diff != "" {
		t.Errorf("shares (-want +got):\n%s", diff)
	}
}
