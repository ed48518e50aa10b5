// Command differential prepares and evaluates the comparison of our libcufile.so.0
// with NVIDIA's. The C program in clib/testdata/differential runs in between, on a
// machine that may have no Go.
//
//	go run ./clib/differential cases FILE               # what the C program reads
//	go run ./clib/differential compare OURS THEIRS      # two recordings, as JSON
//
// "compare" fails when a difference has no reason (clib/internal/differential).
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/culvert-io/culvert/clib/internal/differential"
	"github.com/culvert-io/culvert/cufile/cufiletest"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "differential: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 2 && args[0] == "cases":
		f, err := os.Create(args[1])
		if err != nil {
			return err
		}
		return errors.Join(differential.WriteCases(f), f.Close())
	case len(args) == 3 && args[0] == "compare":
		return compare(args[1], args[2])
	}
	return errors.New("usage: differential cases FILE | differential compare OURS THEIRS")
}

func compare(ours, theirs string) error {
	o, err := cufiletest.Load(ours)
	if err != nil {
		return err
	}
	t, err := cufiletest.Load(theirs)
	if err != nil {
		return err
	}
	r := differential.Compare(o, t, differential.Reasons)
	r.Write(os.Stdout)
	if len(r.Unexpected) > 0 || len(r.OurDamage) > 0 {
		return fmt.Errorf("%d lines differ without a reason, %d lines of ours have damage", len(r.Unexpected), len(r.OurDamage))
	}
	return nil
}
