package rm

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/culvert-io/culvert/internal/abi/nvrm"
	"github.com/culvert-io/culvert/internal/dev"
)

// An Object is memory of a GPU in this client. It keeps the memory allocated,
// whatever its first owner does.
type Object struct {
	dev    *Device
	handle nvrm.Handle

	mu   sync.Mutex
	uses int // the holder's, and one for each mapping
	gone bool
}

// Import takes over memory behind a descriptor that CUDA or another client
// exported, here or in another process. The descriptor may be closed afterwards.
func (d *Device) Import(fd int) (*Object, error) {
	return d.newObject(func(h nvrm.Handle) error {
		p := nvrm.ImportObjectFromFDParams{FD: int32(fd), Object: nvrm.ExportObject{
			Type:    nvrm.NV0000_CTRL_OS_UNIX_EXPORT_OBJECT_TYPE_RM,
			HDevice: d.handle, HParent: d.handle, HObject: h,
		}}
		err := control(d.client.ctl, d.client.handle, nvrm.NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECT_FROM_FD, &p)
		if err != nil {
			return unavailable("import", fmt.Errorf("descriptor %d: %w", fd, err))
		}
		return nil
	})
}

// Dup takes over an object of another client of the same process.
func (d *Device) Dup(client, object nvrm.Handle) (*Object, error) {
	return d.newObject(func(h nvrm.Handle) error {
		p := nvrm.NVOS55Parameters{
			HClient: d.client.handle, HParent: d.handle, HObject: h,
			HClientSrc: client, HObjectSrc: object,
		}
		err := dev.Ioctl(d.client.ctl, nvrm.IoctlDupObject, &p)
		if err == nil {
			err = p.Status.Err()
		}
		if err != nil {
			return unavailable("duplicate", fmt.Errorf("object %#x of client %#x: %w", object, client, err))
		}
		return nil
	})
}

func (d *Device) newObject(create func(nvrm.Handle) error) (*Object, error) {
	h, err := d.client.begin()
	if err != nil {
		return nil, err
	}
	if err := create(h); err != nil {
		return nil, errors.Join(err, d.client.end(h))
	}
	return &Object{dev: d, handle: h, uses: 1}, nil
}

// Free ends the holder's use. The memory goes when the last mapping has gone
// too. A second call does nothing.
func (o *Object) Free() error {
	o.mu.Lock()
	if o.gone {
		o.mu.Unlock()
		return nil
	}
	o.gone = true
	o.mu.Unlock()
	return o.release()
}

// release ends one use.
func (o *Object) release() error {
	o.mu.Lock()
	o.uses--
	last := o.uses == 0
	o.mu.Unlock()
	if !last {
		return nil
	}
	c := o.dev.client
	return errors.Join(c.free(o.dev.handle, o.handle), c.end(o.handle))
}

// A Mapping is part of an object in this process's address space.
type Mapping struct {
	obj    *Object
	m      dev.Mapping
	linear uint64 // what the resource manager calls the mapping
	once   sync.Once
	err    error
}

// Map makes n bytes from off visible to the CPU. Both must be multiples of the
// page size.
func (o *Object) Map(off, n uint64) (*Mapping, error) {
	if page := uint64(os.Getpagesize()); n == 0 || off%page != 0 || n%page != 0 || n > maxInt || off+n < off {
		return nil, fmt.Errorf("map %d bytes at %d: want whole pages", n, off)
	}
	o.mu.Lock()
	if o.gone {
		o.mu.Unlock()
		return nil, ErrClosed
	}
	o.uses++
	o.mu.Unlock()
	m, err := o.mapMemory(off, n)
	if err != nil {
		return nil, errors.Join(unavailable("mapping", fmt.Errorf("%d bytes at %d: %w", n, off, err)), o.release())
	}
	return m, nil
}

const (
	maxInt        = uint64(^uint(0) >> 1)
	protReadWrite = 3 // PROT_READ|PROT_WRITE
)

// mapMemory attaches a mapping to a fresh open of the GPU's node, which takes
// one at a time, and maps that. The node is not needed afterwards.
func (o *Object) mapMemory(off, n uint64) (*Mapping, error) {
	d, c := o.dev, o.dev.client
	node, err := c.os.Open(d.path)
	if err != nil {
		return nil, err
	}
	defer node.Close()
	p := nvrm.NVOS33ParametersWithFD{
		Params: nvrm.NVOS33Parameters{HClient: c.handle, HDevice: d.handle, HMemory: o.handle, Offset: off, Length: n},
		FD:     int32(node.Fd()),
	}
	if err := dev.Ioctl(c.ctl, nvrm.IoctlMapMemory, &p); err != nil {
		return nil, err
	}
	if err := p.Params.Status.Err(); err != nil {
		return nil, err
	}
	m := &Mapping{obj: o, linear: p.Params.PLinearAddress}
	m.m, err = node.Mmap(0, int(n), protReadWrite)
	if err != nil {
		return nil, errors.Join(err, m.unmapMemory())
	}
	return m, nil
}

// Bytes is the mapped memory. It must not be used after Unmap has begun.
func (m *Mapping) Bytes() []byte { return dev.Bytes(m.m) }

// Unmap takes the memory out of the address space. A second call repeats the
// answer of the first.
func (m *Mapping) Unmap() error {
	m.once.Do(func() {
		if err := m.m.Unmap(); err != nil {
			// The addresses are still there: the object must outlive them.
			m.err = err
			return
		}
		m.err = errors.Join(m.unmapMemory(), m.obj.release())
	})
	return m.err
}

func (m *Mapping) unmapMemory() error {
	d, c := m.obj.dev, m.obj.dev.client
	p := nvrm.NVOS34Parameters{HClient: c.handle, HDevice: d.handle, HMemory: m.obj.handle, PLinearAddress: m.linear}
	err := dev.Ioctl(c.ctl, nvrm.IoctlUnmapMemory, &p)
	if err == nil {
		err = p.Status.Err()
	}
	if err != nil {
		return fmt.Errorf("unmap %#x: %w", m.linear, err)
	}
	return nil
}
