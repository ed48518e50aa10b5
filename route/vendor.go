package route

import (
	"context"
	"io/fs"
	"strings"
	"sync"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/internal/vendor"
)

// A VendorRoute hands requests to NVIDIA's libcufile. It stands on top of the
// ladder where that library would be direct; where it would only stage through
// host memory our own ring is faster, so the rung is declined.
type VendorRoute struct {
	dev gpu.Device
	lib *vendor.Library

	mu      sync.Mutex
	handles map[*storage.File]*vendor.Handle
}

// NewVendor returns the route through an opened library.
func NewVendor(device gpu.Device, lib *vendor.Library) *VendorRoute {
	return &VendorRoute{dev: device, lib: lib, handles: map[*storage.File]*vendor.Handle{}}
}

// findVendor decides whether the rung exists on this machine.
func findVendor(device gpu.Device, os dev.OS) (Route, *Decline) {
	decline := func(test, evidence, fix string) (Route, *Decline) {
		return nil, &Decline{Vendor, test, evidence, fix}
	}
	if dev.Simulated(os) {
		return decline("machine", "NVIDIA's libcufile does not know the software machine", "")
	}
	if why := notDirect(os); why != nil {
		return nil, why
	}
	path, err := vendor.Find()
	if err != nil {
		return decline("library", err.Error(), "install NVIDIA's libcufile")
	}
	unbind, err := device.Bind()
	if err != nil {
		return decline("context", err.Error(), "")
	}
	defer unbind()
	lib, err := vendor.Open(path)
	if err != nil {
		return decline("library", err.Error(), "")
	}
	return NewVendor(device, lib), nil
}

// notDirect says why NVIDIA's library would stage through host memory here.
func notDirect(os dev.OS) *Decline {
	root := os.FS()
	const modules = "proc/driver/nvidia-fs/modules"
	text, err := fs.ReadFile(root, modules)
	if err != nil {
		if d := onWSL(Vendor, os); d != nil {
			return d
		}
		return &Decline{
			Vendor, "direct", "NVIDIA's libcufile would stage through host memory: nvidia-fs is not loaded (no /" + modules + ")",
			"install nvidia-fs and run: modprobe nvidia-fs",
		}
	}
	if _, err := fs.Stat(root, "dev/nvidia-fs0"); err != nil {
		return &Decline{
			Vendor, "direct", "NVIDIA's libcufile would stage through host memory: nvidia-fs is loaded, but there is no /dev/nvidia-fs0",
			"hand the node to the container: --device /dev/nvidia-fs0",
		}
	}
	// Drivers register with nvidia-fs when somebody opens its node, by a function
	// that it looks up among the kernel's symbols.
	hook := func(symbol string) bool { return strings.HasSuffix(symbol, "_register_nvfs_dma_ops") }
	if !strings.Contains(string(text), "nvme") && !hasSymbol(root, hook) {
		return &Decline{
			Vendor, "direct", "NVIDIA's libcufile would stage through host memory: nvidia-fs knows no storage driver (/" + modules + ")",
			"load a storage driver that registers with nvidia-fs (NVIDIA's DOCA or MLNX_OFED)",
		}
	}
	return nil
}

// ID is Vendor.
func (v *VendorRoute) ID() ID { return Vendor }

// Probe registers the file with the library.
func (v *VendorRoute) Probe(f *storage.File) Verdict {
	if f.Direct() < 0 {
		return &Decline{Vendor, "O_DIRECT", f.Name + " on " + f.Facts.FS + ": " + f.Facts.Direct.Source, "use ext4 or xfs on NVMe"}
	}
	if _, err := v.handle(f); err != nil {
		return &Decline{Vendor, "registration", err.Error(), ""}
	}
	return nil
}

// vendorDecline is the answer to memory that the library would stage.
var vendorDecline = &Decline{Vendor, "memory", "not device memory", ""}

// Takes takes device memory.
func (v *VendorRoute) Takes(op *Op) *Decline {
	if !op.Kind.OnDevice() {
		return vendorDecline
	}
	return nil
}

func (v *VendorRoute) handle(f *storage.File) (*vendor.Handle, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if h, ok := v.handles[f]; ok {
		return h, nil
	}
	h, err := v.lib.Register(f.Direct())
	if err != nil {
		return nil, err
	}
	v.handles[f] = h
	f.OnClose(func() { v.forget(f) })
	return h, nil
}

func (v *VendorRoute) forget(f *storage.File) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if h, ok := v.handles[f]; ok {
		h.Close()
		delete(v.handles, f)
	}
}

// Run calls the library with the GPU's context current, as it wants.
func (v *VendorRoute) Run(ctx context.Context, ops []Op, res []Receipt) error {
	unbind, err := v.dev.Bind()
	if err != nil {
		return err
	}
	defer unbind()
	for i := range ops {
		if err := v.run(ctx, &ops[i], &res[i]); err != nil {
			return ops[i].failAt(ops[i].Off, "", err)
		}
	}
	return nil
}

func (v *VendorRoute) run(ctx context.Context, op *Op, r *Receipt) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	h, err := v.handle(op.File)
	if err != nil {
		return err
	}
	if op.Dir == Read {
		r.Bytes, err = h.Read(op.Mem, op.Off)
	} else {
		r.Bytes, err = h.Write(op.Mem, op.Off)
	}
	// The library does not say which way it went. The rung is only taken where
	// its direct path exists.
	r.Host.Evidence = Inferred
	return err
}

// Close deregisters the files and closes the library's driver.
func (v *VendorRoute) Close() error {
	v.mu.Lock()
	for f, h := range v.handles {
		h.Close()
		delete(v.handles, f)
	}
	v.mu.Unlock()
	return v.lib.Close()
}
