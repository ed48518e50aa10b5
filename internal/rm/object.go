package rm

import (
	"errors"
	"fmt"

	"github.com/culvert-io/culvert/internal/abi/nvrm"
	"github.com/culvert-io/culvert/internal/dev"
)

// An object is GPU memory in this client, mapped into the process. It keeps the
// memory allocated even if its owner frees it.
type object struct {
	dev    *device
	handle nvrm.Handle
	mem    dev.Mapping
	linear uint64 // the resource manager's name of the mapping
}

// importFD makes the object of a descriptor that CUDA or another client
// exported, in this or another process. The descriptor may be closed afterwards.
func (d *device) importFD(fd int) func(nvrm.Handle) error {
	return func(h nvrm.Handle) error {
		p := nvrm.ImportObjectFromFDParams{FD: int32(fd), Object: nvrm.ExportObject{
			Type:    nvrm.NV0000_CTRL_OS_UNIX_EXPORT_OBJECT_TYPE_RM,
			HDevice: d.handle, HParent: d.handle, HObject: h,
		}}
		err := control(d.client.ctl, d.client.handle, nvrm.NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECT_FROM_FD, &p)
		if err != nil {
			return unavailable("import", fmt.Errorf("descriptor %d: %w", fd, err))
		}
		return nil
	}
}

// duplicate makes the object of an object of another client in this process.
func (d *device) duplicate(client, source nvrm.Handle) func(nvrm.Handle) error {
	return func(h nvrm.Handle) error {
		p := nvrm.NVOS55Parameters{
			HClient: d.client.handle, HParent: d.handle, HObject: h,
			HClientSrc: client, HObjectSrc: source,
		}
		if err := call(d.client.ctl, nvrm.IoctlDupObject, &p, &p.Status); err != nil {
			return unavailable("duplicate", fmt.Errorf("object %#x of client %#x: %w", source, client, err))
		}
		return nil
	}
}

// mapObject creates an object and maps n bytes from off, which are multiples of
// the page size.
func (d *device) mapObject(create func(nvrm.Handle) error, off, n uint64) (*object, error) {
	h, err := d.client.begin()
	if err != nil {
		return nil, err
	}
	if err := create(h); err != nil {
		return nil, errors.Join(err, d.client.end(h))
	}
	o := &object{dev: d, handle: h}
	if err := o.mapMemory(off, n); err != nil {
		return nil, errors.Join(unavailable("mapping", fmt.Errorf("%d bytes at %d: %w", n, off, err)), o.free())
	}
	return o, nil
}

const (
	maxInt        = uint64(^uint(0) >> 1)
	protReadWrite = 3 // PROT_READ|PROT_WRITE
)

// mapMemory attaches a mapping to a new open file of the GPU's device node, which
// can have one, and maps that. The file is not needed afterwards.
func (o *object) mapMemory(off, n uint64) error {
	d, c := o.dev, o.dev.client
	node, err := c.os.Open(d.path)
	if err != nil {
		return err
	}
	defer node.Close()
	p := nvrm.NVOS33ParametersWithFD{
		Params: nvrm.NVOS33Parameters{HClient: c.handle, HDevice: d.handle, HMemory: o.handle, Offset: off, Length: n},
		FD:     int32(node.Fd()),
	}
	if err := call(c.ctl, nvrm.IoctlMapMemory, &p, &p.Params.Status); err != nil {
		return err
	}
	o.linear = p.Params.PLinearAddress
	if o.mem, err = node.Mmap(0, int(n), protReadWrite); err != nil {
		return errors.Join(err, o.unmapMemory())
	}
	return nil
}

// unmap unmaps the memory and frees the object.
func (o *object) unmap() error {
	if err := o.mem.Unmap(); err != nil {
		return err // the addresses are still mapped: keep the object
	}
	return errors.Join(o.unmapMemory(), o.free())
}

func (o *object) unmapMemory() error {
	d, c := o.dev, o.dev.client
	p := nvrm.NVOS34Parameters{HClient: c.handle, HDevice: d.handle, HMemory: o.handle, PLinearAddress: o.linear}
	if err := call(c.ctl, nvrm.IoctlUnmapMemory, &p, &p.Status); err != nil {
		return fmt.Errorf("unmap %#x: %w", o.linear, err)
	}
	return nil
}

func (o *object) free() error {
	c := o.dev.client
	return errors.Join(c.free(o.dev.handle, o.handle), c.end(o.handle))
}
