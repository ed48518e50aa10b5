// Gen compiles kernels.cu to kernels.ptx with NVRTC, NVIDIA's run-time compiler,
// which needs neither a GPU nor the CUDA toolkit: the Python wheel
// nvidia-cuda-nvrtc-cu12 has the library. Use an old one (12.0): older drivers
// cannot read the PTX of newer compilers. Run it with go generate in package
// kernels.
package main

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"os"

	"github.com/culvert-io/culvert/internal/ptx"
)

func main() {
	lib := flag.String("nvrtc", cmp.Or(os.Getenv("CULVERT_NVRTC"), "libnvrtc.so.12"), "path of libnvrtc.so (also CULVERT_NVRTC)")
	in := flag.String("in", "kernels.cu", "CUDA C source")
	out := flag.String("out", "kernels.ptx", "PTX to write")
	arch := flag.String("arch", "compute_70", "virtual architecture of the oldest supported GPU")
	flag.Parse()
	if err := run(*lib, *in, *out, *arch); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func run(lib, in, out, arch string) error {
	src, err := os.ReadFile(in)
	if err != nil {
		return err
	}
	c, err := openCompiler(lib)
	if err != nil {
		return err
	}
	text, err := c.compile(in, src, "--gpu-architecture="+arch)
	if err != nil {
		return err
	}
	text = dropTargets(text)
	entries, err := ptx.Parse(text)
	if err != nil {
		return err
	}
	if err := os.WriteFile(out, text, 0o644); err != nil {
		return err
	}
	fmt.Printf("%s: %d kernels, %d bytes, by NVRTC %s\n", out, len(entries), len(text), c.version)
	return nil
}

// dropTargets removes the unused constants of NVRTC's built-in header nv/target.
func dropTargets(ptx []byte) []byte {
	var kept [][]byte
	for line := range bytes.Lines(ptx) {
		if !bytes.Contains(line, []byte("2nv6target")) {
			kept = append(kept, line)
		}
	}
	return bytes.Join(kept, nil)
}
