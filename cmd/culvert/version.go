package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/culvert-io/culvert"
)

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Long: `Print the version of culvert, the version of Go that built it, and the commit it
was built from if known. The C libraries, the pkg-config file and the Python
package of the same build have the same version.

EXIT STATUS
  0  success
  2  invalid command line`,
		Example: "  culvert version",
		Args:    args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "culvert version", version())
			return err
		},
	}
}

// version is the version, and what the go command recorded about the build.
func version() string {
	text := culvert.Version + " " + runtime.Version()
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return text
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			text += " commit " + s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			text += " (modified)"
		}
	}
	return text
}
