package ladder

import (
	"context"
	"sync"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/internal/vendor"
	"github.com/culvert-io/culvert/route"
)

// A vendorRoute hands requests to NVIDIA's libcufile. It is the best route where that
// library bypasses host memory; where it would stage, our ring is faster, so the
// route is declined.
type vendorRoute struct {
	basic
	dev gpu.Device
	os  dev.OS
	lib *vendor.Library

	mu      sync.Mutex
	handles map[*storage.File]*vendor.Handle
}

// findVendor returns the route, or why this machine does not have it.
func findVendor(device gpu.Device, os dev.OS) (Route, *route.Decline) {
	absent := func(test, evidence, fix string) (Route, *route.Decline) {
		return nil, decline(route.Vendor, test, evidence, fix)
	}
	if dev.Simulated(os) {
		return absent("machine", "NVIDIA's libcufile does not support the software machine", "")
	}
	if why := notDirect(os); why != nil {
		return nil, why
	}
	path, err := vendor.Find()
	if err != nil {
		return absent("library", err.Error(), "install NVIDIA's libcufile")
	}
	unbind, err := device.Bind()
	if err != nil {
		return absent("context", err.Error(), "")
	}
	defer unbind()
	lib, err := vendor.Open(path)
	if err != nil {
		return absent("library", err.Error(), "")
	}
	return &vendorRoute{dev: device, os: os, lib: lib, handles: map[*storage.File]*vendor.Handle{}}, nil
}

var vendorTexts = [numReasons]*route.Decline{
	hostMemory: decline(route.Vendor, "memory", "not device memory", ""),
}

// Traits registers the file with the library.
func (v *vendorRoute) Traits(src Source) (Traits, *route.Decline) {
	f := src.File()
	if f == nil {
		return Traits{}, needsBuffered(route.Vendor, src)
	}
	if f.Direct() < 0 {
		return Traits{}, decline(route.Vendor, "O_DIRECT", src.Name()+" on "+f.Facts.FS+": "+f.Facts.Direct.Source, "use ext4 or xfs on NVMe")
	}
	if d := declineStack(route.Vendor, v.os, f, nil); d != nil {
		return Traits{}, d
	}
	if _, err := v.handle(f); err != nil {
		return Traits{}, decline(route.Vendor, "registration", err.Error(), "")
	}
	return Traits{ID: route.Vendor, Direct: true, Reads: true, Writes: true, texts: &vendorTexts}, nil
}

// State has nothing to add.
func (v *vendorRoute) State(*Op) State { return State{} }

func (v *vendorRoute) handle(f *storage.File) (*vendor.Handle, error) {
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

func (v *vendorRoute) forget(f *storage.File) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if h, ok := v.handles[f]; ok {
		h.Close()
		delete(v.handles, f)
	}
}

// Run calls the library with the GPU's context current.
func (v *vendorRoute) Run(ctx context.Context, ops []Op, res []route.Receipt) error {
	unbind, err := v.dev.Bind()
	if err != nil {
		return err
	}
	defer unbind()
	for i := range ops {
		if err := v.run(ctx, &ops[i], &res[i]); err != nil {
			return libraryFailed(ctx, ops, i, err)
		}
	}
	return nil
}

// libraryFailed is the error of a batch after the library's answer to op i. It has codes for
// files and memory that it does not serve, which the next route may.
func libraryFailed(ctx context.Context, ops []Op, i int, err error) error {
	if ops[i].strict || ctx.Err() != nil {
		return ops[i].failAt(ops[i].Off, "", err)
	}
	return toNextRoute(route.Vendor, ops, "library", err)
}

func (v *vendorRoute) run(ctx context.Context, op *Op, r *route.Receipt) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	h, err := v.handle(op.file())
	if err != nil {
		return err
	}
	if op.Dir == route.Read {
		r.Bytes, err = h.Read(op.Mem, op.Off)
	} else {
		r.Bytes, err = h.Write(op.Mem, op.Off)
	}
	// The library does not report its path. The route exists only where that path
	// bypasses host memory.
	r.Host.Evidence = route.Inferred
	return err
}

// Close deregisters the files and closes the library's driver.
func (v *vendorRoute) Close() error {
	v.mu.Lock()
	for f, h := range v.handles {
		h.Close()
		delete(v.handles, f)
	}
	v.mu.Unlock()
	return v.lib.Close()
}
