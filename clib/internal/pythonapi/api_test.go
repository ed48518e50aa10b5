package pythonapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/internal/hold"
	"github.com/culvert-io/culvert/tensor"
)

func TestHost(t *testing.T) {
	c := newCaller(t)
	path, want := sample(t)
	m := c.open(path)
	if len(m.Tensors) != len(want) || m.Metadata["format"] != "pt" || len(m.Files) != 1 {
		t.Fatalf("opened %+v", m)
	}
	p := c.planned(m.Model, fields{})
	data, rec := c.host(p, true)
	for i, info := range p.Tensors {
		if !bytes.Equal(data[i], want[info.Name]) {
			t.Errorf("%s has other bytes", info.Name)
		}
	}
	if rec.Tensors != len(want) || rec.Verified != len(want) || rec.Bytes != rec.Wanted || rec.Files[0].Receipt.Bytes != rec.Bytes {
		t.Errorf("receipt %+v", rec)
	}
	if c.machine != nil {
		t.Error("the machine was opened for host memory")
	}
}

// TestRead: single tensors and slices by one call each.
func TestRead(t *testing.T) {
	c := newCaller(t)
	path, want := sample(t)
	m := c.open(path)
	for _, x := range m.Tensors {
		room := make([]byte, x.Bytes+1)
		room[x.Bytes] = 7
		var a finishAnswer
		c.call("read", fields{"model": m.Model, "tensor": x.Name, "address": cmem.PtrTo(&room[0]), "bytes": x.Bytes}, &a)
		if !bytes.Equal(room[:x.Bytes], want[x.Name]) || room[x.Bytes] != 7 {
			t.Errorf("%s has other bytes", x.Name)
		}
		if r := a.Receipt; r.Tensors != 1 || r.Bytes != x.Bytes || r.Wanted != x.Bytes {
			t.Errorf("%s: receipt %+v", x.Name, r)
		}
		f := c.fails("read", fields{"model": m.Model, "tensor": x.Name, "address": cmem.PtrTo(&room[0]), "bytes": x.Bytes + 1})
		if !strings.Contains(f.Error, "its memory") {
			t.Errorf("%s into other memory: %+v", x.Name, f)
		}
	}
	room := make([]byte, 8)
	q := fields{"model": m.Model, "tensor": "large", "ranges": [][2]int{{1, 2}, {0, 2}}, "address": cmem.PtrTo(&room[0]), "bytes": 8}
	p := c.planned(m.Model, fields{"tensor": "large", "ranges": q["ranges"]})
	if q["bytes"] = p.Tensors[0].Bytes; p.Tensors[0].Bytes > 8 {
		t.Fatalf("the slice has %d bytes", p.Tensors[0].Bytes)
	}
	c.call("read", q, &finishAnswer{})
	if data, _ := c.host(p, false); !bytes.Equal(room[:len(data[0])], data[0]) {
		t.Error("the slice has other bytes")
	}
	delete(q, "tensor")
	if f := c.fails("read", q); !strings.Contains(f.Error, "one tensor") {
		t.Errorf("read without a name: %+v", f)
	}
}

