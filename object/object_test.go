package object_test

import (
	"bytes"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/object/objecttest"
	"github.com/culvert-io/culvert/machine"
	_ "github.com/culvert-io/culvert/object"
	"github.com/culvert-io/culvert/soft"
	"github.com/culvert-io/culvert/tensor"
)

func newDriver(t *testing.T) *cufile.Driver {
	t.Helper()
	cfg, err := soft.ParseConfig(os.Getenv("CULVERT_SOFT"))
	if err != nil {
		t.Fatal(err)
	}
	cfg.Zero = false // poison finds what relies on zeros
	cfg.Memory = 64 << 20
	m, err := machine.FromSoft(cfg, "test")
	if err != nil {
		t.Fatal(err)
	}
	drv, err := cufile.Open(m)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		drv.Close()
		m.Close()
	})
	return drv
}

// shards saves a model of two files with an index and returns all its files.
func shards(t *testing.T, prefix string) (files objecttest.Files, want map[string][]byte) {
	t.Helper()
	dir := t.TempDir()
	files, want = objecttest.Files{}, map[string][]byte{}
	index := ""
	for i := range 2 {
		name := fmt.Sprintf("model-%05d-of-00002.safetensors", i+1)
		var sources []tensor.Source
		for k := range 3 {
			tensorName := fmt.Sprintf("layers.%d.w%d", i, k)
			data := objecttest.Bytes(300_000+k, uint64(10*i+k))
			want[tensorName] = data
			sources = append(sources, tensor.Source{Name: tensorName, Dtype: "U8", Shape: []int64{int64(len(data))}, Data: bytes.NewReader(data)})
			index += fmt.Sprintf(`,%q:%q`, tensorName, name)
		}
		if _, err := tensor.Save(t.Context(), filepath.Join(dir, name), sources, nil); err != nil {
			t.Fatal(err)
		}
	}
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if files[prefix+e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	files[prefix+"model.safetensors.index.json"] = []byte(`{"weight_map":{` + index[1:] + `}}`)
	return files, want
}

// load loads a model with verification and compares every tensor.
func load(t *testing.T, url string, want map[string][]byte) tensor.Report {
	t.Helper()
	drv := newDriver(t)
	m, err := tensor.Open(url)
	if err != nil {
		t.Fatal(err)
	}
	parts, err := (tensor.Selection{}).Spread([]int{0})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := tensor.NewPlan(m, parts, nil)
	if err != nil {
		t.Fatal(err)
	}
	l, err := tensor.NewLoad(plan, drv, &tensor.LoadOptions{Verify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	n := 0
	for x, err := range l.Tensors(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		got := make([]byte, x.Span.Len)
		dev, err := drv.Device(0)
		if err != nil {
			t.Fatal(err)
		}
		if err := dev.CopyOut(got, gpu.Addr(x.Span.Addr())); err != nil || !bytes.Equal(got, want[x.Name]) {
			t.Errorf("%s differs (%v)", x.Name, err)
		}
		n++
	}
	if n != len(want) {
		t.Errorf("%d of %d tensors", n, len(want))
	}
	return l.Report()
}

// A sharded model of a web server loads like one of files, with its manifests.
func TestLoadHTTP(t *testing.T) {
	files, want := shards(t, "org/model/")
	srv := httptest.NewServer(files)
	defer srv.Close()
	for _, url := range []string{"/org/model/", "/org/model/model.safetensors.index.json"} {
		rep := load(t, srv.URL+url, want)
		if rep.Verified != len(want) || len(rep.Files) != 2 {
			t.Errorf("%s: %d verified, %d files", url, rep.Verified, len(rep.Files))
		}
		for _, f := range rep.Files {
			if f.Receipt.Origin.Store != srv.URL || f.Receipt.Origin.Bytes < f.Receipt.Bytes || f.Receipt.Origin.Requests == 0 {
				t.Errorf("receipt %v", f.Receipt)
			}
		}
	}
	if m, err := tensor.Verify(t.Context(), srv.URL+"/org/model/model-00001-of-00002.safetensors"); err != nil || len(m.Tensors) != 3 {
		t.Errorf("verify: %v", err)
	}
	files["org/model/model-00002-of-00002.safetensors"][5000] ^= 1
	if _, err := tensor.Verify(t.Context(), srv.URL+"/org/model/model-00002-of-00002.safetensors"); err == nil {
		t.Error("a changed byte is not found")
	}
	if _, err := tensor.Open(srv.URL + "/org/other/"); err == nil {
		t.Error("a model that does not exist opens")
	}
}
