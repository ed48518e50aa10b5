package main

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/culvert-io/culvert/internal/atomicfile"
	"github.com/culvert-io/culvert/internal/trace"
)

// traceable gives a command the flag --trace. The trace is written also if the command
// fails: then it shows what happened before.
func traceable(cmd *cobra.Command) *cobra.Command {
	path := cmd.Flags().String("trace", "", "also write all transfers as Chrome trace events to this file, for ui.perfetto.dev")
	inner := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, a []string) error {
		if *path == "" {
			return inner(cmd, a)
		}
		check := func() error {
			return cmp.Or(checkReplaced("--trace", *path, a), checkMade("--trace", *path, trace.Beginning))
		}
		if err := check(); err != nil {
			return err
		}
		rec := trace.Start()
		defer rec.Close()
		err := inner(cmd, a)
		rec.Stop()
		werr := check() // the work may have made that file
		if werr == nil {
			werr = atomicfile.Write(*path, 0o666, rec.Write)
		}
		if werr != nil {
			return errors.Join(err, fmt.Errorf("write the trace: %w", werr))
		}
		if n := rec.Dropped(); n > 0 {
			note("%s lacks the last %d events: it has room for %d", *path, n, trace.MaxEvents)
		}
		return err
	}
	return cmd
}
