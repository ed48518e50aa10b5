package pythonapi

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/soft"
	"github.com/culvert-io/culvert/tensor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A caller plays Python's part.
type caller struct {
	*API
	t testing.TB
}

func newCaller(t testing.TB) *caller {
	t.Helper()
	cfg, err := soft.ParseConfig(os.Getenv("CULVERT_SOFT"))
	if err != nil {
		t.Fatal(err)
	}
	cfg.Zero = false // poison finds what relies on zeros
	cfg.GPUs, cfg.Memory = 2, 64<<20
	d := New(func() (*machine.Machine, error) { return machine.FromSoft(cfg, "test") })
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return &caller{d, t}
}

// fields are what JSON looks like to a program in another language.
type fields map[string]any

// call makes a request and takes the answer into out.
func (c *caller) call(op string, q fields, out any) {
	c.t.Helper()
	reply, ok := c.Call(request(c.t, op, q))
	if !ok {
		c.t.Fatalf("%s %v: %s", op, q, reply)
	}
	if err := json.Unmarshal(reply, out); err != nil {
		c.t.Fatalf("%s: %v in %s", op, err, reply)
	}
}

// fails makes a request that must fail.
func (c *caller) fails(op string, q fields) Failure {
	c.t.Helper()
	text := request(c.t, op, q)
	reply, ok := c.Call(text)
	return c.failure(text, reply, ok)
}

func (c *caller) failure(text, reply []byte, ok bool) (f Failure) {
	c.t.Helper()
	if ok {
		c.t.Fatalf("%s is answered: %s", text, reply)
	}
	if err := json.Unmarshal(reply, &f); err != nil || f.Error == "" || f.Kind == "" {
		c.t.Fatalf("%v in %s", err, reply)
	}
	return f
}

// wait takes the answer of a call that was begun.
func (c *caller) wait(ticket uint64) (reply []byte, ok bool) {
	for {
		reply, ok, ready := c.Wait(ticket, time.Minute)
		if ready {
			return reply, ok
		}
	}
}

// A complete load, with its receipt.
type complete struct {
	loadAnswer
	finishAnswer
}

// load loads a part of an open model.
func (c *caller) load(model handle.ID, q fields) (a complete) {
	c.t.Helper()
	q["model"] = model
	c.call("load", q, &a.loadAnswer)
	c.call("finish", fields{"memory": a.Memory}, &a.finishAnswer)
	return a
}

func request(t testing.TB, op string, q fields) []byte {
	t.Helper()
	all := fields{"op": op}
	for k, v := range q {
		all[k] = v
	}
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func (c *caller) open(path string) (a openAnswer) {
	c.t.Helper()
	c.call("open", fields{"path": path}, &a)
	return a
}

func (c *caller) planned(model handle.ID, q fields) (a planAnswer) {
	c.t.Helper()
	q["model"] = model
	c.call("plan", q, &a)
	return a
}

// host carries a plan out into memory of the test.
func (c *caller) host(p planAnswer, verify bool) ([][]byte, *receipt) {
	c.t.Helper()
	data := make([][]byte, len(p.Tensors))
	at := make([]uint64, len(p.Tensors))
	for i, t := range p.Tensors {
		data[i] = make([]byte, t.Bytes)
		if t.Bytes > 0 {
			at[i] = uint64(cmem.PtrTo(&data[i][0]))
		}
	}
	var a finishAnswer
	c.call("fill", fields{"plan": p.Plan, "addresses": at, "verify": verify}, &a)
	return data, a.Receipt
}

// bytes copies a loaded tensor out.
func (c *caller) bytes(memory handle.ID, i int, n int64) []byte {
	c.t.Helper()
	data := make([]byte, n)
	if n == 0 {
		return data
	}
	if err := c.CopyOut(memory, i, 0, cmem.PtrTo(&data[0]), uint64(n)); err != nil {
		c.t.Fatal(err)
	}
	return data
}

// save makes a file of random tensors and returns their bytes by name.
func save(t testing.TB, path string, infos ...tensor.Info) map[string][]byte {
	t.Helper()
	rng := rand.New(rand.NewPCG(uint64(len(path)), uint64(len(infos))))
	data := map[string][]byte{}
	var sources []tensor.Source
	for _, info := range infos {
		n := int64(info.Dtype.Bits())
		for _, dim := range info.Shape {
			n *= dim
		}
		b := make([]byte, n/8)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		data[info.Name] = b
		sources = append(sources, tensor.Source{Name: info.Name, Dtype: info.Dtype, Shape: info.Shape, Data: readerAt(b)})
	}
	if _, err := tensor.Save(t.Context(), path, sources, &tensor.SaveOptions{Metadata: map[string]string{"format": "pt"}}); err != nil {
		t.Fatal(err)
	}
	return data
}

type readerAt []byte

func (r readerAt) ReadAt(p []byte, off int64) (int, error) { return copy(p, r[off:]), nil }

func info(name string, d tensor.Dtype, shape ...int64) tensor.Info {
	return tensor.Info{Name: name, Dtype: d, Shape: shape}
}

// sample is a file with a tensor of every type, large and small ones.
func sample(t testing.TB) (string, map[string][]byte) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.safetensors")
	infos := []tensor.Info{info("large", "BF16", 3001, 2999), info("scalar", "F32"), info("empty", "I64", 0, 7)}
	for _, d := range []tensor.Dtype{
		"BOOL", "F4", "F6_E2M3", "F6_E3M2", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ",
		"I16", "U16", "F16", "BF16", "I32", "U32", "F32", "C64", "F64", "I64", "U64",
	} {
		infos = append(infos, info("all."+string(d), d, 8, 12))
	}
	return path, save(t, path, infos...)
}

func openFiles(t testing.TB) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// timesOpen returns how often this process has a file open.
func timesOpen(t testing.TB, path string) (n int) {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && to == path {
			n++
		}
	}
	return n
}

// socket is a path that is short enough for one.
func socket(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "api")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

// What a receiptAnswer contains.
type (
	finishAnswer struct{ Receipt *receipt }
	saveAnswer   struct{ Receipt *saveReceipt }
)
