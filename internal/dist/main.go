// Command dist does what make install and make dist need beyond the shell:
//
//	dist sbom BINARY           print the bill of materials of a Go program or library, as SPDX JSON
//	dist check LIST ARCH TREE  compare the files below TREE with the list of a package
//	dist glibc FILE...         print the newest version of glibc that the files need
//
// dist.mk has the recipes, files.txt the list, nfpm.yaml.in the packages.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
)

func main() {
	err := run(os.Args[1:], os.Stdout)
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "dist:", err)
	if errors.Is(err, errUsage) {
		os.Exit(2)
	}
	os.Exit(1)
}

var errUsage = errors.New("usage: dist sbom BINARY | check LIST ARCH TREE | glibc FILES")

func run(args []string, out io.Writer) error {
	switch {
	case len(args) == 2 && args[0] == "sbom":
		return printSBOM(out, args[1], "THIRD_PARTY_NOTICES.md", os.Getenv("SOURCE_DATE_EPOCH"))
	case len(args) == 4 && args[0] == "check":
		return check(args[1], args[2], args[3])
	case len(args) >= 2 && args[0] == "glibc":
		return printGlibc(out, args[1:])
	}
	return errUsage
}
