package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/nvme"
	"github.com/culvert-io/culvert/nvme/libnvm"
	"github.com/culvert-io/culvert/nvme/vfio"
	"github.com/culvert-io/culvert/route"
	"github.com/culvert-io/culvert/soft"
)

// A drive is an open controller and its DMA memory.
type drive struct {
	name string
	via  string // "host" or "gpu:0"
	m    *machine.Machine
	dev  gpu.Device // nil for host memory
	c    *nvme.Controller
	soft *soft.Machine // of a software drive
	ends []func() error
	// readOnly is the error of opening the file of a software drive for writing.
	readOnly error
}

// onDrive opens the drive of a DRIVE argument, uses it and closes it. via is empty if
// no memory is needed.
func onDrive(name, via string, use func(*drive) error) error {
	d := &drive{name: name, via: via}
	err := d.open()
	if err == nil {
		return d.use(func() error { return use(d) })
	}
	return errors.Join(err, d.close())
}

// use opens the controller, uses it and closes the drive.
func (d *drive) use(use func() error) error {
	t, err := d.transport()
	if err == nil {
		if d.c, err = nvme.Open(t, nvme.Config{}); err == nil {
			d.ends = append(d.ends, d.c.Close)
			err = use()
		}
	}
	return errors.Join(err, d.close())
}

func (d *drive) close() (err error) {
	for _, end := range slices.Backward(d.ends) {
		err = errors.Join(err, end())
	}
	return err
}

// open opens the machine and the GPU.
func (d *drive) open() (err error) {
	if d.m, err = machine.Open(); err != nil {
		return err
	}
	d.ends = append(d.ends, d.m.Close)
	if d.via != "" && d.via != "host" {
		n, err := parseGPU(d.via)
		if err != nil {
			return usageError{fmt.Errorf("--via %s: want host or a GPU, gpu:N", d.via)}
		}
		if err := checkGPUs(d.m, n); err != nil {
			return err
		}
		if d.dev, err = d.m.GPU.Open(n); err != nil {
			return err
		}
		d.ends = append(d.ends, d.dev.Close)
	}
	return nil
}

func (d *drive) transport() (nvme.Transport, error) {
	kind, rest, _ := strings.Cut(d.name, ":")
	if rest == "" {
		kind = ""
	}
	switch kind {
	case "vfio":
		return vfio.Open(rest, vfio.Config{View: vfio.BAR1(d.m, d.dev)})
	case "libnvm":
		return libnvm.Open(d.m, rest)
	case "soft":
		return d.software(rest)
	}
	return nil, usageError{fmt.Errorf("invalid drive %q (want vfio:..., libnvm:... or soft:FILE)", d.name)}
}

// software opens a file as a drive.
func (d *drive) software(name string) (nvme.Transport, error) {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if errors.Is(err, os.ErrPermission) {
		d.readOnly = err
		f, err = os.Open(name)
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w (fix: truncate -s 64M %s)", err, name)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close() // the drive has its own descriptor
	m, ok := soft.Of(d.m.GPU)
	if !ok {
		if d.dev != nil {
			return nil, usageError{errors.New("a software drive cannot reach a real GPU (fix: set CULVERT_MACHINE=soft)")}
		}
		if m, err = soft.New(soft.Config{}); err != nil {
			return nil, err
		}
		d.ends = append(d.ends, m.Close)
	}
	if _, err := m.AddDrive(soft.Drive{File: f}); err != nil {
		return nil, err
	}
	d.soft = m
	return m.Transport(len(m.Drives()) - 1), nil
}

func (d *drive) namespace(id uint32) (*nvme.Namespace, error) {
	for _, n := range d.c.Namespaces() {
		if n.ID() == id {
			return n, nil
		}
	}
	return nil, fmt.Errorf("%s has no namespace %d (culvert nvme identify lists them)", d.name, id)
}

// buffer allocates memory as --via says.
func (d *drive) buffer(n uint64) (*nvme.Buffer, error) {
	if d.dev != nil {
		return d.c.AllocGPU(d.dev, n)
	}
	return d.c.AllocHost(int(n))
}

// A nvmeReceipt is the record of one transfer.
type nvmeReceipt struct {
	From    string          `json:"from"`
	To      string          `json:"to"`
	Bytes   uint64          `json:"bytes"`
	Host    route.ByteCount `json:"host_bytes"`
	Seconds float64         `json:"seconds"`
}

func (r nvmeReceipt) String() string {
	return fmt.Sprintf("%s -> %s  %s  host_bytes=%s  %s", r.From, r.To, human.Size(int64(r.Bytes)), count(r.Host), human.Rate(float64(r.Bytes)/r.Seconds))
}

// move transfers blocks through a buffer: from data, or to the data it returns.
func (d *drive) move(ctx context.Context, ns *nvme.Namespace, lba, blocks uint64, write bool, data []byte) (nvmeReceipt, []byte, error) {
	r := nvmeReceipt{From: d.name, To: d.via, Bytes: blocks * uint64(ns.BlockSize())}
	if write {
		r.From, r.To = r.To, r.From
	}
	const limit = 1 << 30 // the whole transfer is in memory
	if r.Bytes == 0 || blocks > limit/uint64(ns.BlockSize()) {
		return r, nil, usageError{fmt.Errorf("%d blocks of %d bytes: want at least one block, at most %s", blocks, ns.BlockSize(), human.Size(limit))}
	}
	buf, err := d.buffer(r.Bytes)
	if err != nil {
		return r, nil, err
	}
	if write {
		if err := d.fill(buf, data); err != nil {
			return r, nil, err
		}
	}
	before := d.hostBytes()
	start := time.Now()
	if write {
		err = ns.Write(ctx, buf, 0, lba, blocks)
	} else {
		err = ns.Read(ctx, buf, 0, lba, blocks)
	}
	if err != nil {
		return r, nil, err
	}
	r.Seconds = time.Since(start).Seconds()
	r.Host = d.through(r.Bytes, before)
	if write {
		return r, nil, errors.Join(ns.Flush(ctx), buf.Close())
	}
	data, err = d.fetch(buf, r.Bytes)
	return r, data, errors.Join(err, buf.Close())
}

func (d *drive) fill(buf *nvme.Buffer, data []byte) error {
	if d.dev != nil {
		return d.dev.CopyIn(buf.Span().Addr(), data)
	}
	copy(buf.Bytes(), data)
	return nil
}

func (d *drive) fetch(buf *nvme.Buffer, n uint64) ([]byte, error) {
	data := make([]byte, n)
	if d.dev == nil {
		copy(data, buf.Bytes())
		return data, nil
	}
	if err := d.dev.FlushWrites(gpu.ScopeOwner); err != nil {
		return nil, err
	}
	return data, d.dev.CopyOut(data, buf.Span().Addr())
}

// hostBytes returns how many bytes of a software drive's data have been in host
// memory.
func (d *drive) hostBytes() uint64 {
	if d.soft == nil {
		return 0
	}
	return d.soft.HostBytes()
}

// through returns how many bytes of a transfer went through host memory.
func (d *drive) through(n, before uint64) route.ByteCount {
	switch {
	case d.soft != nil:
		return route.ByteCount{Bytes: int64(d.hostBytes() - before), Evidence: route.Counted}
	case d.dev != nil:
		return route.ByteCount{Evidence: route.Inferred}
	}
	return route.ByteCount{Bytes: int64(n), Evidence: route.Inferred}
}

// count prints a number as receipts do.
func count(f route.ByteCount) string { return fmt.Sprintf("%d(%s)", f.Bytes, f.Evidence) }
