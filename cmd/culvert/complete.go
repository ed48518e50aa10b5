package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/internal/stats"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/route"
)

// addCompletions gives flags and arguments values for the shell's completion.
func addCompletions(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		for name, values := range map[string]cobra.CompletionFunc{
			"route": completeRoutes, "require-route": completeRoutes, "via": completeGPUs, "pid": completePIDs,
		} {
			if c.Flags().Lookup(name) != nil {
				_ = c.RegisterFlagCompletionFunc(name, values) // fails only if it is registered already
			}
		}
		for name, values := range flagValues {
			if c.Flags().Lookup(name) != nil {
				_ = c.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
			}
		}
		if strings.Contains(c.Use, "[gpu:N]") && c.ValidArgsFunction == nil {
			c.ValidArgsFunction = completeFileAndGPU
		}
		addCompletions(c)
	}
}

// flagValues are the values of flags that take one of a few words.
var flagValues = map[string][]string{
	"rw":       {"read", "write", "randread", "randwrite", "rw", "randrw"},
	"mem":      {"device", "virtual", "host", "managed"},
	"peer":     {"libcufile", "pread", "memory"},
	"cache":    {"auto", "keep", "avoid"},
	"engine":   {"culvert", "nvidia"},
	"order":    {"file", "layer"},
	"provider": {"tcp", "ibverbs", "soft"},
}

func completeRoutes(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	var names []string
	for _, name := range route.Names() {
		if name != route.None.String() {
			names = append(names, name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func completeGPUs(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	m, err := machine.Open()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer m.Close()
	devices, _ := m.GPU.Devices()
	names := make([]string, len(devices))
	for i, d := range devices {
		names[i] = fmt.Sprintf("gpu:%d\t%s", i, d.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func completePIDs(*cobra.Command, []string, string) (names []string, _ cobra.ShellCompDirective) {
	for _, s := range stats.List(false) {
		names = append(names, strconv.Itoa(s.PID)+"\t"+human.Name(s.Command))
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeFileAndGPU completes FILE [gpu:N], or FILE... [gpu:N]: then a name that begins like
// no GPU is a file's.
func completeFileAndGPU(cmd *cobra.Command, a []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(a) == 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	names, directive := completeGPUs(cmd, a, prefix)
	if strings.Contains(cmd.Use, "FILE...") && !strings.HasPrefix("gpu:", prefix[:min(len(prefix), 4)]) {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return names, directive
}
