package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/atomicfile"
	"github.com/culvert-io/culvert/route"
)

// An output keeps the first write error, so that a full disk is not reported as
// success. It stops the command if the reader of a pipe has gone.
type output struct {
	w    io.Writer
	err  error
	gone func()
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.w.Write(p)
	o.err = cmp.Or(o.err, err)
	if errors.Is(err, unix.EPIPE) {
		o.gone()
	}
	return n, err
}

// A failure is printed by commands with --json that fail before they have a result.
type failure struct {
	Error    string           `json:"error"`
	Status   int              `json:"exit_status"`
	Declined []*route.Decline `json:"declined,omitempty"` // if a required route is not available
}

func newFailure(err error) failure {
	f := failure{Error: err.Error(), Status: statusOf(err)}
	if code, ok := errors.AsType[exitStatus](err); ok {
		f.Status = int(code)
	}
	if required, ok := errors.AsType[*route.RequireError](err); ok {
		f.Declined = required.Declined
	}
	return f
}

// show prints a result as JSON or as text.
func show(out io.Writer, asJSON bool, result fmt.Stringer) error {
	if asJSON {
		return writeJSON(out, result)
	}
	_, err := fmt.Fprintln(out, strings.TrimSuffix(result.String(), "\n"))
	return err
}

// A transferResult has receipts.
type transferResult interface {
	fmt.Stringer
	Fields() string // the receipts with every field, a line each
}

// showTransfer prints a result; if verbose, with every field of its receipts.
func showTransfer(out io.Writer, asJSON, verbose bool, result transferResult) error {
	if err := show(out, asJSON, result); err != nil || asJSON || !verbose {
		return err
	}
	_, err := fmt.Fprintln(out, result.Fields())
	return err
}

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// checkOutput reports a file that cannot be written, before the work whose result it is
// for. It creates and changes nothing. The work may create the directory of its last
// argument.
func checkOutput(flag, path string, args []string) error {
	if path == "" {
		return nil
	}
	st, err := os.Stat(path)
	switch {
	case err == nil && st.IsDir():
		err = unix.EISDIR
	case err == nil:
		err = unix.Access(path, unix.W_OK)
	default:
		err = unix.Access(filepath.Dir(path), unix.W_OK|unix.X_OK)
		if errors.Is(err, fs.ErrNotExist) && len(args) > 0 && isBelow(path, args[len(args)-1]) {
			err = nil
		}
	}
	if err != nil {
		return fmt.Errorf("%s %s cannot be written: %w", flag, path, err)
	}
	return nil
}

// checkReplaced does the same for a file that is replaced as a whole, as a device or a pipe
// cannot be.
func checkReplaced(flag, path string, args []string) error {
	err := checkOutput(flag, path, args)
	if err == nil && path != "" {
		if err = atomicfile.Replaceable(path); err != nil {
			err = fmt.Errorf("%s %s: %w", flag, path, err)
		}
	}
	return err
}

// What is near the beginning of the files that flags make.
const (
	receiptMark    = `  "source": "`
	pageMark       = "<title>culvert bench: "
	reportMark     = "culvert: "
	jsonReportMark = `  "program": [`
)

// checkMade rejects a file that Culvert has not made for this flag: to replace it would lose
// data. --trace a b looks like a switch and two files, of which a is the trace.
func checkMade(flag, path string, marks ...string) error {
	st, err := os.Stat(path)
	if err != nil || !st.Mode().IsRegular() || st.Size() == 0 {
		return nil // checkOutput says what is wrong
	}
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	defer f.Close()
	head := make([]byte, 1<<10)
	n, _ := io.ReadFull(f, head)
	for _, mark := range marks {
		if bytes.Contains(head[:n], []byte(mark)) {
			return nil
		}
	}
	return fmt.Errorf("%s %s would replace a file with other data (fix: name a new file after %s, or remove this one)", flag, path, flag)
}

// isBelow reports whether a path is below a directory, by their names.
func isBelow(path, dir string) bool {
	path, errA := filepath.Abs(path)
	dir, errB := filepath.Abs(dir)
	return errA == nil && errB == nil && strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// saveJSON writes a result to a file. It does not wait for the reader of a FIFO.
func saveJSON(path string, v any) error {
	f, err := atomicfile.OpenTarget(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NONBLOCK, 0o666)
	if err != nil {
		return err
	}
	return errors.Join(writeJSON(f, v), f.Close())
}
