package route

import (
	"bufio"
	"bytes"
	"io/fs"
	"strings"

	"github.com/culvert-io/culvert/internal/dev"
)

// This file looks for what the direct routes stand on, and says what is missing.

// lookP2PDMA goes through what O_DIRECT on GPU memory needs. The kernel's symbols
// come last: reading them takes tens of milliseconds.
func lookP2PDMA(os dev.OS) *Decline {
	const file = "proc/driver/nvidia/params"
	params, err := fs.ReadFile(os.FS(), file)
	if err != nil {
		return &Decline{P2PDMA, "GPU driver", "no /" + file, "load NVIDIA's open kernel modules"}
	}
	for _, want := range []string{"RMForceStaticBar1=1", "RmForceDisableIomapWC=1"} {
		if !bytes.Contains(params, []byte(want)) {
			return &Decline{
				P2PDMA, "GPU driver option", want + " is not set in /" + file,
				`options nvidia NVreg_RegistryDwords="RMForceStaticBar1=1;RmForceDisableIomapWC=1;"`,
			}
		}
	}
	if !hasSymbol(os.FS(), "p2pdma_pgmap_ops") {
		return &Decline{P2PDMA, "kernel", "no symbol p2pdma_pgmap_ops in /proc/kallsyms", "use a kernel with CONFIG_PCI_P2PDMA (6.2 or later)"}
	}
	return &Decline{P2PDMA, "client", "this version of Culvert does not map GPU memory as peer pages", "NVIDIA's libcufile does, with use_pci_p2pdma"}
}

// hasSymbol looks a kernel symbol up by name; the addresses may be hidden.
func hasSymbol(root fs.FS, name string) bool {
	f, err := root.Open("proc/kallsyms")
	if err != nil {
		return false
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		if fields := strings.Fields(sc.Text()); len(fields) >= 3 && fields[2] == name {
			return true
		}
	}
	return false
}
