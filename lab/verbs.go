package lab

import (
	"errors"
	"fmt"
	"path/filepath"
)

// ErrNoVerbs means that the host lacks libibverbs or the part of it for software RoCE.
var ErrNoVerbs = errors.New("needs libibverbs with software RoCE (package ibverbs-providers)")

// verbsFiles are patterns of the files that a program with libibverbs needs in a guest
// with a software RoCE device. They keep their paths: the library has them built in.
var verbsFiles = []string{
	"/usr/lib/x86_64-linux-gnu/libibverbs.so.1",
	"/usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav*.so",
	"/etc/libibverbs.d/rxe.driver",
}

// ErrNoPerftest means that the host lacks perftest.
var ErrNoPerftest = errors.New("needs perftest (package perftest)")

// perftest lists its programs, by their path in the guest.
func perftest() (map[string]string, error) {
	programs := map[string]string{}
	for _, name := range []string{"ib_write_bw", "ib_read_bw"} {
		host, err := findTool(name)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNoPerftest, err)
		}
		programs["/bin/"+name] = host
	}
	return programs, nil
}

// verbs lists the files of the host, by their path in the guest.
func verbs() (map[string]string, error) {
	files := map[string]string{}
	for _, pattern := range verbsFiles {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			return nil, fmt.Errorf("%w: no %s", ErrNoVerbs, pattern)
		}
		for _, f := range found {
			files[f] = f
		}
	}
	return files, nil
}
