package dispatch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/cufile"
)

// cufile.json is what the driver reports and does; a variable wins over it, and a call
// over both. A mistake is logged once.
func TestConfiguration(t *testing.T) {
	name := filepath.Join(t.TempDir(), "cufile.json")
	text := `{ // limits
	"properties": {"io_batchsize": 16, "max_direct_io_size_kb": 1024, "allow_compat_mode": true, "wrong": 1},
	"profile": {"cufile_stats": 2}
}`
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CUFILE_ENV_PATH_JSON", name)
	t.Setenv("CUFILE_FORCE_COMPAT_MODE", "true")
	p := start(t)
	for range 2 {
		p.must("cuFileSetParameterSizeT", paramDirect, 2048) // until the driver closes
		p.must("cuFileDriverOpen")
		if b, d := p.parameter(paramBatch), p.parameter(paramDirect); b != 16 || d != 2048 {
			t.Errorf("batch size %d, direct size %d", b, d)
		}
		force, level := new(bool), new(int32)
		p.must("cuFileGetParameterBool", 2, out(force))
		p.must("cuFileGetStatsLevel", out(level))
		if !*force || *level != 2 {
			t.Errorf("forced %t, statistics %d", *force, *level)
		}
		var batch handle.ID
		p.want(int64(cufile.InvalidValue), "cuFileBatchIOSetUp", out(&batch), 17)
		p.must("cuFileBatchIOSetUp", out(&batch), 16)
		p.must("cuFileDriverClose_v2")
	}
	if n := strings.Count(p.log.String(), "unknown key properties.wrong"); n != 1 || !strings.Contains(p.log.String(), "line 2, column 95") {
		t.Errorf("logged %d times: %s", n, p.log.String())
	}
}