func TestGPUs(t *testing.T) {
	c := newCaller(t)
	dir := t.TempDir()
	infos := []tensor.Info{info("model.embed_tokens.weight", "BF16", 64, 32), info("model.norm.weight", "F32", 33)}
	for _, l := range []string{"0", "1"} {
		infos = append(infos, info("model.layers."+l+".mlp.down_proj.weight", "F8_E4M3", 32, 64), info("model.layers."+l+".mlp.up_proj.weight", "F8_E4M3", 64, 32))
	}
	want := save(t, filepath.Join(dir, "model.safetensors"), infos...)
	m := c.open(dir)

	a := c.load(m.Model, fields{"gpus": []int{1}, "order": "layer", "verify": true})
	if !a.Soft || a.Receipt.Verified != len(infos) || a.Receipt.GPUs[0] != 1 || len(a.Addresses) != len(a.Tensors) {
		t.Errorf("loaded %+v", a.Receipt)
	}
	for i, x := range a.Tensors {
		if x.GPU != 1 || !bytes.Equal(c.bytes(a.Memory, i, x.Bytes), want[x.Name]) {
			t.Errorf("%s on gpu:%d has other bytes", x.Name, x.GPU)
		}
	}

	// Two ranks, each on its GPU: the tensors have the same names.
	a = c.load(m.Model, fields{"gpus": []int{0, 1}, "plan": "tp=2", "only": []string{"*up_proj*"}})
	if len(a.Tensors) != 4 || a.Receipt.Tensors != 4 {
		t.Fatalf("%+v", a)
	}
	for i, x := range a.Tensors {
		half := want[x.Name][x.GPU*1024 : (x.GPU+1)*1024]
		if x.Bytes != 1024 || !bytes.Equal(c.bytes(a.Memory, i, x.Bytes), half) {
			t.Errorf("%s on gpu:%d is not its half", x.Name, x.GPU)
		}
	}
}

// staging is more than lanes keep on a GPU for small requests, each from its first
// on, and less than the sample takes.
const staging = 16 << 20

