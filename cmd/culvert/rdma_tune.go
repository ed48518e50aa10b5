package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/internal/registration"
	"github.com/culvert-io/culvert/internal/tune"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/rdma"
)

type rdmaTune struct {
	access rdmaAccess
	json   bool
}

func newRDMATune() *cobra.Command {
	var o rdmaTune
	cmd := &cobra.Command{
		Use:   "tune [gpu:N]",
		Short: "Measure by which method an adapter reaches GPU memory fastest",
		Long: `Register memory of a GPU with the adapter of the provider by each method (peer memory,
dma-buf with PCIe addresses, dma-buf, staging), write into it, and keep the results:
later transfers try the fastest direct method first. Transfers never measure; without
results the built-in order applies. The adapter sends to itself, and every byte is
compared.

culvert tune --show prints the results and culvert tune --clear removes them.

` + rdmaAbout + rdmaStatus,
		Example: `  culvert rdma tune --provider ibverbs -a 10.0.0.1 gpu:0
  CULVERT_MACHINE=soft culvert rdma tune --provider soft`,
		Args: args(cobra.MaximumNArgs(1)),
		RunE: run(o.run),
	}
	f := cmd.Flags()
	o.access.flags(f)
	f.BoolVar(&o.json, "json", false, "print JSON")
	return cmd
}

func (o *rdmaTune) run(ctx context.Context, a []string, out io.Writer) error {
	n := 0
	if len(a) > 0 {
		var err error
		if n, err = parseGPU(a[0]); err != nil {
			return err
		}
	}
	if err := tune.User().Prepare(); err != nil {
		return err
	}
	m, err := machine.Open()
	if err != nil {
		return err
	}
	defer m.Close()
	if err := checkGPUs(m, n); err != nil {
		return err
	}
	o.access.perftest = true // the adapter sends to itself: no secret is needed
	adapter, err := o.access.open(m, cmp.Or(o.access.local, "127.0.0.1"))
	if err != nil {
		return err
	}
	defer adapter.close()
	res, err := measureRegistration(ctx, m, n, adapter)
	if err != nil {
		return err
	}
	return show(out, o.json, res)
}

func measureRegistration(ctx context.Context, m *machine.Machine, n int, adapter rdma.Device) (*registrationReport, error) {
	g, err := m.GPU.Open(n)
	if err != nil {
		return nil, err
	}
	defer g.Close()
	results, err := registration.Measure(ctx, adapter, g)
	if err != nil {
		return nil, err
	}
	if err := registration.Store(tune.User(), adapter, g.Info(), dev.Of(m).FS(), results); err != nil {
		return nil, err
	}
	return &registrationReport{n, adapter.Provider(), adapter.Info().Name, results, registration.Order(results).Methods, m.Soft}, nil
}

// knownRegistration is what was measured for an adapter.
func knownRegistration(m *machine.Machine, adapter rdma.Device) func(gpu.Info) rdma.GPUOptions {
	return func(g gpu.Info) rdma.GPUOptions {
		return registration.Known(tune.User(), adapter, g, dev.Of(m).FS())
	}
}

// A registrationReport is what rdma tune measured.
type registrationReport struct {
	GPU      int                   `json:"gpu"`
	Provider string                `json:"provider"`
	Device   string                `json:"device"`
	Results  []registration.Result `json:"results"`
	Order    []rdma.Method         `json:"order"`
	Soft     bool                  `json:"software_machine"`
}

func (r *registrationReport) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "tuned gpu:%d for %s (provider %s): %s%s", r.GPU, r.Device, r.Provider, registrationText(r.Results), human.SoftMark(r.Soft))
	for _, m := range r.Results {
		if m.Refused != "" {
			fmt.Fprintf(&b, "\n  %-12s  %s", m.Method, m.Refused)
		} else {
			fmt.Fprintf(&b, "\n  %-12s  %s, registered in %s", m.Method, human.Speed(m.Rate), human.Duration(m.Register))
		}
	}
	return b.String()
}

// registrationText lists the methods that work, the fastest first.
func registrationText(results []registration.Result) string {
	var names []string
	for _, m := range registration.Order(results).Methods {
		works := func(r registration.Result) bool { return r.Method == m && r.Refused == "" }
		if slices.ContainsFunc(results, works) {
			names = append(names, string(m))
		}
	}
	if len(names) == 0 {
		return "GPU memory is staged"
	}
	return "GPU memory is registered by " + strings.Join(names, ", else ")
}
