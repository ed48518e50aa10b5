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

func (f *ctlFile) alloc(p *nvrm.NVOS64Parameters) {
	switch p.HClass {
	case nvrm.NV01_ROOT, nvrm.NV01_ROOT_NON_PRIV, nvrm.NV01_ROOT_CLIENT:
		p.HClass = nvrm.NV01_ROOT_CLIENT
		p.HObjectNew = f.m.newClient(f).handle
		p.Status = nvrm.NV_OK
	case nvrm.NV01_DEVICE_0:
		p.Status = f.allocDevice(p)
	default:
		p.Status = nvrm.NV_ERR_INVALID_CLASS
		if _, status := f.m.client(p.HRoot, f); status != nvrm.NV_OK {
			p.Status = status
		}
	}
}

func (f *ctlFile) allocDevice(p *nvrm.NVOS64Parameters) nvrm.Status {
	c, status := f.m.client(p.HRoot, f)
	if status != nvrm.NV_OK {
		return status
	}
	if p.HObjectParent != c.handle {
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

func (f *ctlFile) freeObject(p *nvrm.NVOS00Parameters) {
	c, status := f.m.client(p.HRoot, f)
	if p.Status = status; status != nvrm.NV_OK {
		return
	}
	var err error
	if p.HObjectOld == c.handle {
		err = f.m.freeClient(c)
	} else if o := c.objects[p.HObjectOld]; o != nil {
		err = f.m.free(c, o)
	}
	if err != nil {
		p.Status = nvrm.NV_ERR_GENERIC
	}
}

func (f *ctlFile) dup(p *nvrm.NVOS55Parameters) { p.Status = f.dupObject(p) }

func (f *ctlFile) dupObject(p *nvrm.NVOS55Parameters) nvrm.Status {
	c, status := f.m.client(p.HClient, f)
	if status != nvrm.NV_OK {
		return status
	}
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

func (f *ctlFile) mapMemory(p *nvrm.NVOS33ParametersWithFD) {
	p.Params.Status = f.attach(&p.Params, int(p.FD))
}

// attach maps memory and attaches the mapping to a file.
func (f *ctlFile) attach(p *nvrm.NVOS33Parameters, fd int) nvrm.Status {
	c, status := f.m.client(p.HClient, f)
	if status != nvrm.NV_OK {
		return status
	}
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
	node, ok := f.m.os.File(fd).(*gpuFile)
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

func (f *ctlFile) unmapMemory(p *nvrm.NVOS34Parameters) {
	c, status := f.m.client(p.HClient, f)
	if p.Status = status; status != nvrm.NV_OK {
		return
	}
	o, status := c.memory(p.HMemory)
	if p.Status = status; status != nvrm.NV_OK {
		return
	}
	mp := o.mappingAt(p.PLinearAddress)
	if mp == nil {
		p.Status = nvrm.NV_ERR_OBJECT_NOT_FOUND
	} else if f.m.unmap(mp) != nil {
		p.Status = nvrm.NV_ERR_GENERIC
	}
}
