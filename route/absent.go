package route

import (
	"bufio"
	"bytes"
	"fmt"
	"io/fs"
	"strings"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev"
)

// This file looks for what the direct routes stand on, and says what is missing.

// lookP2PDMA goes through what O_DIRECT on GPU memory needs. The kernel's symbols
// come last: reading them takes tens of milliseconds.
func lookP2PDMA(os dev.OS, info gpu.Info) *Decline {
	if dev.Simulated(os) {
		return &Decline{P2PDMA, "machine", "the memory of this software GPU is not that of a PCI device", "CULVERT_SOFT=peer=ADDRESS makes one of a device with peer memory"}
	}
	const file = "proc/driver/nvidia/params"
	params, err := fs.ReadFile(os.FS(), file)
	if err != nil {
		if d := onWSL(P2PDMA, os.FS()); d != nil {
			return d
		}
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
	if size := bar1(os.FS(), info.PCI); size > 0 && size < info.Memory {
		return &Decline{
			P2PDMA, "BAR1", fmt.Sprintf("BAR1 of %s shows %s of the GPU's %s: no drive reaches the rest", info.PCI, Size(int64(size)), Size(int64(info.Memory))),
			"turn Resizable BAR on in the firmware",
		}
	}
	if !hasSymbol(os.FS(), func(s string) bool { return s == "p2pdma_pgmap_ops" }) {
		return &Decline{P2PDMA, "kernel", "no symbol p2pdma_pgmap_ops in /proc/kallsyms", "use a kernel with CONFIG_PCI_P2PDMA (6.2 or later)"}
	}
	return &Decline{P2PDMA, "client", "this version of Culvert does not map GPU memory as peer pages", "NVIDIA's libcufile does, with use_pci_p2pdma"}
}

// onWSL is the answer where Windows keeps the GPU to itself.
func onWSL(id ID, root fs.FS) *Decline {
	if _, err := fs.Stat(root, "dev/dxg"); err != nil {
		return nil
	}
	return &Decline{id, "GPU driver", "WSL reaches the GPU through /dev/dxg: there is no Linux driver of it", "run Linux on the machine itself"}
}

// bar1 is the size of the window through which a GPU shows its memory; 0 where
// it cannot be told.
func bar1(root fs.FS, pci string) uint64 {
	text, err := fs.ReadFile(root, "sys/bus/pci/devices/"+pci+"/resource")
	if err != nil {
		return 0
	}
	lines := strings.Split(string(text), "\n")
	var start, end uint64
	if len(lines) < 2 {
		return 0
	}
	if n, err := fmt.Sscanf(lines[1], "0x%x 0x%x", &start, &end); n != 2 || err != nil || end <= start {
		return 0
	}
	return end - start + 1
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
