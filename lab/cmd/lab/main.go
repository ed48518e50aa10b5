// Command lab runs programs and the project's test suites on a real Linux
// kernel under QEMU.
package main

import (
	"os"

	"github.com/culvert-io/culvert/lab/cli"
)

func main() {
	os.Exit(cli.Main(os.Args[1:], cli.IO{Out: os.Stdout, Err: os.Stderr}))
}
