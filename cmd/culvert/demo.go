package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/gpu/kernels"
	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/route"
)

func newDemo() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show the data path: a file into GPU memory, kernels on it, and back",
		Long: `Read a small file into GPU memory, reverse its text and sum its bytes there with
kernels, write it back, and check every step against the CPU. Then copy a larger
file through GPU memory over the best route for whole blocks. Without a GPU, demo
runs on the software machine.

EXIT STATUS
  0  all results match the CPU
  1  a result differs, or an error
  2  invalid command line`,
		Example: "  culvert demo\n  CULVERT_MACHINE=soft culvert demo\n  culvert demo --json",
		Args:    args(cobra.NoArgs),
		RunE:    run(func(ctx context.Context, _ []string, out io.Writer) error { return runDemo(ctx, out, asJSON) }),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the receipts as JSON once all results are verified")
	return cmd
}

const (
	demoText = "Hello, GPUDirect World!"
	demoBulk = 1 << 20 // size of the larger file: whole blocks
)

// A demoReport is printed as JSON if every step succeeded.
type demoReport struct {
	GPU       string         `json:"gpu"`
	Soft      bool           `json:"soft"`
	Why       string         `json:"why,omitempty"` // this machine was opened
	Transfers []demoTransfer `json:"transfers"`
}

type demoTransfer struct {
	File    string         `json:"file"`
	Receipt *route.Receipt `json:"receipt"`
}

// A demo runs the steps. Each step prints what it did.
type demo struct {
	ctx    context.Context
	out    io.Writer
	dir    string // of the files
	drv    *cufile.Driver
	dev    gpu.Device
	mem    gpu.Span // demoBulk bytes, registered
	word   gpu.Addr // result of a kernel
	report demoReport
}

func runDemo(ctx context.Context, out io.Writer, asJSON bool) (err error) {
	m, drv, err := openDriver()
	if err != nil {
		return err
	}
	defer drv.Close()
	d := &demo{ctx: ctx, out: out, drv: drv, report: demoReport{Soft: m.Soft, Why: m.Why}}
	if asJSON {
		d.out = io.Discard
	}
	if d.dir, err = os.MkdirTemp("", "culvert-demo-"); err != nil {
		return fmt.Errorf("create a directory for the demo's files: %w (fix: %s)", err, setTMPDIR)
	}
	defer os.RemoveAll(d.dir)
	if err := d.allocate(); err != nil {
		return err
	}
	info := d.dev.Info()
	d.report.GPU = info.Name
	fmt.Fprintf(d.out, "gpu:0 is %s, %s of memory, through %s\n", info.Name, human.Size(int64(info.Memory)), m.GPU.Name())
	if m.Soft {
		fmt.Fprintf(d.out, "this is the software machine, because: %s\n", m.Why)
	}
	if err := d.reverseText(); err != nil {
		return err
	}
	if err := d.copyBulk(); err != nil || !asJSON {
		return err
	}
	return writeJSON(out, &d.report)
}

func (d *demo) allocate() (err error) {
	if d.dev, err = d.drv.Device(0); err != nil {
		return err
	}
	const size = demoBulk + 4096 // and room for the word
	base, err := d.dev.Alloc(gpu.KindDevice, size, 0)
	if err != nil {
		return err
	}
	if err := d.dev.Fill(base, 0, 1, size); err != nil {
		return err
	}
	buf, err := d.drv.RegisterBuffer(base, size)
	if err != nil {
		return err
	}
	d.mem, d.word = buf.Span().Slice(0, demoBulk), base+demoBulk
	return nil
}

// reverseText reverses the text of a small file on the GPU.
func (d *demo) reverseText() error {
	fmt.Fprintf(d.out, "hello.txt holds %q\n\n", demoText)
	want := []byte(demoText)
	if err := d.read("hello.txt", want); err != nil {
		return err
	}
	n, err := d.launch("culvert_strrev", d.mem.Addr(), d.word) // the text ends with a NUL
	if err != nil {
		return err
	}
	fmt.Fprintf(d.out, "gpu  reversed a text of %d bytes\n", uint32(n))
	slices.Reverse(want)
	if err := d.write("hello.txt", want); err != nil {
		return err
	}
	fmt.Fprintf(d.out, "\nhello.txt holds %q\n\n", want)
	return nil
}

// copyBulk copies a larger file through GPU memory.
func (d *demo) copyBulk() error {
	data := make([]byte, demoBulk)
	for i := range data {
		data[i] = byte(i ^ i>>8)
	}
	if err := d.read("large.bin", data); err != nil {
		return err
	}
	if err := d.write("copy.bin", data); err != nil {
		return err
	}
	fmt.Fprintln(d.out, "\ncopy.bin holds the data of large.bin\nverified")
	return nil
}

// read makes a file, reads it into GPU memory, and compares sums with the CPU.
func (d *demo) read(name string, data []byte) error {
	if err := os.WriteFile(filepath.Join(d.dir, name), data, 0o644); err != nil {
		return err
	}
	if err := d.transfer(route.Read, name, len(data)); err != nil {
		return err
	}
	if err := d.dev.Fill(d.word, 0, 4, 2); err != nil { // the kernel adds to it
		return err
	}
	got, err := d.launch("culvert_sum", d.mem.Addr(), uint64(len(data)), d.word)
	if err != nil {
		return err
	}
	want := uint64(0)
	for _, b := range data {
		want += uint64(b)
	}
	if got != want {
		return fmt.Errorf("sum of the bytes of %s: %d on the GPU, %d on the CPU", name, got, want)
	}
	fmt.Fprintf(d.out, "gpu  sum of the bytes = %d, as on the CPU\n", got)
	return nil
}

// write writes GPU memory to a file, which must then hold want.
func (d *demo) write(name string, want []byte) error {
	if err := d.transfer(route.Write, name, len(want)); err != nil {
		return err
	}
	got, err := os.ReadFile(filepath.Join(d.dir, name))
	if err == nil && !bytes.Equal(got, want) {
		err = fmt.Errorf("%s does not hold the data of the GPU", name)
	}
	return err
}

// transfer moves n bytes and prints their path and the receipt.
func (d *demo) transfer(dir route.Dir, name string, n int) error {
	f, err := os.OpenFile(filepath.Join(d.dir, name), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	file, err := d.drv.Register(f)
	if err != nil {
		return err
	}
	defer file.Close()
	label, move := "in ", file.ReadAt
	if dir == route.Write {
		label, move = "out", file.WriteAt
	}
	r, err := move(d.ctx, d.mem.Slice(0, uint64(n)), 0)
	if err != nil {
		return err
	}
	fmt.Fprintf(d.out, "%s  %s     %s\n", label, r.Diagram(name, "gpu:0"), r.Sentence())
	d.report.Transfers = append(d.report.Transfers, demoTransfer{name, &r})
	return nil
}

// launch runs a kernel whose last argument is the address of its result.
func (d *demo) launch(name string, args ...any) (uint64, error) {
	if err := kernels.Call(d.dev, name, gpu.Dim{}, gpu.Dim{}, args...); err != nil {
		return 0, err
	}
	var word [8]byte
	err := d.dev.CopyOut(word[:], d.word)
	return binary.LittleEndian.Uint64(word[:]), err
}
