package route

import (
	"bufio"
	"io/fs"
	"path"
	"strings"

	"github.com/culvert-io/culvert/internal/dev"
)

// This file looks for what the direct routes stand on, and says what is missing.

// noP2PDMA says why a GPU has no memory for O_DIRECT. For a real one nothing else is
// looked at: the driver's options, BAR1 and the kernel matter to NVIDIA's library
// alone, and whoever mended them would end up here again.
func noP2PDMA(os dev.OS) *Decline {
	if !dev.Simulated(os) {
		return &Decline{
			P2PDMA, "client", "this version of Culvert cannot map the memory of an NVIDIA GPU as peer pages, whatever the machine has " +
				"(NVIDIA's libcufile can, in programs that call it themselves: use_pci_p2pdma in cufile.json)", "",
		}
	}
	const lack = "the memory of this software GPU is not that of a PCI device"
	peers, err := fs.Glob(os.FS(), "sys/bus/pci/devices/*/p2pmem/allocate")
	if err != nil || len(peers) == 0 {
		return &Decline{P2PDMA, "machine", lack + ", and no device here has peer memory (/sys/bus/pci/devices/*/p2pmem)", ""}
	}
	return &Decline{P2PDMA, "machine", lack, "set CULVERT_SOFT=peer=" + path.Base(path.Dir(path.Dir(peers[0])))}
}

// onWSL is the answer where Windows keeps the GPU to itself.
func onWSL(id ID, os dev.OS) *Decline {
	if !dev.WSL(os) {
		return nil
	}
	return &Decline{id, "GPU driver", "WSL reaches the GPU through /dev/dxg: there is no Linux driver of it", "run Linux on the machine itself"}
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
