package nvrm

import (
	"github.com/culvert-io/culvert/internal/abi/nvrm"
)

// controls are a client's commands, by number.
var controls = map[uint32]func(*ctlFile, *client, *nvrm.NVOS54Parameters) nvrm.Status{
	nvrm.NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2:            command((*ctlFile).idInfo),
	nvrm.NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECT_FROM_FD: command((*ctlFile).importObject),
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

func (f *ctlFile) control(c *client, p *nvrm.NVOS54Parameters) nvrm.Status {
	run := controls[p.Cmd]
	switch {
	case p.HObject != c.handle && c.objects[p.HObject] == nil:
		return nvrm.NV_ERR_OBJECT_NOT_FOUND
	case p.HObject != c.handle || run == nil:
		return nvrm.NV_ERR_NOT_SUPPORTED
	}
	return run(f, c, p)
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

// importObject imports memory that the software GPU exported. Objects of other
// descriptors are not emulated.
func (f *ctlFile) importObject(c *client, p *nvrm.ImportObjectFromFDParams) nvrm.Status {
	if p.Object.Type != nvrm.NV0000_CTRL_OS_UNIX_EXPORT_OBJECT_TYPE_RM || p.FD == -1 {
		return nvrm.NV_ERR_INVALID_PARAMETER
	}
	access, err := f.m.drv.AcquireExport(int(p.FD))
	if err != nil {
		return nvrm.NV_ERR_INVALID_PARAMETER
	}
	mem := &memory{card: f.m.cards[access.GPU().Index()], access: access}
	return c.adopt(p.Object.HParent, &p.Object.HObject, mem)
}
