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
	p.must("cuFileSetParameterSizeT", paramDirect, 2048)
	for range 2 {
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