// TestMemoryGoes: the memory of a load goes with the last view of it, and files
// do not stay open for it.
func TestMemoryGoes(t *testing.T) {
	c := newCaller(t)
	path, _ := sample(t)
	m := c.open(path)
	load := func() complete { return c.load(m.Model, fields{"gpus": []int{0}}) }
	free := func() uint64 {
		dev, err := c.drv.Device(0)
		if err != nil {
			t.Fatal(err)
		}
		n, _, err := dev.MemInfo()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	c.Release(load().Memory)
	before, files := free(), openFiles(t)
	a := load()
	if n := openFiles(t); n > files { // fewer, when the collector has been
		t.Errorf("%d descriptors became %d while tensors are held", files, n)
	}
	if _, err := c.Views(a.Memory, 0, 1); err != nil {
		t.Fatal(err)
	}
	c.Release(a.Memory)
	if free()+staging >= before {
		t.Fatal("the memory went while a view was left")
	}
	c.Release(a.Memory)
	if n := free(); n+staging < before {
		t.Errorf("%d bytes were free, now %d", before, n)
	}
	c.Release(a.Memory) // once too often
	if _, err := c.Views(a.Memory, 0, 1); err == nil {
		t.Error("memory that is gone has a view")
	}
	for range 50 {
		c.Release(load().Memory)
	}
	if n := free(); n+staging < before {
		t.Errorf("after 50 loads %d bytes are free, before %d", n, before)
	}
	if n := openFiles(t); n > files { // fewer, when the collector has been
		t.Errorf("after 50 loads %d descriptors, before %d", n, files)
	}
}

func TestViews(t *testing.T) {
	c := newCaller(t)
	path, _ := sample(t)
	model := c.open(path).Model
	a := c.load(model, fields{"gpus": []int{1}})
	views, err := c.Views(a.Memory, 0, len(a.Tensors))
	if err != nil {
		t.Fatal(err)
	}
	for i, x := range a.Tensors {
		v := views[i]
		n := int64(v.Bits)
		for _, dim := range v.Shape {
			n *= dim
		}
		if n != 8*x.Bytes || v.Addr != a.Addresses[i] || v.GPU != 1 {
			t.Errorf("%s: %+v for %d bytes", x.Name, v, x.Bytes)
		}
		code := map[string]uint8{"all.BF16": dlBfloat, "all.F32": dlFloat, "all.BOOL": dlBool, "all.I8": dlInt, "all.C64": dlComplex, "all.F8_E4M3": dlUint}
		if want, ok := code[x.Name]; ok && v.Code != want {
			t.Errorf("%s has code %d", x.Name, v.Code)
		}
	}
	for _, r := range [][2]int{{-1, 1}, {len(a.Tensors), 1}, {0, len(a.Tensors) + 1}, {1, -1}, {math.MaxInt, 1}} {
		if _, err := c.Views(a.Memory, r[0], r[1]); err == nil {
			t.Errorf("there are views of tensors %v", r)
		}
	}
	room := make([]byte, 8)
	at := cmem.PtrTo(&room[0])
	for _, bad := range []struct {
		memory handle.ID
		i      int
		off, n uint64
	}{{a.Memory + 16, 0, 0, 1}, {model, 0, 0, 1}, {a.Memory, 99, 0, 1}, {a.Memory, 0, 1 << 40, 1}, {a.Memory, 0, ^uint64(0), 2}} {
		if err := c.CopyOut(bad.memory, bad.i, bad.off, at, bad.n); err == nil {
			t.Errorf("%+v is copied", bad)
		}
	}
	if err := c.CopyOut(a.Memory, 0, 0, 0x10, 8); err == nil {
		t.Error("copied to nowhere")
	}
}

func TestDims(t *testing.T) {
	c := newCaller(t)
	path := filepath.Join(t.TempDir(), "m.safetensors")
	shape := make([]int64, MaxDims+1)
	for i := range shape {
		shape[i] = 1
	}
	save(t, path, info("w", "U8", shape...))
	a := c.load(c.open(path).Model, fields{"gpus": []int{0}})
	if _, err := c.Views(a.Memory, 0, 1); err == nil || !strings.Contains(err.Error(), "65 dimensions") {
		t.Errorf("a view of 65 dimensions: %v", err)
	}
}

func TestSave(t *testing.T) {
	c := newCaller(t)
	path, want := sample(t)
	m := c.open(path)
	a := c.load(m.Model, fields{"gpus": []int{0}})
	host := []byte("on the host")
	specs := []fields{{"name": "host", "dtype": "U8", "shape": []int{11}, "bytes": 11, "address": cmem.PtrTo(&host[0])}}
	for i, x := range a.Tensors {
		spec := fields{"name": x.Name, "dtype": x.Dtype, "shape": x.Shape, "bytes": x.Bytes}
		if i%2 == 0 {
			spec["memory"], spec["index"] = a.Memory, i
		} else {
			spec["gpu"], spec["address"] = 0, a.Addresses[i]
		}
		specs = append(specs, spec)
	}
	out := filepath.Join(t.TempDir(), "out.safetensors")
	var saved saveAnswer
	c.call("save", fields{"path": out, "metadata": fields{"k": "v"}, "tensors": specs}, &saved)
	if saved.Receipt.Tensors != len(want)+1 || saved.Receipt.Manifest != tensor.ManifestPath(out) {
		t.Errorf("receipt %+v", saved.Receipt)
	}
	steps := &tensor.Checkpoints{Dir: filepath.Join(filepath.Dir(out), "run")}
	for step := range int64(3) {
		c.call("save", fields{"path": steps.Dir, "tensors": specs, "step": step, "keep": 2}, &saved)
		if want := tensor.ManifestPath(steps.Path(step)); saved.Receipt.Manifest != want {
			t.Errorf("the manifest of step %d is %s, want %s", step, saved.Receipt.Manifest, want)
		}
	}
	if err := steps.Free(2); !errors.Is(err, unix.EEXIST) { // FileExistsError in Python
		t.Errorf("a step that exists: %v", err)
	}
	if list, err := steps.Steps(t.Context()); err != nil || len(list) != 2 || list[1].Number != 2 {
		t.Errorf("steps %v, %v", list, err)
	}
	if _, err := tensor.Verify(t.Context(), out); err != nil {
		t.Error(err)
	}
	m = c.open(out)
	p := c.planned(m.Model, fields{})
	data, _ := c.host(p, true)
	want["host"] = host
	for i, x := range p.Tensors {
		if !bytes.Equal(data[i], want[x.Name]) {
			t.Errorf("%s has other bytes", x.Name)
		}
	}
	if m.Metadata["k"] != "v" {
		t.Errorf("metadata %v", m.Metadata)
	}
}

func TestAttach(t *testing.T) {
	c := newCaller(t)
	path, want := sample(t)
	a := c.load(c.open(path).Model, fields{"gpus": []int{0}})
	mem, _, err := lookup[*loaded](c.API, a.Memory)
	if err != nil {
		t.Fatal(err)
	}
	s, err := hold.NewServer(&hold.Model{Name: path, Tensors: mem.tensors}, c, hold.ByCopy)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	sock := socket(t)
	l, err := hold.Listen(t.Context(), sock)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- s.Serve(ctx, l) }()
	var got attachAnswer
	c.call("attach", fields{"path": sock}, &got)
	var list tensorsAnswer
	c.call("tensors", fields{"memory": got.Memory}, &list)
	if got.Shared || !got.Soft || got.Model != path || got.Receipt.Tensors != len(want) || len(list.Tensors) != len(want) || len(list.Addresses) != len(want) {
		t.Errorf("attached %+v", got)
	}
	for i, x := range list.Tensors {
		if !bytes.Equal(c.bytes(got.Memory, i, x.Bytes), want[x.Name]) {
			t.Errorf("%s has other bytes", x.Name)
		}
	}
	if f := c.fails("attach", fields{"path": sock, "user": strconv.Itoa(os.Geteuid() + 1)}); f.Kind != "os" || f.Errno != int(unix.EACCES) || !strings.Contains(f.Error, "another user") {
		t.Errorf("another user was asked for: %+v", f)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if f := c.fails("attach", fields{"path": sock}); f.Kind != "os" || f.Errno != int(unix.ENOENT) || !strings.Contains(f.Error, "no model is served") {
		t.Errorf("nobody there: %+v", f)
	}
}

// TestFailures: each kind of failure says which it is.
func TestFailures(t *testing.T) {
	c := newCaller(t)
	path, _ := sample(t)
	broken := filepath.Join(t.TempDir(), "broken.safetensors")
	if err := os.WriteFile(broken, []byte("12"), 0o644); err != nil {
		t.Fatal(err)
	}
	m := c.open(path)
	hostPlan := c.planned(m.Model, fields{})
	gpuPlan := c.planned(m.Model, fields{"gpus": []int{0}})
	one := []byte{1}
	for _, tt := range []struct {
		op    string
		q     fields
		kind  string
		errno unix.Errno
		want  string
	}{
		{"open", fields{"path": "/nowhere"}, "os", unix.ENOENT, "/nowhere"},
		{"open", fields{"path": broken}, "format", 0, "header's length"},
		{"open", fields{"path": 7}, "request", 0, "path: want string, not number"},
		{"plan", fields{"model": m.Model, "only": []any{5}}, "request", 0, "only: want string, not number"},
		{"plan", fields{"model": m.Model, "per_tensor": "yes"}, "request", 0, "per_tensor: want bool, not string"},
		{"load", fields{"model": m.Model, "gpus": []any{1e30}}, "request", 0, "gpus: want int, not number"},
		{"close", nil, "other", 0, `unknown op "close"`},
		{"plan", fields{"model": 7}, "other", 0, "handle 0x7"},
		{"plan", fields{"model": hostPlan.Plan}, "other", 0, "handle"},
		{"plan", fields{"model": m.Model, "plan": "tp=2,rank=5"}, "request", 0, "rank=5"},
		{"plan", fields{"model": m.Model, "plan": "tp=2"}, "request", 0, "2 parts for 1 GPUs"},
		{"plan", fields{"model": m.Model, "only": []string{"nothing"}}, "request", 0, "no tensor"},
		{"plan", fields{"model": m.Model, "only": []string{"nothing"}, "plan": "dp=2", "gpus": []int{0, 1}}, "request", 0, "gpu:0: no tensor"},
		{"plan", fields{"model": m.Model, "rules": []string{"x"}}, "request", 0, "rule"},
		{"plan", fields{"model": m.Model, "order": "size"}, "request", 0, "order"},
		{"plan", fields{"model": m.Model, "tensor": "nope"}, "request", 0, `does not contain tensor "nope"`},
		{"plan", fields{"model": m.Model, "tensor": "F4"}, "request", 0, `did you mean "all.F4"?`},
		{"plan", fields{"model": m.Model, "tensor": "large", "gpus": []int{0, 1}}, "request", 0, "one GPU"},
		{"plan", fields{"model": m.Model, "tensor": "large", "ranges": [][2]int{{0, 1}}}, "request", 0, "2 dimensions"},
		{"plan", fields{"model": m.Model, "tensor": "large", "ranges": [][2]int{{0, 1}, {0, 3000}}}, "request", 0, "outside dimension 1"},
		{"plan", fields{"model": m.Model, "tensor": "large", "squeeze": []int{0}}, "request", 0, "only 1 can be left out"},
		{"plan", fields{"model": m.Model, "tensor": "all.F4", "ranges": [][2]int{{0, 8}, {1, 2}}}, "request", 0, "not byte-aligned"},
		{"load", fields{"model": m.Model}, "other", 0, "needs a GPU"},
		{"load", fields{"model": 7, "gpus": []int{0}}, "other", 0, "handle 0x7"},
		{"load", fields{"path": "/nowhere", "gpus": []int{0}}, "os", unix.ENOENT, "/nowhere"},
		{"load", fields{"path": path, "gpus": []int{0}, "plan": "tp=2"}, "request", 0, "2 parts for 1 GPUs"},
		{"load", fields{"model": m.Model, "gpus": []int{9}}, "gpu", 0, "open gpu:9: CU_FILE_DEVICE_NOT_FOUND (5029): this machine has 2 GPUs (fix: CULVERT_SOFT=gpus=10 gives the software machine more)"},
		{"finish", fields{"memory": 7}, "other", 0, "handle"},
		{"tensors", fields{"memory": m.Model}, "other", 0, "handle"},
		{"fill", fields{"plan": gpuPlan.Plan}, "other", 0, "addresses"},
		{"fill", fields{"plan": hostPlan.Plan, "addresses": []int{1}}, "other", 0, "1 addresses"},
		{"plan", fields{"model": m.Model, "cache": "x"}, "request", 0, "page cache mode"},
		{"load", fields{"model": m.Model, "gpus": []int{0}, "cache": "x"}, "request", 0, "page cache mode"},
		{"save", fields{"path": "/nowhere/x", "tensors": []fields{}}, "os", unix.ENOENT, "/nowhere"},
		{"save", fields{"path": broken, "step": -1, "tensors": []fields{}}, "request", 0, "must not be negative"},
		{"save", fields{"path": broken, "tensors": []fields{{"name": "a", "dtype": "F32", "shape": []int{-1}}}}, "format", 0, `"a"`},
		{"save", fields{"path": broken, "tensors": []fields{{"name": "a", "dtype": "U8", "shape": []int{2}, "bytes": 1, "address": cmem.PtrTo(&one[0])}}}, "other", 0, "unexpected EOF"},
		{"save", fields{"path": broken, "tensors": []fields{{"name": "a", "dtype": "U8", "shape": []int{1}, "bytes": 1, "memory": 7}}}, "other", 0, "handle"},
		{"save", fields{"path": broken, "tensors": []fields{{"name": "a", "dtype": "U8", "shape": []int{1}, "bytes": 1, "gpu": 9}}}, "gpu", 0, "cuDevicePrimaryCtxRetain"},
	} {
		f := c.fails(tt.op, tt.q)
		if f.Kind != tt.kind || f.Errno != int(tt.errno) || !strings.Contains(f.Error, tt.want) {
			t.Errorf("%s %v: %+v, want %s %d %q", tt.op, tt.q, f, tt.kind, tt.errno, tt.want)
		}
	}
	// Host memory is no GPU.
	if f := c.fails("plan", fields{"model": m.Model, "only": []string{"nothing"}}); strings.Contains(f.Error, "gpu:") {
		t.Errorf("a load into host memory: %s", f.Error)
	}
	reply, ok := c.Call([]byte("{"))
	if f := c.failure(nil, reply, ok); f.Kind != "other" {
		t.Errorf("no JSON: %+v", f)
	}
}

// TestWrongMemory: an address that is not there is the kernel's to find.
func TestWrongMemory(t *testing.T) {
	c := newCaller(t)
	path, _ := sample(t)
	p := c.planned(c.open(path).Model, fields{"tensor": "large"})
	f := c.fails("fill", fields{"plan": p.Plan, "addresses": []int{4096}})
	if f.Kind != "os" || f.Errno != int(unix.EFAULT) {
		t.Errorf("filled nowhere: %+v", f)
	}
	// Address 0 is that of a tensor without memory.
	m := c.open(path)
	a := c.load(m.Model, fields{"gpus": []int{0}})
	isLarge := func(d described) bool { return d.Name == "large" }
	inModel, inMemory := slices.IndexFunc(m.Tensors, isLarge), slices.IndexFunc(a.Tensors, isLarge)
	f = c.fails("save", fields{"path": path, "tensors": []fields{{"name": "a", "dtype": "U8", "shape": []int{8}, "bytes": 8}}})
	for _, err := range []error{c.ReadSegment(m.Model, inModel, 0, 0, 8), c.CopyOut(a.Memory, inMemory, 0, 0, 8), errors.New(f.Error)} {
		if err == nil || !strings.HasSuffix(err.Error(), errNoAddress.Error()) {
			t.Errorf("address 0: %v", err)
		}
	}
}

func TestOutOfMemory(t *testing.T) {
	c := newCaller(t)
	path := filepath.Join(t.TempDir(), "m.safetensors")
	save(t, path, info("w", "U8", 65<<20))
	if f := c.fails("load", fields{"path": path, "gpus": []int{0}}); f.Kind != "memory" || !strings.Contains(f.Error, "gpu:0") {
		t.Errorf("%+v", f)
	}
}

func TestDamage(t *testing.T) {
	c := newCaller(t)
	path, _ := sample(t)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("damage"), 1<<20); err != nil {
		t.Fatal(err)
	}
	f.Close()
	m := c.open(path)
	var a loadAnswer
	c.call("load", fields{"model": m.Model, "gpus": []int{0}, "verify": true}, &a)
	if f := c.fails("finish", fields{"memory": a.Memory}); f.Kind != "checksum" || !strings.Contains(f.Error, `"large"`) {
		t.Errorf("on the GPU: %+v", f)
	}
	one := make([]byte, 1)
	large := slices.IndexFunc(a.Tensors, func(d described) bool { return d.Name == "large" })
	if err := c.CopyOut(a.Memory, large, 0, cmem.PtrTo(&one[0]), 1); !errors.Is(err, tensor.ErrChecksum) {
		t.Errorf("a tensor of a load that failed: %v", err)
	}
	p := c.planned(m.Model, fields{"tensor": "large"})
	room := make([]byte, p.Tensors[0].Bytes)
	q := fields{"plan": p.Plan, "verify": true, "addresses": []cmem.Ptr{cmem.PtrTo(&room[0])}}
	if f := c.fails("fill", q); f.Kind != "checksum" || !strings.Contains(f.Error, `"large"`) {
		t.Errorf("on the host: %+v", f)
	}
	if err := os.Remove(tensor.ManifestPath(path)); err != nil {
		t.Fatal(err)
	}
	if f := c.fails("fill", q); !strings.Contains(f.Error, "no manifest") {
		t.Errorf("without a manifest: %+v", f)
	}
}

