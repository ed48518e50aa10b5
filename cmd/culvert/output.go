package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
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
	if o.err == nil {
		o.err = err
	}
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

// saveJSON writes a result to a file. It does not wait for the reader of a FIFO.
func saveJSON(path string, v any) error {
	f, err := atomicfile.OpenTarget(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NONBLOCK, 0o666)
	if err != nil {
		return err
	}
	return errors.Join(writeJSON(f, v), f.Close())
}
