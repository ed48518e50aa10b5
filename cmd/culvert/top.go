package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/gdamore/tcell/v2"
	"github.com/spf13/cobra"

	"github.com/culvert-io/culvert/internal/stats"
	"github.com/culvert-io/culvert/internal/top"
)

type topOptions struct {
	interval time.Duration
	filter   string
	all      bool
}

func newTop() *cobra.Command {
	o := topOptions{interval: time.Second}
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show the transfers of all processes live",
		Long: `Show which processes move data through Culvert, and for each file: the GPU, the
route, rates, the share of the link, the mean latency, errors and the last
intervals as bars. Inspect a file to see why better routes were not used.

Root sees the processes of all users, others their own. The processes are not
interrupted. culvert stats prints the same for scripts.

KEYS
  up, down  select         enter  inspect        s  sort by the next column
  /         filter         esc    back           q  quit

EXIT STATUS
  0  the user quit
  1  the terminal cannot show a screen
  2  invalid command line`,
		Example: `  culvert top
  culvert top --filter safetensors --interval 500ms`,
		Args: args(cobra.NoArgs),
		RunE: run(o.run),
	}
	cmd.Flags().DurationVar(&o.interval, "interval", o.interval, "time between two readings, at least 100ms")
	cmd.Flags().StringVar(&o.filter, "filter", "", "show commands and files whose name contains this text")
	cmd.Flags().BoolVarP(&o.all, "all", "a", false, "also show processes that have ended")
	return cmd
}

func (o *topOptions) run(ctx context.Context, _ []string, _ io.Writer) error {
	if err := checkInterval(o.interval); err != nil {
		return err
	}
	if tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0); err != nil {
		return errors.New("top: this process has no terminal to draw on (culvert stats --watch prints lines)")
	} else {
		tty.Close()
	}
	screen, err := tcell.NewScreen()
	if err != nil {
		return fmt.Errorf("top: open the terminal: %w (culvert stats --watch prints lines)", err)
	}
	read := func() []*stats.Snapshot { return stats.List(o.all) }
	ticks := time.NewTicker(o.interval)
	defer ticks.Stop()
	if err := top.Run(ctx, screen, &top.View{Filter: o.filter, ASCII: asciiTerminal()}, ticks.C, read); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("top: %w (culvert stats --watch prints lines)", err)
	}
	return ctx.Err()
}

func checkInterval(d time.Duration) error {
	if d < 100*time.Millisecond {
		return usageError{fmt.Errorf("interval %s is too short (want 100ms or more)", d)}
	}
	return nil
}

// asciiTerminal reports whether the locale has no other characters.
func asciiTerminal() bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := os.Getenv(name); v != "" {
			return !strings.Contains(strings.ToUpper(strings.ReplaceAll(v, "-", "")), "UTF8")
		}
	}
	return true
}