// TestReadSegment: small tensors by a call without JSON. One file stays open, until the
// model is released.
func TestReadSegment(t *testing.T) {
	c := newCaller(t)
	path, want := sample(t)
	m := c.open(path)
	for i, x := range m.Tensors {
		room := make([]byte, x.Bytes+1)
		room[x.Bytes] = 7
		if err := c.ReadSegment(m.Model, i, 0, cmem.PtrTo(&room[0]), uint64(x.Bytes)); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(room[:x.Bytes], want[x.Name]) || room[x.Bytes] != 7 {
			t.Errorf("%s has other bytes", x.Name)
		}
	}
	if n := timesOpen(t, path); n != 1 {
		t.Errorf("the file is open %d times", n)
	}
	large := slices.IndexFunc(m.Tensors, func(d described) bool { return d.Name == "large" })
	if err := c.ReadSegment(m.Model, large, 0, 4096, 8); !errors.Is(err, unix.EFAULT) {
		t.Errorf("read nowhere: %v", err)
	}
	var a finishAnswer
	c.call("segment", fields{"model": path, "file": path, "bytes": 10, "seconds": 0.5}, &a)
	if r := a.Receipt; r.Tensors != 1 || r.Bytes != 10 || r.Wanted != 10 || r.Seconds != 0.5 || r.Files[0].Receipt.Bytes != 10 {
		t.Errorf("receipt %+v", r)
	}
	c.Release(m.Model)
	if n := timesOpen(t, path); n != 0 {
		t.Errorf("the file is open %d times after its release", n)
	}
	if err := c.ReadSegment(m.Model, large, 0, 4096, 8); err == nil {
		t.Error("read from a released model")
	}
}

