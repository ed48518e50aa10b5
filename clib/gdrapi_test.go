package clib_test

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestGDRCopy: a C program makes every call of GDRCopy's API, over gdrdrv and without it.
func TestGDRCopy(t *testing.T) {
	exe := compile(t, "gdr.c", "-lgdrapi")
	for want, machine := range map[string]string{"gdr.txt": "memory=256M,poison=1", "gdr-bar1.txt": "memory=256M,poison=1,without=gdrdrv"} {
		t.Run(want, func(t *testing.T) {
			t.Setenv("CULVERT_SOFT", machine)
			r := run(t, libraries(t), exe)
			golden(t, want, r.stdout)
			if r.status != 0 || r.stderr != "" {
				t.Errorf("status %d, stderr %q", r.status, r.stderr)
			}
		})
	}
}

// TestGDRCopySymbols: the library has every function of the header, and no other.
func TestGDRCopySymbols(t *testing.T) {
	header, err := os.ReadFile("include/gdrapi.h")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"culvert_gdrapi", "gdr_get_info"} // a macro in the header, for programs built today
	for _, m := range regexp.MustCompile(`(?m)^(?:int|void|gdr_t) (gdr_\w+)\(`).FindAllStringSubmatch(string(header), -1) {
		want = append(want, m[1])
	}
	out, err := exec.Command("nm", "-D", "--defined-only", libraries(t)+"/libgdrapi.so.2").Output()
	if err != nil {
		t.Skipf("needs nm: %v", err)
	}
	var got []string
	for _, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		got = append(got, line[strings.LastIndexByte(line, ' ')+1:])
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("exported %q, want %q", got, want)
	}
}
