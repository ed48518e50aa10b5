package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/spf13/cobra"

	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/internal/sysfs"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/nvme/libnvm"
)

const nvmeDrives = `DRIVE is one of

  vfio:0000:01:00.0       a drive that is bound to vfio-pci (culvert nvme list)
  libnvm:/dev/libnvm0     a drive that is bound to the libnvm module
  soft:FILE               a software drive that stores its blocks in FILE; it
                          reaches the GPUs of the software machine

` + nvmeStatus

const nvmeStatus = `EXIT STATUS
  0  success
  1  an error; the message names the drive and the cause
  2  invalid command line`

const viaUsage = "DMA memory: host or gpu:N"

func newNVMe() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "nvme",
		Short: "Access NVMe drives from user space, with DMA to host or GPU memory",
		Long: `Access NVMe drives from user space, with DMA to host or GPU memory. Queues and
commands bypass the kernel's block layer.

` + nvmeDrives,
		Example: `  # on any machine, with a software drive
  truncate -s 64M disk.img
  echo "hello drive" > hello.txt
  culvert nvme identify soft:disk.img
  culvert nvme write soft:disk.img hello.txt --via gpu:0
  culvert nvme read soft:disk.img - --blocks 1 --via gpu:0
  culvert nvme bench soft:disk.img --via gpu:0`,
		Args: noCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newNVMeList(), newNVMeIdentify(), newNVMeMove("read"), newNVMeMove("write"), newNVMeBench())
	return cmd
}

