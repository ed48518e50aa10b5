package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/term"

	"github.com/culvert-io/culvert/lab"
)

const shellText = `Usage: lab shell [flags]

Boot a guest and open a prompt in it. It has the culvert command, and the module
of the working directory mounted read-only at its path. Leave with exit; Ctrl-A x
ends a guest that hangs.

Flags:
`

func runShell(ctx context.Context, args []string, std stdio) (int, error) {
	var g guestFlags
	if _, err := parse("lab shell", shellText, args, std, g.register); err != nil {
		return 0, err
	}
	stdin := int(os.Stdin.Fd())
	state, err := term.GetState(stdin)
	if err != nil {
		return 0, errors.New("standard input is not a terminal (to run one command: lab exec -- sh -c COMMAND)")
	}
	defer term.Restore(stdin, state) // a killed QEMU leaves it in raw mode
	tmp, err := os.MkdirTemp("", "culvert-shell-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(tmp)
	culvert := filepath.Join(tmp, "culvert")
	if err := lab.GoBuild(ctx, "build", "-o", culvert, "github.com/culvert-io/culvert/cmd/culvert"); err != nil {
		return 0, err
	}
	return g.run(ctx, lab.Command{
		Args:     []string{"sh", "-c", shellScript(stdin)},
		Env:      []string{"PS1=lab:\\w# ", "TERM=" + os.Getenv("TERM")},
		Programs: map[string]string{"/bin/culvert": culvert},
		Terminal: true,
	}, std)
}

// shellScript starts a shell that knows the size of the window, which the serial
// console does not transmit.
func shellScript(terminal int) string {
	if w, h, err := term.GetSize(terminal); err == nil && w > 0 && h > 0 {
		return fmt.Sprintf("stty rows %d cols %d; exec sh", h, w)
	}
	return "exec sh"
}
