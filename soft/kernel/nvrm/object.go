package nvrm

import (
	"errors"
	"slices"

	"github.com/culvert-io/culvert/internal/abi/nvrm"
)

// A client owns objects. It belongs to the /dev/nvidiactl that made it.
type client struct {
	handle  nvrm.Handle
	owner   *ctlFile // nil for CUDA's
	objects map[nvrm.Handle]*object
}

// An object is a device or memory.
type object struct {
	handle   nvrm.Handle
	parent   nvrm.Handle
	card     *card
	mem      *memory // nil for a device
	mappings []*mapping
}

func (m *Manager) newClient(owner *ctlFile) *client {
	m.lastClient++
	c := &client{handle: m.lastClient, owner: owner, objects: map[nvrm.Handle]*object{}}
	m.clients[c.handle] = c
	return c
}

// client returns a client of a file. Those of other files do not count.
func (m *Manager) client(h nvrm.Handle, f *ctlFile) (*client, nvrm.Status) {
	c := m.clients[h]
	if c == nil || c.owner != f {
		return nil, nvrm.NV_ERR_INVALID_CLIENT
	}
	return c, nvrm.NV_OK
}

func (c *client) device(h nvrm.Handle) (*object, nvrm.Status) {
	return c.object(h, false, nvrm.NV_ERR_INVALID_OBJECT_PARENT)
}

func (c *client) memory(h nvrm.Handle) (*object, nvrm.Status) {
	return c.object(h, true, nvrm.NV_ERR_NOT_SUPPORTED)
}

// object returns an object, which must be memory, or must not: other is the answer else.
func (c *client) object(h nvrm.Handle, memory bool, other nvrm.Status) (*object, nvrm.Status) {
	o := c.objects[h]
	switch {
	case o == nil:
		return nil, nvrm.NV_ERR_OBJECT_NOT_FOUND
	case (o.mem != nil) != memory:
		return nil, other
	}
	return o, nvrm.NV_OK
}

// pick checks the handle of a new object, or chooses one.
func (c *client) pick(h *nvrm.Handle) nvrm.Status {
	const generated = 0xcaf00000
	if *h == 0 {
		for *h = generated; c.objects[*h] != nil; *h++ {
		}
		return nvrm.NV_OK
	}
	switch {
	case *h == c.handle:
		return nvrm.NV_ERR_INVALID_OBJECT_HANDLE
	case c.objects[*h] != nil:
		return nvrm.NV_ERR_INSERT_DUPLICATE_NAME
	}
	return nvrm.NV_OK
}

// adopt makes a memory object under a device. It takes over mem, even if it fails.
func (c *client) adopt(parent nvrm.Handle, h *nvrm.Handle, mem *memory) nvrm.Status {
	d, status := c.device(parent)
	if status == nvrm.NV_OK && d.card != mem.card {
		status = nvrm.NV_ERR_INVALID_OBJECT_PARENT
	}
	if status == nvrm.NV_OK {
		status = c.pick(h)
	}
	if status != nvrm.NV_OK {
		mem.drop()
		return status
	}
	c.objects[*h] = &object{handle: *h, parent: parent, card: mem.card, mem: mem}
	return nvrm.NV_OK
}

// free frees an object and its children.
func (m *Manager) free(c *client, o *object) error {
	var errs []error
	for _, child := range c.objects {
		if child.parent == o.handle {
			errs = append(errs, m.free(c, child))
		}
	}
	for _, mp := range slices.Clone(o.mappings) {
		errs = append(errs, m.unmap(mp))
	}
	o.mem.drop()
	delete(c.objects, o.handle)
	return errors.Join(errs...)
}

func (m *Manager) freeClient(c *client) error {
	var errs []error
	for len(c.objects) > 0 {
		for _, o := range c.objects {
			errs = append(errs, m.free(c, o))
			break // its children are freed, too
		}
	}
	delete(m.clients, c.handle)
	return errors.Join(errs...)
}