// What a program sets is reported by the properties, too.
func TestConfigurationInProperties(t *testing.T) {
	name := filepath.Join(t.TempDir(), "cufile.json")
	if err := os.WriteFile(name, []byte(`{"properties": {"use_poll_mode": true, "allow_compat_mode": false}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		file    string
		control uint32
	}{{"", 0b10}, {name, 0b01}} {
		t.Setenv("CUFILE_ENV_PATH_JSON", c.file)
		p := start(t)
		var props [14]uint32
		p.must("cuFileDriverOpen")
		p.must("cuFileDriverGetProperties", out(&props))
		if props[7] != c.control {
			t.Errorf("with %q the control flags are %#x, want %#x", c.file, props[7], c.control)
		}
		p.must("cuFileDriverClose_v2")
	}
}

// What is set on an open driver is reported and happens, also after transfers.
func TestLimitsOfAnOpenDriver(t *testing.T) {
	name := filepath.Join(t.TempDir(), "cufile.json")
	if err := os.WriteFile(name, []byte(`{"properties": {"use_poll_mode": true, "force_compat_mode": true, "posix_pool_slab_size_kb": [1024], "posix_pool_slab_count": [16]}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CUFILE_ENV_PATH_JSON", name)
	p := start(t)
	var mem uint64
	p.must("cudaFree", 0)
	p.must("cuMemAlloc_v2", out(&mem), 1<<20)
	p.must("cuFileDriverOpen")
	f := p.file(make([]byte, 1<<20))
	read := func() {
		t.Helper()
		if n, _ := p.call("cuFileRead", uint64(f), mem, 1<<20, 0, 0); n != 1<<20 {
			t.Errorf("read %d", n)
		}
	}
	var props [14]uint32
	for _, c := range []struct {
		kb, reported uint64
		code         cufile.Code
		on           uint64
	}{{128, 128, 0, 1}, {1024, 1024, 0, 0}, {16320, 1024, cufile.NoMemError, 0}, {64, 64, 0, 1}} {
		read()
		p.want(int64(c.code), "cuFileDriverSetMaxDirectIOSize", c.kb)
		p.must("cuFileDriverSetPollMode", c.on, 64)
		p.must("cuFileDriverGetProperties", out(&props))
		if got := p.parameter(paramDirect); got != c.reported || uint64(props[4]) != c.reported || uint64(props[7]&1) != c.on || props[2] != 64 {
			t.Errorf("after %d KiB: parameter %d, properties %v", c.kb, got, props)
		}
	}
	for _, kb := range []uint32{1 << 20, 0} {
		p.must("cuFileDriverSetMaxPinnedMemSize", uint64(kb))
		p.must("cuFileDriverGetProperties", out(&props))
		if props[11] != kb {
			t.Errorf("%d KiB of pinned memory are reported as %d", kb, props[11])
		}
	}
	read()
	p.must("cuFileDriverClose_v2")
}

// A log file is written where the configuration names one, as far as its level says.
func TestLogFile(t *testing.T) {
	for level, want := range map[string][]bool{"ERROR": {true, false, false}, "INFO": {true, true, false}, "TRACE": {true, true, true}} {
		dir := t.TempDir()
		name := filepath.Join(dir, "cufile.json")
		if err := os.WriteFile(name, []byte(`{"logging": {"dir": "`+dir+`"}, "properties": {"io_batchsize": 7}}`), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Setenv("CUFILE_ENV_PATH_JSON", name)
		t.Setenv("CUFILE_LOGGING_LEVEL", level)
		p := start(t)
		p.must("cuFileDriverOpen")
		f, mem := p.file(make([]byte, 8192)), new([4096]byte)
		if n, _ := p.call("cuFileRead", uint64(f), out(mem), 4096, 0, 0); n != 4096 {
			t.Errorf("read %d", n)
		}
		var batch handle.ID
		p.want(int64(cufile.InvalidValue), "cuFileBatchIOSetUp", out(&batch), 8)
		p.must("cuFileDriverClose_v2")
		text, err := os.ReadFile(filepath.Join(dir, "cufile.log"))
		if err != nil {
			t.Fatal(err)
		}
		for i, part := range []string{"ERROR  cuFileBatchIOSetUp: ", "properties.io_batchsize = 7: a batch holds up to 7", "DEBUG  transfer: "} {
			if strings.Contains(string(text), part) != want[i] {
				t.Errorf("level %s, %q: the log is\n%s", level, part, text)
			}
		}
	}
}

// What the slabs of GPU memory are set to is reported; there are none before that.
func TestGPUSlabs(t *testing.T) {
	p := start(t)
	kb, count := new([4]uint64), new([4]uint64)
	for n := range uint64(5) {
		p.want(int64(cufile.InvalidValue), "cuFileGetParameterGpuBounceBufferSlabArray", out(kb), out(count), n)
	}
	set, n := &[2]uint64{64, 128}, &[2]uint64{3, 4}
	p.want(int64(cufile.InvalidValue), "cuFileSetParameterGpuBounceBufferSlabArray", out(set), out(n), 0)
	p.must("cuFileSetParameterGpuBounceBufferSlabArray", out(set), out(n), 2)
	p.must("cuFileDriverOpen")
	p.want(int64(cufile.DriverAlreadyOpen), "cuFileSetParameterGpuBounceBufferSlabArray", out(set), out(n), 2)
	p.want(int64(cufile.InvalidValue), "cuFileGetParameterGpuBounceBufferSlabArray", out(kb), out(count), 4)
	p.must("cuFileGetParameterGpuBounceBufferSlabArray", out(kb), out(count), 2)
	if kb[1] != 128 || count[1] != 4 {
		t.Errorf("%v x %v", kb, count)
	}
	p.must("cuFileDriverClose_v2")
}

// A file that is missing or damaged is logged; the driver opens.
func TestDamagedConfiguration(t *testing.T) {
	t.Setenv("CUFILE_ENV_PATH_JSON", filepath.Join(t.TempDir(), "none.json"))
	p := start(t)
	p.must("cuFileDriverOpen")
	if !strings.Contains(p.log.String(), "none.json") {
		t.Errorf("the log says %q", p.log.String())
	}
	p.must("cuFileDriverClose_v2")
}