func newNVMeList() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List NVMe controllers and their DRIVE arguments",
		Long:    "List the NVMe controllers among the PCI devices and the device nodes of libnvm,\nwith the DRIVE argument of the other commands.\n\n" + nvmeStatus,
		Example: "  culvert nvme list\n  culvert nvme list --json",
		Args:    args(cobra.NoArgs),
		RunE: run(func(_ context.Context, _ []string, out io.Writer) error {
			m, err := machine.Open()
			if err != nil {
				return err
			}
			return runNVMeList(m, asJSON, out)
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// A nvmeEntry is a controller.
type nvmeEntry struct {
	PCI    string `json:"pci,omitempty"`
	Driver string `json:"driver,omitempty"`
	Group  string `json:"iommu_group,omitempty"`
	Drive  string `json:"drive,omitempty"` // the DRIVE argument
	Note   string `json:"note,omitempty"`
}

func runNVMeList(m *machine.Machine, asJSON bool, out io.Writer) error {
	list, err := pciDrives(dev.Of(m).FS())
	if err != nil {
		return err
	}
	for _, p := range libnvm.Paths(m) {
		list = append(list, nvmeEntry{Driver: "libnvm", Drive: "libnvm:" + p})
	}
	if asJSON {
		return writeJSON(out, list)
	}
	if len(list) == 0 {
		_, err := fmt.Fprintln(out, "no NVMe controllers found; any file can be a software drive: truncate -s 64M disk.img; culvert nvme identify soft:disk.img")
		return err
	}
	w := human.Table(out)
	for _, e := range list {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", cmp.Or(e.PCI, "-"), cmp.Or(e.Driver, "-"), cmp.Or(e.Drive, "-"), e.Note)
	}
	return w.Flush()
}

// pciDrives lists the NVMe controllers among the PCI devices.
func pciDrives(sys fs.FS) ([]nvmeEntry, error) {
	const dir, class = "sys/bus/pci/devices", "0x010802"
	list := []nvmeEntry{}
	devices, err := fs.ReadDir(sys, dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, d := range devices {
		at := path.Join(dir, d.Name())
		if sysfs.Text(sys, path.Join(at, "class")) != class {
			continue
		}
		e := nvmeEntry{PCI: d.Name(), Driver: sysfs.Link(sys, path.Join(at, "driver")), Group: sysfs.Link(sys, path.Join(at, "iommu_group"))}
		switch {
		case e.Driver == "vfio-pci" && e.Group != "":
			e.Drive = "vfio:" + e.PCI
		case e.Driver == "libnvm helper":
			e.Note = "bound to the libnvm module: one of the libnvm: drives below"
		case e.Group == "":
			e.Note = "not in an IOMMU group (fix: turn the IOMMU on, which vfio needs)"
		case e.Driver == "":
			e.Note = fmt.Sprintf("not bound to a driver (fix: driverctl set-override %s vfio-pci)", e.PCI)
		default:
			e.Note = fmt.Sprintf("in use by the kernel (fix: driverctl set-override %s vfio-pci)", e.PCI)
		}
		list = append(list, e)
	}
	return list, nil
}

func newNVMeIdentify() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "identify DRIVE",
		Short:   "Print the Identify data of a controller",
		Long:    "Reset and enable a controller and print its Identify data.\n\n" + nvmeDrives,
		Example: "  culvert nvme identify vfio:0000:01:00.0\n  culvert nvme identify soft:disk.img --json",
		Args:    args(cobra.ExactArgs(1)),
		RunE: run(func(_ context.Context, a []string, out io.Writer) error {
			return onDrive(a[0], "", func(d *drive) error { return runNVMeIdentify(d, asJSON, out) })
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

type nvmeNamespace struct {
	ID        uint32 `json:"id"`
	Blocks    uint64 `json:"blocks"`
	BlockSize int    `json:"block_size"`
}

func runNVMeIdentify(d *drive, asJSON bool, out io.Writer) error {
	info := d.c.Info()
	spaces := []nvmeNamespace{}
	for _, n := range d.c.Namespaces() {
		spaces = append(spaces, nvmeNamespace{n.ID(), n.Blocks(), n.BlockSize()})
	}
	if asJSON {
		return writeJSON(out, map[string]any{"controller": info, "namespaces": spaces})
	}
	fmt.Fprintf(out, "%s  %s  serial %s  firmware %s  NVMe %s\n", info.Name, info.Model, info.Serial, info.Firmware, info.Version)
	fmt.Fprintf(out, "%d queue pairs of up to %d entries, %s per command, volatile write cache: %v\n",
		info.Queues, info.MaxEntries, human.Size(int64(info.MaxTransfer)), info.WriteCache)
	for _, n := range spaces {
		fmt.Fprintf(out, "namespace %d  %d blocks of %d bytes  %s\n", n.ID, n.Blocks, n.BlockSize, human.Size(int64(n.Blocks)*int64(n.BlockSize)))
	}
	return nil
}

type nvmeMoveOptions struct {
	lba, blocks uint64
	nsid        uint32
	via         string
	force       bool
	json        bool
}

// newNVMeMove returns the command read or write.
func newNVMeMove(op string) *cobra.Command {
	var o nvmeMoveOptions
	write := op == "write"
	cmd := &cobra.Command{
		Use:   "read DRIVE FILE",
		Short: "Read blocks of a drive into a file, through host or GPU memory",
		Long: `Read blocks into host or GPU memory by DMA and write them to FILE (- is standard
output). Print a receipt to standard error, with --json to standard output unless
the blocks go there.

` + nvmeDrives,
		Example: `  culvert nvme read soft:disk.img - --lba 0 --blocks 8
  culvert nvme read vfio:0000:01:00.0 part.bin --lba 2048 --blocks 4096 --via gpu:0`,
		Args: args(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, a []string) error {
			if o.blocks == 0 && !write {
				return usageError{errors.New("missing --blocks, the number of blocks to read")}
			}
			if write && !o.force && !strings.HasPrefix(a[0], "soft:") {
				return usageError{fmt.Errorf("write overwrites %s: use --force to confirm", a[0])}
			}
			if disk, ok := strings.CutPrefix(a[0], "soft:"); ok && samePath(disk, a[1]) {
				return usageError{fmt.Errorf("%s is the drive itself (fix: name another file)", a[1])}
			}
			return onDrive(a[0], o.via, func(d *drive) error {
				return runNVMeMove(cmd.Context(), d, o, write, a[1], cmd.OutOrStdout(), cmd.ErrOrStderr())
			})
		},
	}
	f := cmd.Flags()
	f.Uint64Var(&o.lba, "lba", 0, "first block")
	f.Uint32Var(&o.nsid, "nsid", 1, "namespace")
	f.StringVar(&o.via, "via", "host", viaUsage)
	f.BoolVar(&o.json, "json", false, "print the receipt as JSON")
	if !write {
		f.Uint64Var(&o.blocks, "blocks", 0, "number of blocks")
		return cmd
	}
	cmd.Use, cmd.Short = "write DRIVE FILE", "Write a file to blocks of a drive"
	cmd.Long = `Copy FILE to host or GPU memory, write it from there to blocks by DMA, and flush.
The last block is padded with zeros. Print a receipt to standard error, with
--json to standard output.

` + nvmeDrives
	cmd.Example = `  culvert nvme write soft:disk.img part.bin --lba 2048
  culvert nvme write vfio:0000:01:00.0 part.bin --via gpu:0 --force`
	f.BoolVar(&o.force, "force", false, "write to a real drive")
	return cmd
}

func runNVMeMove(ctx context.Context, d *drive, o nvmeMoveOptions, write bool, name string, out, errs io.Writer) error {
	if write && d.readOnly != nil {
		return d.readOnly
	}
	ns, err := d.namespace(o.nsid)
	if err != nil {
		return err
	}
	var data []byte
	if write {
		if data, err = os.ReadFile(name); err != nil {
			return err
		}
		if len(data) == 0 {
			return usageError{fmt.Errorf("%s is empty", name)}
		}
		bs := uint64(ns.BlockSize())
		o.blocks = (uint64(len(data)) + bs - 1) / bs
		data = append(data, make([]byte, o.blocks*bs-uint64(len(data)))...)
	}
	r, data, err := d.move(ctx, ns, o.lba, o.blocks, write, data)
	if err != nil {
		return err
	}
	switch {
	case write:
	case name == "-":
		_, err = out.Write(data)
		out = errs // for the receipt
	default:
		err = os.WriteFile(name, data, 0o644)
	}
	if err != nil {
		return err
	}
	if !o.json {
		out = errs
	}
	return show(out, o.json, r)
}
