package nvrm

import (
	"bytes"
	"syscall"

	"github.com/culvert-io/culvert/internal/abi/nvrm"
)

// checkVersion compares the caller's version with ours, or returns ours.
func (m *Manager) checkVersion(p *nvrm.RMAPIVersion) error {
	p.Reply = nvrm.NV_RM_API_VERSION_REPLY_RECOGNIZED
	if p.Cmd != nvrm.NV_RM_API_VERSION_CMD_QUERY {
		theirs, _, ended := bytes.Cut(p.VersionString[:], []byte{0})
		ours := []byte(m.version)
		if p.Cmd == nvrm.NV_RM_API_VERSION_CMD_RELAXED {
			theirs, _, _ = bytes.Cut(theirs, []byte("."))
			ours, _, _ = bytes.Cut(ours, []byte("."))
		}
		if ended && bytes.Equal(theirs, ours) {
			return nil
		}
	}
	n := copy(p.VersionString[:], m.version)
	p.VersionString[n] = 0
	if p.Cmd == nvrm.NV_RM_API_VERSION_CMD_QUERY {
		return nil
	}
	return syscall.EINVAL
}

func (m *Manager) cardInfo(list []nvrm.CardInfo) error {
	clear(list)
	if len(list) < len(m.cards) {
		return syscall.EINVAL
	}
	for i, c := range m.cards {
		list[i] = nvrm.CardInfo{
			Valid:     1,
			PCI:       nvrm.PCIInfo{Bus: c.bus, VendorID: vendorID},
			GPUID:     c.id,
			FBAddress: c.bar1, FBSize: c.bar1Size,
			MinorNumber: c.minor,
		}
	}
	return nil
}

// alloc makes a device object.
func (f *ctlFile) alloc(c *client, p *nvrm.NVOS64Parameters) nvrm.Status {
	switch {
	case p.HClass != nvrm.NV01_DEVICE_0:
		return nvrm.NV_ERR_INVALID_CLASS
	case p.HObjectParent != c.handle:
		return nvrm.NV_ERR_INVALID_OBJECT_PARENT
	}
	var want nvrm.NV0080AllocParameters
	if p.PAllocParms != 0 {
		given, status := params[nvrm.NV0080AllocParameters](p.PAllocParms, p.ParamsSize)
		if status != nvrm.NV_OK {
			return status
		}
		want = *given
	}
	if uint64(want.DeviceID) >= uint64(len(f.m.cards)) {
		return nvrm.NV_ERR_INVALID_CLASS
	}
	card := f.m.cards[want.DeviceID]
	if card.opens == 0 {
		return nvrm.NV_ERR_INSUFFICIENT_PERMISSIONS
	}
	if status := c.pick(&p.HObjectNew); status != nvrm.NV_OK {
		return status
	}
	c.objects[p.HObjectNew] = &object{handle: p.HObjectNew, parent: c.handle, card: card}
	return nvrm.NV_OK
}

func (f *ctlFile) freeObject(c *client, p *nvrm.NVOS00Parameters) nvrm.Status {
	var err error
	if p.HObjectOld == c.handle {
		err = f.m.freeClient(c)
	} else if o := c.objects[p.HObjectOld]; o != nil {
		err = f.m.free(c, o)
	}
	if err != nil {
		return nvrm.NV_ERR_GENERIC
	}
	return nvrm.NV_OK
}

func (f *ctlFile) dup(c *client, p *nvrm.NVOS55Parameters) nvrm.Status {
	src := f.m.clients[p.HClientSrc] // of any client in this process
	if src == nil {
		return nvrm.NV_ERR_INVALID_CLIENT
	}
	o, status := src.memory(p.HObjectSrc)
	if status != nvrm.NV_OK {
		return status
	}
	mem, status := o.mem.clone()
	if status != nvrm.NV_OK {
		return status
	}
	return c.adopt(p.HParent, &p.HObject, mem)
}

// mapMemory maps memory and attaches the mapping to a file.
func (f *ctlFile) mapMemory(c *client, arg *nvrm.NVOS33ParametersWithFD) nvrm.Status {
	p := &arg.Params
	o, status := c.memory(p.HMemory)
	if status != nvrm.NV_OK {
		return status
	}
	if _, status := c.device(p.HDevice); status != nvrm.NV_OK {
		return status
	}
	mp, status := f.m.mapMemory(o, p.Offset, p.Length)
	if status != nvrm.NV_OK {
		return status
	}
	const replaced = 3<<15 | 7<<23
	p.Flags = p.Flags&^replaced | nvrm.NVOS33_FLAGS_MAPPING_REFLECTED | nvrm.NVOS33_FLAGS_CACHING_TYPE_WRITECOMBINED
	node, ok := f.m.os.File(int(arg.FD)).(*gpuFile)
	switch {
	case !ok || node.card != o.card:
		status = nvrm.NV_ERR_INVALID_ARGUMENT
	case node.mp != nil:
		status = nvrm.NV_ERR_STATE_IN_USE
	}
	if status != nvrm.NV_OK {
		if f.m.unmap(mp) != nil {
			return nvrm.NV_ERR_GENERIC
		}
		return status
	}
	node.mp = mp
	p.PLinearAddress = mp.linear
	return nvrm.NV_OK
}

func (f *ctlFile) unmapMemory(c *client, p *nvrm.NVOS34Parameters) nvrm.Status {
	o, status := c.memory(p.HMemory)
	if status != nvrm.NV_OK {
		return status
	}
	mp := o.mappingAt(p.PLinearAddress)
	switch {
	case mp == nil:
		return nvrm.NV_ERR_OBJECT_NOT_FOUND
	case f.m.unmap(mp) != nil:
		return nvrm.NV_ERR_GENERIC
	}
	return nvrm.NV_OK
}
