package ladder

import (
	"bufio"
	"io/fs"
	"path"
	"strings"

	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/route"
)

// This file looks for what the direct routes need, and says what is missing.

// noP2PDMA says why a GPU has no memory for O_DIRECT. For a real GPU nothing else is
// checked: driver options, BAR1 and kernel matter to NVIDIA's library alone, and
// changing them would not make this route available.
func noP2PDMA(os dev.OS) *route.Decline {
	if !dev.Simulated(os) {
		return decline(route.P2PDMA, "client", "mapping NVIDIA GPU memory as P2PDMA pages is not implemented "+
			"(NVIDIA's libcufile can, in programs that call it themselves: use_pci_p2pdma in cufile.json)", "")
	}
	const lack = "the memory of this software GPU is not that of a PCI device"
	peers, err := fs.Glob(os.FS(), "sys/bus/pci/devices/*/p2pmem/allocate")
	if err != nil || len(peers) == 0 {
		return decline(route.P2PDMA, "machine", lack+", and no device here has peer memory (/sys/bus/pci/devices/*/p2pmem)", "")
	}
	return decline(route.P2PDMA, "machine", lack, "set CULVERT_SOFT=peer="+path.Base(path.Dir(path.Dir(peers[0]))))
}

// onWSL declines a route under WSL, where Windows owns the GPU.
func onWSL(id route.ID, os dev.OS) *route.Decline {
	if !dev.WSL(os) {
		return nil
	}
	return decline(id, "GPU driver", "WSL exposes the GPU through /dev/dxg, without a Linux driver", "run Linux on the machine itself")
}

// hasSymbol looks for a kernel symbol by name; the addresses may be hidden.
func hasSymbol(root fs.FS, is func(string) bool) bool {
	f, err := root.Open("proc/kallsyms")
	if err != nil {
		return false
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		if fields := strings.Fields(sc.Text()); len(fields) >= 3 && is(fields[2]) {
			return true
		}
	}
	return false
}