// TestChanged: a file that was cut, or replaced by another, after it was opened is
// an error, and not other bytes.
func TestChanged(t *testing.T) {
	for name, change := range map[string]func(path string) error{
		"cut": func(path string) error { return os.Truncate(path, 8192) },
		"replaced": func(path string) error {
			other, _ := sample(t)
			return os.Rename(other, path)
		},
	} {
		c := newCaller(t)
		path, _ := sample(t)
		p := c.planned(c.open(path).Model, fields{"tensor": "large"})
		if err := change(path); err != nil {
			t.Fatal(err)
		}
		room := make([]byte, p.Tensors[0].Bytes)
		f := c.fails("fill", fields{"plan": p.Plan, "addresses": []cmem.Ptr{cmem.PtrTo(&room[0])}})
		if !strings.Contains(f.Error, "replaced or changed") {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

func TestCancel(t *testing.T) {
	c := newCaller(t)
	// A holder that does not answer.
	sock := socket(t)
	l, err := net.Listen("unix", sock)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	text := request(t, "attach", fields{"path": sock})
	c.Begin(6, text)
	clear(text) // the caller's memory is its own again
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if reply, _, ready := c.Wait(6, time.Millisecond); ready {
		t.Fatalf("answered: %s", reply)
	}
	c.Cancel(6)
	reply, ok := c.wait(6)
	if f := c.failure(text, reply, ok); f.Kind != "cancelled" {
		t.Errorf("cancelled: %+v", f)
	}
	c.Cancel(6) // it is over
	reply, ok = c.wait(6)
	if f := c.failure(text, reply, ok); !strings.Contains(f.Error, "no call has ticket 6") {
		t.Errorf("taken twice: %+v", f)
	}
	if len(c.calls) != 0 {
		t.Errorf("%d tickets are left", len(c.calls))
	}
}

// TestCancelLoad: a load whose finish is cancelled, or whose memory is released
// while it runs, has stopped when that returns.
func TestCancelLoad(t *testing.T) {
	c := newCaller(t)
	path, want := sample(t)
	m := c.open(path)
	free := func() uint64 {
		dev, err := c.Device(0)
		if err != nil {
			t.Fatal(err)
		}
		n, _, err := dev.MemInfo()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	c.Release(c.load(m.Model, fields{"gpus": []int{0}}).Memory)
	before := free()
	for range 20 {
		var a loadAnswer
		c.call("load", fields{"model": m.Model, "gpus": []int{0}}, &a)
		if len(a.Tensors) != len(want) || len(a.Addresses) != len(want) {
			t.Fatalf("begun: %+v", a)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := c.finish(ctx, &memoryRequest{a.Memory}); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err) // it may have been too late
		}
		c.Release(a.Memory)
		c.call("load", fields{"model": m.Model, "gpus": []int{0}}, &a)
		c.Release(a.Memory)
	}
	if n := free(); n+staging < before {
		t.Errorf("%d bytes were free, now %d", before, n)
	}
}

func TestEmptyModel(t *testing.T) {
	c := newCaller(t)
	path := filepath.Join(t.TempDir(), "empty.safetensors")
	save(t, path)
	m := c.open(path)
	data, rec := c.host(c.planned(m.Model, fields{}), false)
	if len(data) != 0 || rec.Tensors != 0 {
		t.Errorf("%d tensors, %+v", len(data), rec)
	}
	if a := c.load(m.Model, fields{"gpus": []int{0}}); len(a.Addresses) != 0 || a.Receipt.Tensors != 0 {
		t.Errorf("loaded %+v", a)
	}
}

func TestEnvironment(t *testing.T) {
	c := newCaller(t)
	for name, value := range map[string]string{"CULVERT_SOFT": "before", "AWS_PROFILE": "removed by the program"} {
		t.Setenv(name, value)
	}
	now := fields{"CULVERT_SOFT": "after", "AWS_REGION": "us-east-1", "https_proxy": "http://proxy:3128", "SSL_CERT_FILE": "/certs"}
	for name := range now {
		t.Setenv(name, os.Getenv(name)) // restored after the test
	}
	c.call("environment", fields{"variables": now}, &struct{}{})
	for name, want := range now {
		if got := os.Getenv(name); got != want {
			t.Errorf("%s=%q, want %q", name, got, want)
		}
	}
	if value, set := os.LookupEnv("AWS_PROFILE"); set {
		t.Errorf("AWS_PROFILE=%q, which the program removed", value)
	}
	if f := c.fails("environment", fields{"variables": fields{"PATH": ""}}); !strings.Contains(f.Error, "PATH") {
		t.Errorf("%+v", f)
	}
}

func TestMachine(t *testing.T) {
	c := newCaller(t)
	var a machineAnswer
	c.call("machine", nil, &a)
	if !a.Soft || a.Why != "test" || len(a.GPUs) != 2 {
		t.Errorf("%+v", a)
	}
}

// FuzzCall: no request makes the door panic.
func FuzzCall(f *testing.F) {
	f.Add([]byte(`{"op":"open","path":"/dev/null"}`))
	f.Add([]byte(`{"op":"plan","model":1,"tensor":"x","ranges":[[0,1]]}`))
	f.Add([]byte(`{"op":"load","model":1,"gpus":[0]}`))
	f.Add([]byte(`{"op":"finish","memory":1}`))
	f.Add([]byte(`{"op":"fill","plan":1,"addresses":[0]}`))
	f.Add([]byte(`{"op":"attach","path":"/nowhere"}`))
	c := newCaller(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		if bytes.Contains(text, []byte("save")) {
			return // writes files, and believes addresses
		}
		reply, ok := c.Call(text)
		if strings.Contains(string(reply), "panic:") || !json.Valid(reply) {
			t.Errorf("%s: %s, %v", text, reply, ok)
		}
	})
}
