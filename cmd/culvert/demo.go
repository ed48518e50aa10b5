package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/gpu/kernels"
	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/route"
)

func newDemo() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show the whole path: a file into GPU memory, work there, and back",
		Long: `demo makes a small file, brings it into GPU memory, reverses its text and sums its
bytes there with a kernel, writes it back, and checks every step against the CPU.
Then it copies a larger file through GPU memory, which takes the best route for
whole blocks. It needs no GPU: without one it runs on the software machine.

EXIT STATUS
  0  every step did what the CPU says it should
  1  one did not, or an error
  2  the command line is wrong`,
		Example: "  culvert demo\n  CULVERT_MACHINE=soft culvert demo\n  culvert demo --json",
		Args:    args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runDemo(cmd.Context(), cmd.OutOrStdout(), asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the receipts as JSON, once all is verified")
	return cmd
}

const demoText = "Hello, GPUDirect World!"

// A demoReport is what the demo has done. There is none if a step failed.
type demoReport struct {
	GPU       string         `json:"gpu"`
	Soft      bool           `json:"soft"`
	Why       string         `json:"why,omitempty"` // it is the software machine
	Transfers []demoTransfer `json:"transfers"`
}

type demoTransfer struct {
	File    string         `json:"file"`
	Receipt *route.Receipt `json:"receipt"`
}

func runDemo(ctx context.Context, out io.Writer, asJSON bool) error {
	m, drv, err := openDriver()
	if err != nil {
		return err
	}
	defer drv.Close()
	dir, err := os.MkdirTemp("", "culvert-demo-")
	if err != nil {
		return fmt.Errorf("the demo needs a directory for its file: %w (TMPDIR names one that can be written to)", err)
	}
	defer os.RemoveAll(dir)
	d := &demo{ctx: ctx, out: out, m: m, drv: drv, path: filepath.Join(dir, "hello.txt")}
	if !asJSON {
		return d.run()
	}
	d.out = io.Discard
	if err := d.run(); err != nil {
		return err
	}
	return writeJSON(out, &d.report)
}

// A demo walks the path once. Each step says what it did.
type demo struct {
	ctx  context.Context
	out  io.Writer
	m    *machine.Machine
	drv  *cufile.Driver
	path string

	dev  gpu.Device
	file *cufile.File
	text gpu.Span // the file's bytes and room for the NUL that strrev wants
	word gpu.Addr // where kernels leave numbers

	report demoReport
}

func (d *demo) run() (err error) {
	if err := d.setUp(); err != nil {
		return err
	}
	defer d.file.Close()
	mem := d.text.Slice(0, uint64(len(demoText)))
	in, err := d.file.ReadAt(d.ctx, mem, 0)
	if err != nil {
		return err
	}
	d.moved("hello.txt", &in)
	if err := d.work(); err != nil {
		return err
	}
	back, err := d.file.WriteAt(d.ctx, mem, 0)
	if err != nil {
		return err
	}
	d.moved("hello.txt", &back)
	if err := d.verify(); err != nil {
		return err
	}
	return d.bulk()
}

// moved shows a transfer.
func (d *demo) moved(file string, r *route.Receipt) {
	label := "in "
	if r.Dir == route.Write {
		label = "out"
	}
	d.say(label, r.Diagram(file, "gpu:0"))
	d.say("   ", r.String()+"\n")
	d.report.Transfers = append(d.report.Transfers, demoTransfer{file, r})
}

func (d *demo) say(label, text string) { fmt.Fprintf(d.out, "%s  %s", label, text) }

func (d *demo) setUp() (err error) {
	if err := os.WriteFile(d.path, []byte(demoText), 0o644); err != nil {
		return err
	}
	if d.dev, err = d.drv.Device(0); err != nil {
		return err
	}
	info := d.dev.Info()
	d.report.GPU, d.report.Soft, d.report.Why = info.Name, d.m.Soft, d.m.Why
	fmt.Fprintf(d.out, "gpu:0 is %s, %s of memory, through %s\n", info.Name, human.Size(int64(info.Memory)), d.m.GPU.Name())
	if d.m.Soft {
		fmt.Fprintf(d.out, "this is the software machine, because: %s\n", d.m.Why)
	}
	fmt.Fprintf(d.out, "hello.txt holds %q\n\n", demoText)
	f, err := os.OpenFile(d.path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close() // the handle has its own descriptor
	if d.file, err = d.drv.Register(f); err != nil {
		return err
	}
	const room = 64 << 10
	base, err := d.dev.Alloc(gpu.KindDevice, room, 0)
	if err != nil {
		return err
	}
	if err := d.dev.Fill(base, 0, 1, room); err != nil {
		return err
	}
	buf, err := d.drv.RegisterBuffer(base, room)
	if err != nil {
		return err
	}
	d.text, d.word = buf.Span(), base+room/2
	return nil
}

// work sums the bytes and reverses the text on the GPU.
func (d *demo) work() error {
	mod, err := d.dev.Load(kernels.PTX)
	if err != nil {
		return err
	}
	defer mod.Close()
	if err := d.sum(mod, d.text.Addr(), []byte(demoText)); err != nil {
		return err
	}
	n, err := d.launch(mod, "culvert_strrev", d.text.Addr(), d.word+8)
	if err != nil {
		return err
	}
	d.say("gpu", fmt.Sprintf("reversed a text of %d bytes\n", uint32(n)))
	return nil
}

// sum has the GPU sum bytes that the CPU knows.
func (d *demo) sum(mod gpu.Module, at gpu.Addr, data []byte) error {
	if err := d.dev.Fill(d.word, 0, 4, 2); err != nil { // the kernel adds to what is there
		return err
	}
	total, err := d.launch(mod, "culvert_sum", at, uint64(len(data)), d.word)
	if err != nil {
		return err
	}
	want := uint64(0)
	for _, b := range data {
		want += uint64(b)
	}
	if total != want {
		return fmt.Errorf("the GPU summed the bytes to %d, the CPU to %d", total, want)
	}
	d.say("gpu", fmt.Sprintf("sum of the bytes = %d, as on the CPU\n", total))
	return nil
}

// launch runs a kernel whose last argument is the address of its result.
func (d *demo) launch(mod gpu.Module, name string, args ...any) (uint64, error) {
	fn, err := mod.Func(name)
	if err != nil {
		return 0, err
	}
	s, err := d.dev.NewStream()
	if err != nil {
		return 0, err
	}
	defer s.Close()
	if err := s.Launch(fn, gpu.Dim{}, gpu.Dim{}, args...); err != nil {
		return 0, err
	}
	if err := s.Synchronize(); err != nil {
		return 0, err
	}
	var word [8]byte
	err = d.dev.CopyOut(word[:], args[len(args)-1].(gpu.Addr))
	return binary.LittleEndian.Uint64(word[:]), err
}

func (d *demo) verify() error {
	got, err := os.ReadFile(d.path)
	if err != nil {
		return err
	}
	want := []byte(demoText)
	for i, j := 0, len(want)-1; i < j; i, j = i+1, j-1 {
		want[i], want[j] = want[j], want[i]
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("hello.txt holds %q, want %q", got, want)
	}
	fmt.Fprintf(d.out, "\nhello.txt holds %q\n", got)
	return nil
}
