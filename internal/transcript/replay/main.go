// Command replay holds recorded conversations with kernel modules against the
// modules' software twins:
//
//	replay [-client] [-v] file...
//
// Every step must get the recorded answer, byte for byte. Where a twin is safer
// than its module on purpose, the step is shown with the reason. With -client
// our client sends whatever a client would send by itself; what is left, such as
// poisoned padding, is sent as it is.
//
// The exit status is 1 when a step differs without a reason, and 2 when a file
// cannot be replayed.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/culvert-io/culvert/internal/transcript"
)

func main() {
	client := flag.Bool("client", false, "have the client send what it can")
	verbose := flag.Bool("v", false, "show every step")
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "replay: no file")
		os.Exit(2)
	}
	failed := 0
	for _, path := range flag.Args() {
		n, err := replayFile(os.Stdout, path, *client, *verbose)
		if err != nil {
			fmt.Fprintln(os.Stderr, "replay:", err)
			os.Exit(2)
		}
		failed += n
	}
	if failed > 0 {
		os.Exit(1)
	}
}

// replayFile replays all conversations of a file and returns how many steps
// differ without a reason.
func replayFile(out io.Writer, path string, client, verbose bool) (failed int, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	list, err := transcript.Parse(f)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	for _, c := range list {
		results, err := replay(c, client)
		if err != nil {
			return failed, fmt.Errorf("%s: %w", path, err)
		}
		failed += report(out, c, results, verbose)
	}
	return failed, nil
}

func report(out io.Writer, c *transcript.Conversation, results []transcript.Result, verbose bool) (failed int) {
	excused, sent := 0, 0
	for _, r := range results {
		if r.Got.ByClient {
			sent++
		}
		if r.Failed() {
			failed++
		} else if r.Diff != "" {
			excused++
		}
		if verbose || r.Diff != "" {
			fmt.Fprintf(out, "%s %s: %v\n", c.Module, c.Name, r)
		}
	}
	fmt.Fprintf(out, "%s %s: %d steps, %d of them sent by the client, %d differ on purpose, %d differ\n",
		c.Module, c.Name, len(results), sent, excused, failed)
	return failed
}

// replay replays a conversation against the twin of its module.
func replay(c *transcript.Conversation, client bool) ([]transcript.Result, error) {
	m, err := newMachine(c)
	if err != nil {
		return nil, err
	}
	if client {
		m.useClient()
	}
	results, err := transcript.Replay(c, m.World)
	if err != nil {
		return nil, err
	}
	return results, m.close()
}
