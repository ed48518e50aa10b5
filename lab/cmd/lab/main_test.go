package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/culvert-io/culvert/lab"
)

func runLab(args ...string) (code int, out, errs string) {
	var o, e bytes.Buffer
	code = run(args, stdio{&o, &e})
	return code, o.String(), e.String()
}

func TestUsage(t *testing.T) {
	for _, tt := range []struct {
		args string
		code int
		want string
	}{
		{"", 0, "Usage: lab COMMAND"},
		{"help", 0, "Usage: lab COMMAND"},
		{"dance", 2, `unknown command "dance" (commands: exec, suites, shell)`},
		{"exec", 2, "Usage: lab exec"},
		{"exec -h", 0, "Usage: lab exec"},
		{"exec -nonsense", 2, "not defined"},
		{"exec -fault flip:3 -- true", 125, `direction "flip"`},
		{"exec -suite nonsense -- true", 125, "unknown suite"},
		{"suites -run nonsense", 125, "no suite matches"},
		{"suites -run [", 125, "missing closing"},
	} {
		code, out, errs := runLab(strings.Fields(tt.args)...)
		if code != tt.code || !strings.Contains(out+errs, tt.want) {
			t.Errorf("lab %s: exit code %d, want %d, and %q in:\n%s%s", tt.args, code, tt.code, tt.want, out, errs)
		}
	}
}

func TestList(t *testing.T) {
	code, out, _ := runLab("suites", "-list", "-run", "^direct/")
	if code != 0 || strings.Count(out, "\n") != 4 || !strings.Contains(out, "direct/xfs/4096") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}

func TestGuestFlags(t *testing.T) {
	t.Setenv("CULVERT_A", "1")
	t.Setenv(lab.KernelEnv, "/secret")
	parseFlags := func(args ...string) (lab.Guest, []string) {
		t.Helper()
		var g guestFlags
		if _, err := parse("test", "", args, stdio{}, g.register); err != nil {
			t.Fatal(err)
		}
		guest, env, err := g.describe()
		if err != nil {
			t.Fatal(err)
		}
		return guest, env
	}
	got, env := parseFlags("-fs", "none", "--sector", "4096", "-size", "64M", "-fault", "read:8", "-fault=write:16", "-iommu", "-env", "B=2")
	want := lab.Guest{CPUs: 2, Memory: 768, IOMMU: true, Drives: []lab.Drive{{
		ID: "nv0", Size: 64 << 20, Sector: 4096, Faults: []lab.Fault{{Op: lab.Read, Sector: 8}, {Op: lab.Write, Sector: 16}},
	}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("guest (-want +got):\n%s", diff)
	}
	all := strings.Join(env, " ")
	if !strings.Contains(all, "CULVERT_A=1") || !strings.Contains(all, "B=2") || strings.Contains(all, "/secret") {
		t.Errorf("environment %q", env)
	}
	if got, env := parseFlags("-suite", "peer"); len(got.Drives) != 3 || !strings.Contains(strings.Join(env, " "), "CULVERT_WANT_PEER=1") {
		t.Errorf("guest of a suite: %+v, %q", got, env)
	}
}
