package clib_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/culvert-io/culvert/clib/internal/differential"
	"github.com/culvert-io/culvert/cufile/cufiletest"
)

// played runs all cases with the libraries of lib on the software machine, with a
// second directory in memory if there is one. The program is compiled with the flags.
func played(t *testing.T, lib string, flags ...string) *cufiletest.Record {
	t.Helper()
	dir := t.TempDir()
	cases := filepath.Join(dir, "cases.txt")
	f, err := os.Create(cases)
	if err != nil {
		t.Fatal(err)
	}
	if err := differential.WriteCases(f); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	sources, err := filepath.Glob("testdata/differential/*.c")
	if err != nil {
		t.Fatal(err)
	}
	exe, out := filepath.Join(dir, "play"), filepath.Join(dir, "ours.json")
	args := slices.Concat([]string{"-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-Iinclude", "-o", exe}, flags, sources,
		[]string{"-L" + filepath.Join(lib, "soft"), "-lcuda", "-ldl"})
	if text, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, text)
	}
	second := t.TempDir()
	if shm, err := os.MkdirTemp("/dev/shm", "differential"); err == nil {
		defer os.RemoveAll(shm)
		second = shm
	}
	if r := run(t, lib, exe, filepath.Join(lib, "libcufile.so.0"), cases, t.TempDir(), second, out); r.status != 0 || r.stderr != "" {
		t.Fatalf("status %d: %s", r.status, r.stderr)
	}
	rec, err := cufiletest.Load(out)
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

// floors are the smallest allowed fractions of answers equal to NVIDIA's, by release and
// function; functions that are not listed must always agree. As on the H200, there is no
// nvidia-fs.
var floors = map[string]map[string]float64{
	"1.15": {
		"all":                                  0.96,
		"cuFileHandleRegister":                 0.99,
		"cuFileBufRegister":                    0.99,
		"cuFileBufDeregister":                  0.97,
		"cuFileRead":                           0.93,
		"cuFileWrite":                          0.92,
		"cuFileBatchIOCancel":                  0.66, // codes of 1.19, as the next two
		"cuFileBatchIOGetStatus":               0.87,
		"cuFileBatchIOSetUp":                   0.90,
		"cuFileBatchIOSubmit":                  0.68,
		"cuFileDriverGetProperties":            0.54,
		"cuFileGetParameterBool":               0.93,
		"cuFileGetParameterPosixPoolSlabArray": 0.75,
		"cuFileGetParameterSizeT":              0.84,
		"cuFileGetParameterString":             0.70,
		"cuFileGetStatsL1":                     0.80,
		"cuFileReadAsync":                      0.60,
		"cuFileSetParameterBool":               0.87,
		"cuFileSetParameterSizeT":              0.94,
		"cuFileUseCount":                       0.90,
	},
	"1.19": {
		"all":                                  0.96,
		"cuFileHandleRegister":                 0.99,
		"cuFileBufRegister":                    0.99,
		"cuFileBufDeregister":                  0.96,
		"cuFileRead":                           0.93,
		"cuFileWrite":                          0.92,
		"cuFileBatchIOGetStatus":               0.95,
		"cuFileBatchIOSubmit":                  0.84,
		"cuFileDriverGetP2PFlags":              0.95,
		"cuFileDriverGetProperties":            0.77,
		"cuFileDriverSetMaxCacheSize":          0.66,
		"cuFileDriverSetMaxDirectIOSize":       0.25, // 5003, which 1.15 answers
		"cuFileDriverSetMaxPinnedMemSize":      0.66,
		"cuFileDriverSetP2PFlags":              0.96,
		"cuFileDriverSetPollMode":              0.50,
		"cuFileGetParameterBool":               0.89,
		"cuFileGetParameterMinMaxValue":        0.93,
		"cuFileGetParameterPosixPoolSlabArray": 0.75,
		"cuFileGetParameterSizeT":              0.78,
		"cuFileGetParameterString":             0.90,
		"cuFileReadAsync":                      0.60,
		"cuFileReadv":                          0.80,
		"cuFileSetParameterBool":               0.93,
		"cuFileSetParameterSizeT":              0.82,
		"cuFileWritev":                         0.90,
	},
}

// TestDifferential runs the cases on our library and compares them line by line with
// recordings of NVIDIA's library and ours on an H200.
func TestDifferential(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a few seconds: not in a short run")
	}
	t.Setenv("CULVERT_SOFT", "memory=256M,poison=1,without=nvidia-fs") // as on the H200
	ours := played(t, libraries(t))
	for release := range floors {
		t.Run("NVIDIA "+release, func(t *testing.T) {
			againstNVIDIA(t, ours, recording(t, "testdata/differential/libcufile-"+release+"-h200.json"), floors[release])
		})
	}
	t.Run("hardware", func(t *testing.T) {
		asOnHardware(t, ours, differential.Since)
	})
}

func againstNVIDIA(t *testing.T, ours, theirs *cufiletest.Record, floors map[string]float64) {
	t.Helper()
	r := differential.Compare(ours, theirs, differential.Reasons)
	judge(t, r)
	check := func(name string, share differential.Tally, least float64) {
		if share.Share() < least {
			t.Errorf("%s: %.3f of %d answers are NVIDIA's, want %.3f", name, share.Share(), share.Lines, least)
		}
	}
	for name, share := range r.Functions {
		least, ok := floors[name]
		if !ok {
			least = 1
		}
		check(name, share, least)
	}
	check("all", r.Total, floors["all"])
}

// asOnHardware compares our answers with those that were recorded on an H200.
func asOnHardware(t *testing.T, ours *cufiletest.Record, reasons ...[]differential.Reason) {
	t.Helper()
	judge(t, differential.Compare(ours, recording(t, "testdata/differential/culvert-h200.json"), slices.Concat(reasons...)))
}

func recording(t *testing.T, name string) *cufiletest.Record {
	t.Helper()
	rec, err := cufiletest.Load(filepath.FromSlash(name))
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

// judge fails for differences without a reason and for damage by our library.
func judge(t *testing.T, r *differential.Report) {
	t.Helper()
	var b strings.Builder
	r.Write(&b)
	t.Log("\n" + b.String())
	if len(r.Unexpected) > 0 || len(r.OurDamage) > 0 {
		t.Errorf("%d lines differ without a reason, and in %d ours is damaged", len(r.Unexpected), len(r.OurDamage))
	}
}
