package nvrm

import (
	"fmt"
	"strconv"
	"strings"
)

// A Family is a driver branch for which the layouts of this package are correct:
// they were compared with the headers of every release of the open kernel
// modules from First to Last. Later releases of the branch are assumed to be
// equal; the driver checks the size of every struct.
type Family struct {
	Branch      int
	First, Last string
	// Seen is the release and the GPU on which the client ran; "" if the branch is
	// believed to work because its headers are the same.
	Seen string
}

// Families are the known branches, oldest first.
var Families = []Family{
	{535, "535.43.02", "535.288.01", ""},
	{545, "545.23.06", "545.29.06", ""},
	{550, "550.40.07", "550.163.01", ""},
	{555, "555.42.02", "555.58.02", ""},
	{560, "560.28.03", "560.35.03", ""},
	{565, "565.57.01", "565.77", ""},
	{570, "570.86.15", "570.211.01", ""},
	{575, "575.51.02", "575.64.05", ""},
	{580, "580.65.06", "580.142", "580.159.04 on an H200"},
	{590, "590.44.01", "590.48.01", ""},
	{595, "595.44.02", "595.45.04", ""},
}

// An UnknownVersionError means that the layouts were not compared with those of
// this driver.
type UnknownVersionError struct{ Version string }

func (e *UnknownVersionError) Error() string {
	return fmt.Sprintf("NVIDIA driver %q has an unknown interface (known: branches %d to %d)",
		e.Version, Families[0].Branch, Families[len(Families)-1].Branch)
}

// FamilyOf finds the branch of a version such as "580.159.04". It fails with an
// *[UnknownVersionError] for others: their structs may differ, so the driver
// must not be called.
func FamilyOf(version string) (Family, error) {
	branch, rest, ok := strings.Cut(version, ".")
	if !ok || !dotted(rest) {
		return Family{}, &UnknownVersionError{version}
	}
	for _, f := range Families {
		if branch == strconv.Itoa(f.Branch) {
			return f, nil
		}
	}
	return Family{}, &UnknownVersionError{version}
}

// dotted reports whether s is one or more numbers with dots between them.
func dotted(s string) bool {
	for part := range strings.SplitSeq(s, ".") {
		if _, err := strconv.ParseUint(part, 10, 16); err != nil {
			return false
		}
	}
	return true
}
