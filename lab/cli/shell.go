package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/term"

	"github.com/culvert-io/culvert/lab"
)

const shellText = `Usage: lab shell [flags]

Boots a guest and gives you a prompt in it, with culvert there and the module
around the working directory mounted read-only at its place. Leave with exit;
Ctrl-A x ends a guest that hangs.

Flags:
`

const culvertPackage = "github.com/culvert-io/culvert/cmd/culvert"

func runShell(ctx context.Context, args []string, stdio IO) int {
	var g guestFlags
	fs := newFlags("lab shell", shellText, stdio)
	g.register(fs)
	if code := parse(fs, args); code >= 0 {
		return code
	}
	stdin := int(os.Stdin.Fd())
	state, err := term.GetState(stdin)
	if err != nil {
		return fail(stdio, errors.New("standard input is no terminal (to run one command: lab exec -- sh -c COMMAND)"))
	}
	// A killed QEMU leaves the terminal in raw mode.
	defer term.Restore(stdin, state)
	guest, env, err := g.describe()
	if err != nil {
		return fail(stdio, err)
	}
	l, err := lab.Open(ctx, stdio.Err)
	if err != nil {
		return fail(stdio, err)
	}
	tmp, err := os.MkdirTemp("", "culvert-shell-")
	if err != nil {
		return fail(stdio, err)
	}
	defer os.RemoveAll(tmp)
	c, err := shellCommand(ctx, filepath.Join(tmp, "culvert"), stdin)
	if err != nil {
		return fail(stdio, err)
	}
	c.Env = slices.Concat(env, []string{"PS1=lab:\\w# ", "TERM=" + os.Getenv("TERM")})
	res, err := l.Run(ctx, guest, c)
	if err != nil {
		return fail(stdio, err)
	}
	return res.ExitCode
}

// shellCommand builds culvert into a file and returns the shell that has it.
// The serial console does not know the size of the window: the shell is told.
func shellCommand(ctx context.Context, culvert string, terminal int) (lab.Command, error) {
	dir, err := os.Getwd()
	if err != nil {
		return lab.Command{}, err
	}
	if err := lab.GoBuild(ctx, "build", "-o", culvert, culvertPackage); err != nil {
		return lab.Command{}, err
	}
	script := "exec sh"
	if w, h, err := term.GetSize(terminal); err == nil && w > 0 && h > 0 {
		script = fmt.Sprintf("stty rows %d cols %d; exec sh", h, w)
	}
	return lab.Command{
		Args:     []string{"sh", "-c", script},
		Dir:      dir,
		Programs: map[string]string{"/bin/culvert": culvert},
		Terminal: true,
	}, nil
}
