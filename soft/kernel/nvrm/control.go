package nvrm

import (
	"github.com/culvert-io/culvert/internal/abi/nvrm"
)

// controls are the commands of a client, by number.
var controls = map[uint32]func(*ctlFile, *client, *nvrm.NVOS54Parameters) nvrm.Status{
	nvrm.NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2:             command((*ctlFile).idInfo),
	nvrm.NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECT_FROM_FD:  command((*ctlFile).importObject),
	nvrm.NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECTS_FROM_FD: command((*ctlFile).importObjects),
	nvrm.NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECT_TO_FD:    command((*ctlFile).exportObject),
	nvrm.NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECTS_TO_FD:   command((*ctlFile).exportObjects),
}

func command[T any](run func(*ctlFile, *client, *T) nvrm.Status) func(*ctlFile, *client, *nvrm.NVOS54Parameters) nvrm.Status {
	return func(f *ctlFile, c *client, p *nvrm.NVOS54Parameters) nvrm.Status {
		given, status := params[T](p.Params, p.ParamsSize)
		if status != nvrm.NV_OK {
			return status
		}
		return run(f, c, given)
	}
}

func (f *ctlFile) control(p *nvrm.NVOS54Parameters) {
	c, status := f.m.client(p.HClient, f)
	if p.Status = status; status != nvrm.NV_OK {
		return
	}
	run := controls[p.Cmd]
	switch {
	case p.HObject != c.handle && c.objects[p.HObject] == nil:
		p.Status = nvrm.NV_ERR_OBJECT_NOT_FOUND
	case p.HObject != c.handle || run == nil:
		p.Status = nvrm.NV_ERR_NOT_SUPPORTED
	default:
		p.Status = run(f, c, p)
	}
}

func (f *ctlFile) idInfo(_ *client, p *nvrm.GPUGetIDInfoV2Params) nvrm.Status {
	for i, c := range f.m.cards {
		if c.id == p.GPUID {
			*p = nvrm.GPUGetIDInfoV2Params{
				GPUID: c.id, DeviceInstance: uint32(i), BoardID: c.id, GPUInstance: uint32(i), NUMAID: -1,
			}
			return nvrm.NV_OK
		}
	}
	return nvrm.NV_ERR_INVALID_ARGUMENT
}

// held is what a descriptor holds: one object if the software GPU exported it,
// or those that were exported into a /dev/nvidiactl. The caller may keep what
// it takes; own says that it has to drop what it does not.
func (f *ctlFile) held(fd int) (list []memory, own bool) {
	if file, ok := f.m.os.File(fd).(*ctlFile); ok {
		return file.exports, false
	}
	if mem := f.m.fromDescriptor(fd); mem != nil {
		return []memory{mem}, true
	}
	return nil, false
}

func (f *ctlFile) importObject(c *client, p *nvrm.ImportObjectFromFDParams) nvrm.Status {
	if p.Object.Type != nvrm.NV0000_CTRL_OS_UNIX_EXPORT_OBJECT_TYPE_RM || p.FD == -1 {
		return nvrm.NV_ERR_INVALID_PARAMETER
	}
	list, own := f.held(int(p.FD))
	if len(list) == 0 || list[0] == nil {
		return nvrm.NV_ERR_INVALID_PARAMETER
	}
	return f.take(c, list[0], own, p.Object.HParent, &p.Object.HObject)
}

// take imports one memory.
func (f *ctlFile) take(c *client, mem memory, own bool, parent nvrm.Handle, h *nvrm.Handle) nvrm.Status {
	if !own {
		var err error
		if mem, err = mem.clone(); err != nil {
			return nvrm.NV_ERR_OBJECT_NOT_FOUND
		}
	}
	return f.m.adopt(c, parent, h, mem)
}

func (f *ctlFile) importObjects(c *client, p *nvrm.ImportObjectsFromFDParams) nvrm.Status {
	list, own := f.held(int(p.FD))
	status := nvrm.NV_OK
	switch {
	case len(list) == 0 || int(p.NumObjects) > len(p.Objects):
		status = nvrm.NV_ERR_INVALID_PARAMETER
	case int(p.Index)+int(p.NumObjects) > len(list):
		status = nvrm.NV_ERR_OUT_OF_RANGE
	}
	if own && (status != nvrm.NV_OK || p.NumObjects == 0) {
		list[0].drop()
	}
	if status != nvrm.NV_OK {
		return status
	}
	for i := range int(p.NumObjects) {
		mem := list[int(p.Index)+i]
		p.ObjectTypes[i] = nvrm.NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECT_TYPE_NONE
		if mem == nil {
			continue
		}
		if status := f.take(c, mem, own, p.HParent, &p.Objects[i]); status != nvrm.NV_OK {
			f.undo(c, p.Objects[:i])
			return status
		}
		p.ObjectTypes[i] = nvrm.NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECT_TYPE_VIDMEM
	}
	return nvrm.NV_OK
}

// undo frees what a failed import has made. It is not mapped yet.
func (f *ctlFile) undo(c *client, handles []nvrm.Handle) {
	for _, h := range handles {
		if o := c.objects[h]; o != nil {
			_ = f.m.free(c, o)
		}
	}
}

func (f *ctlFile) exportObject(c *client, p *nvrm.ExportObjectToFDParams) nvrm.Status {
	if p.Object.Type != nvrm.NV0000_CTRL_OS_UNIX_EXPORT_OBJECT_TYPE_RM || p.Flags != 0 {
		return nvrm.NV_ERR_INVALID_PARAMETER
	}
	file, ok := f.m.os.File(int(p.FD)).(*ctlFile)
	if !ok || file.exports != nil {
		return nvrm.NV_ERR_INVALID_PARAMETER
	}
	mem, status := f.copyOf(c, p.Object.HObject)
	if status == nvrm.NV_OK {
		file.exports = []memory{mem}
	}
	return status
}

func (f *ctlFile) exportObjects(c *client, p *nvrm.ExportObjectsToFDParams) nvrm.Status {
	file, ok := f.m.os.File(int(p.FD)).(*ctlFile)
	if !ok || int(p.NumObjects) > len(p.Objects) || file.exports == nil && p.MaxObjects == 0 {
		return nvrm.NV_ERR_INVALID_PARAMETER
	}
	slots := file.exports
	if slots == nil {
		slots = make([]memory, p.MaxObjects)
	}
	if int(p.Index)+int(p.NumObjects) > len(slots) {
		return nvrm.NV_ERR_OUT_OF_RANGE
	}
	fresh := make([]memory, p.NumObjects)
	for i, h := range p.Objects[:p.NumObjects] {
		if h == 0 {
			continue
		}
		mem, status := f.copyOf(c, h)
		if status != nvrm.NV_OK {
			dropAll(fresh)
			return status
		}
		fresh[i] = mem
	}
	place := slots[p.Index:][:p.NumObjects]
	dropAll(place)
	copy(place, fresh)
	file.exports = slots
	return nvrm.NV_OK
}

func (f *ctlFile) copyOf(c *client, h nvrm.Handle) (memory, nvrm.Status) {
	o, status := c.memory(h)
	if status != nvrm.NV_OK {
		return nil, status
	}
	mem, err := o.mem.clone()
	if err != nil {
		return nil, nvrm.NV_ERR_OBJECT_NOT_FOUND
	}
	return mem, nvrm.NV_OK
}

func dropAll(list []memory) {
	for _, mem := range list {
		if mem != nil {
			mem.drop()
		}
	}
}
