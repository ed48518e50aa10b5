// Nvmdma moves bytes between an NVMe drive and GPU memory, bypassing host memory. The
// GPU makes a pattern, which goes to the drive and back to another address; the GPU
// compares the two.
//
// Without -drive it adds a drive to the software machine, whose fabric counts the
// bytes in host memory. With -drive it overwrites the first blocks of a real one:
//
//	nvmdma -drive vfio:0000:01:00.0    # bound to vfio-pci; GPU memory through BAR1
//	nvmdma -drive libnvm:/dev/libnvm0  # bound to libnvm, which pins GPU memory
package main

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"strings"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/gpu/kernels"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/nvme"
	"github.com/culvert-io/culvert/nvme/libnvm"
	"github.com/culvert-io/culvert/nvme/vfio"
	"github.com/culvert-io/culvert/soft"
)

func main() {
	log.SetFlags(0)
	drive := flag.String("drive", "", "a real drive, vfio:PCI-ADDRESS or libnvm:/dev/libnvmN, whose first blocks are overwritten")
	size := flag.Uint64("size", 8<<20, "bytes to move, a multiple of 64 KiB")
	flag.Parse()
	m, err := machine.Open()
	if err == nil {
		err = run(context.Background(), os.Stdout, m, *drive, *size)
	}
	if err != nil {
		log.Fatal("nvmdma: ", err)
	}
}

func run(ctx context.Context, out io.Writer, m *machine.Machine, name string, size uint64) (err error) {
	dev, err := m.GPU.Open(0)
	if err != nil {
		return err
	}
	defer dev.Close()
	t, hostBytes, err := transport(m, dev, name, int64(size))
	if err != nil {
		return err
	}
	c, err := nvme.Open(t, nvme.Config{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	ns := c.Namespaces()[0]
	fmt.Fprintf(out, "drive %s, %d blocks of %d bytes; GPU %s\n", c.Name(), ns.Blocks(), ns.BlockSize(), dev.Info().Name)
	d := &demo{ctx: ctx, out: out, dev: dev, ns: ns, size: size, hostBytes: hostBytes}
	for _, p := range []**nvme.Buffer{&d.from, &d.to} {
		if *p, err = c.AllocGPU(dev, size); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, (*p).Close()) }()
	}
	return d.run()
}

// transport connects to the drive. hostBytes, if not nil, counts the bytes of its
// data that were in host memory.
func transport(m *machine.Machine, g gpu.Device, name string, size int64) (t nvme.Transport, hostBytes func() uint64, err error) {
	if path, ok := strings.CutPrefix(name, "libnvm:"); ok {
		t, err = libnvm.Open(m, path)
		return t, nil, err
	}
	if pci, ok := strings.CutPrefix(name, "vfio:"); ok {
		t, err = vfio.Open(pci, vfio.Config{View: vfio.BAR1(m, g)})
		return t, nil, err
	}
	s, ok := soft.Of(m.GPU)
	if name != "" || !ok {
		return nil, nil, fmt.Errorf("drive %q must be vfio:PCI-ADDRESS or libnvm:/dev/libnvmN; without one the software machine is needed (CULVERT_MACHINE=soft)", name)
	}
	if _, err := s.AddDrive(soft.Drive{Size: size}); err != nil {
		return nil, nil, err
	}
	return s.Transport(len(s.Drives()) - 1), s.HostBytes, nil
}

// A demo moves the pattern once and prints each step.
type demo struct {
	ctx      context.Context
	out      io.Writer
	dev      gpu.Device
	ns       *nvme.Namespace
	from, to *nvme.Buffer
	size     uint64
	// hostBytes counts the drive's data in host memory. It is nil where nothing counts.
	hostBytes func() uint64
}

func (d *demo) run() error {
	blocks := d.size / uint64(d.ns.BlockSize())
	a, b := d.from.Span().Addr(), d.to.Span().Addr()
	if err := d.launch("culvert_fill", a, d.size, uint64(0x0123456789abcdef)); err != nil {
		return err
	}
	if err := d.dev.Fill(b, 0, 1, d.size); err != nil {
		return err
	}
	before := uint64(0)
	if d.hostBytes != nil {
		before = d.hostBytes()
	}
	if err := d.ns.Write(d.ctx, d.from, 0, 0, blocks); err != nil {
		return err
	}
	if err := d.ns.Flush(d.ctx); err != nil {
		return err
	}
	fmt.Fprintf(d.out, "GPU -> drive  %d bytes at %v\n", d.size, a)
	if err := d.ns.Read(d.ctx, d.to, 0, 0, blocks); err != nil {
		return err
	}
	// From here on kernels see what the drive wrote.
	if err := d.dev.FlushWrites(gpu.ScopeOwner); err != nil {
		return err
	}
	fmt.Fprintf(d.out, "drive -> GPU  %d bytes at %v\n", d.size, b)
	differ, err := d.compare(a, b)
	if err != nil {
		return err
	}
	if differ > 0 {
		return fmt.Errorf("%d bytes differ", differ)
	}
	fmt.Fprintln(d.out, "the GPU compared them: equal")
	if d.hostBytes == nil {
		fmt.Fprintln(d.out, "host bytes 0 (inferred: the addresses are the GPU's)")
		return nil
	}
	n := d.hostBytes() - before
	fmt.Fprintf(d.out, "host bytes %d (counted by the fabric)\n", n)
	if n > 0 {
		return errors.New("bytes went through host memory")
	}
	return nil
}

// compare counts, on the GPU, the bytes that differ.
func (d *demo) compare(a, b gpu.Addr) (uint64, error) {
	word, err := d.dev.Alloc(gpu.KindDevice, 8, 0)
	if err != nil {
		return 0, err
	}
	defer d.dev.Free(word)
	if err := d.dev.Fill(word, 0, 1, 8); err != nil {
		return 0, err
	}
	if err := d.launch("culvert_compare", a, b, d.size, word); err != nil {
		return 0, err
	}
	var n [8]byte
	err = d.dev.CopyOut(n[:], word)
	return binary.LittleEndian.Uint64(n[:]), err
}

// launch runs a kernel and waits for it.
func (d *demo) launch(name string, args ...any) error {
	return kernels.Call(d.dev, name, gpu.Dim{X: 64}, gpu.Dim{X: 256}, args...)
}
