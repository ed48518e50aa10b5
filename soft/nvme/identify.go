package nvme

import (
	abi "github.com/culvert-io/culvert/internal/abi/nvme"
)

func (w *worker) identify(cmd *abi.Command) abi.Status {
	switch cmd.CDW10 & 0xff {
	case abi.CNS_CONTROLLER:
		return w.answer(cmd, structBytes(w.c.identifyController()))
	case abi.CNS_NAMESPACE:
		ns := w.c.namespace(cmd.NSID)
		if ns == nil {
			return abi.INVALID_NAMESPACE | abi.STATUS_DNR
		}
		id, err := ns.identify()
		if err != nil {
			return abi.INTERNAL_ERROR
		}
		return w.answer(cmd, structBytes(id))
	case abi.CNS_ACTIVE_NAMESPACE:
		if cmd.NSID >= abi.NSID_ALL-1 {
			return abi.INVALID_NAMESPACE | abi.STATUS_DNR
		}
		var list abi.NamespaceList
		n := 0
		for id := cmd.NSID + 1; w.c.namespace(id) != nil && n < len(list); id++ {
			list[n] = id
			n++
		}
		return w.answer(cmd, structBytes(&list))
	}
	return abi.INVALID_FIELD | abi.STATUS_DNR
}

func (c *Controller) identifyController() *abi.IdentifyController {
	id := &abi.IdentifyController{
		MDTS: c.cfg.mdts(), VER: version, CNTLID: 1, ACL: 3,
		SQES: abi.SQES<<4 | abi.SQES, CQES: abi.CQES<<4 | abi.CQES,
		NN: uint32(len(c.spaces)), ONCS: abi.ONCS_WRITE_ZEROES, VWC: 1,
	}
	ascii(id.SN[:], c.cfg.Serial)
	ascii(id.MN[:], "Culvert software drive")
	ascii(id.FR[:], "1")
	copy(id.SUBNQN[:], "nqn.2025-01.io.culvert:"+c.cfg.Serial)
	return id
}

// ascii sets a text field, padded with spaces.
func ascii(dst []byte, s string) {
	for i := copy(dst, s); i < len(dst); i++ {
		dst[i] = ' '
	}
}

func (ns *namespace) identify() (*abi.IdentifyNamespace, error) {
	n, err := ns.blocks()
	if err != nil {
		return nil, err
	}
	id := &abi.IdentifyNamespace{NSZE: n, NCAP: n, NUSE: n}
	id.LBAF[0].LBADS = uint8(ns.shift)
	return id, nil
}
