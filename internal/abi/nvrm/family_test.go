package nvrm

import (
	"errors"
	"strings"
	"testing"
)

func TestFamilyOf(t *testing.T) {
	for version, branch := range map[string]int{
		"580.159.04": 580, "580.65.06": 580, "535.54.03": 535, "565.77": 565, "595.45.04": 595,
	} {
		f, err := FamilyOf(version)
		if err != nil || f.Branch != branch {
			t.Errorf("FamilyOf(%q) = %d, %v; want %d", version, f.Branch, err, branch)
		}
	}
	for _, version := range []string{
		"", "580", "580.", "580.x", "580.159.04 ", "5800.1", "0580.1.1", "+580.1.1", "580.1.-1",
		"530.41.03", "610.10.01", "1e3.1", strings.Repeat("5", 64), "580.1\x00junk",
	} {
		f, err := FamilyOf(version)
		unknown, ok := errors.AsType[*UnknownVersionError](err)
		if !ok || unknown.Version != version {
			t.Errorf("FamilyOf(%q) = %v, %v; want it declined", version, f, err)
		}
	}
}

func TestFamiliesHoldTheirReleases(t *testing.T) {
	for i, f := range Families {
		if i > 0 && f.Branch <= Families[i-1].Branch {
			t.Errorf("branch %d is out of order", f.Branch)
		}
		for _, release := range []string{f.First, f.Last} {
			if got, err := FamilyOf(release); err != nil || got != f {
				t.Errorf("FamilyOf(%q) = %v, %v; want branch %d", release, got, err, f.Branch)
			}
		}
	}
}

func FuzzFamilyOf(f *testing.F) {
	for _, s := range []string{"580.159.04", "580", "", "535.1.1.1.1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		fam, err := FamilyOf(s)
		if (err == nil) != (fam.Branch != 0) {
			t.Errorf("FamilyOf(%q) = %v, %v", s, fam, err)
		}
	})
}
