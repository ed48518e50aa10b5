package nvfs

// SetRDMAArgs are those of SET_RDMA_REG_INFO (104 bytes).
type SetRDMAArgs struct {
	CPUVAddr uint64
	GID      [2]uint64
	QPNum    uint32
	LID      uint16
	Flags    uint8
	Version  uint8
	DCKey    uint32
	Rkey     [MAX_RDMA_KEYS]uint32
	Nkeys    uint32
}

// Encode writes the arguments to b, which is as long as an Arg.
func (a *SetRDMAArgs) Encode(b []byte) {
	le.PutUint64(b[0:], a.CPUVAddr)
	le.PutUint64(b[8:], a.GID[0])
	le.PutUint64(b[16:], a.GID[1])
	le.PutUint32(b[24:], a.QPNum)
	le.PutUint16(b[28:], a.LID)
	b[30], b[31] = a.Flags, a.Version
	le.PutUint32(b[32:], a.DCKey)
	for i, k := range a.Rkey {
		le.PutUint32(b[36+4*i:], k)
	}
	le.PutUint32(b[100:], a.Nkeys)
}

// Decode reads them.
func (a *SetRDMAArgs) Decode(b []byte) {
	a.CPUVAddr = le.Uint64(b[0:])
	a.GID = [2]uint64{le.Uint64(b[8:]), le.Uint64(b[16:])}
	a.QPNum, a.LID = le.Uint32(b[24:]), le.Uint16(b[28:])
	a.Flags, a.Version = b[30], b[31]
	a.DCKey = le.Uint32(b[32:])
	for i := range a.Rkey {
		a.Rkey[i] = le.Uint32(b[36+4*i:])
	}
	a.Nkeys = le.Uint32(b[100:])
}

// RDMAInfo is what GET_RDMA_REG_INFO answers (48 bytes).
type RDMAInfo struct {
	Version  uint8
	Flags    uint8
	LID      uint16
	QPNum    uint32
	RemVAddr uint64
	Size     uint32
	Rkey     uint32
	GID      [2]uint64
	DCKey    uint32
}

// RDMAInfoAt is where the information stands in the argument, behind cpuvaddr
// and gpu_buf_offset.
const RDMAInfoAt = 16

// Encode writes the information to the beginning of b.
func (r *RDMAInfo) Encode(b []byte) {
	b[0], b[1] = r.Version, r.Flags
	le.PutUint16(b[2:], r.LID)
	le.PutUint32(b[4:], r.QPNum)
	le.PutUint64(b[8:], r.RemVAddr)
	le.PutUint32(b[16:], r.Size)
	le.PutUint32(b[20:], r.Rkey)
	le.PutUint64(b[24:], r.GID[0])
	le.PutUint64(b[32:], r.GID[1])
	le.PutUint32(b[40:], r.DCKey)
}

// Decode reads it.
func (r *RDMAInfo) Decode(b []byte) {
	r.Version, r.Flags = b[0], b[1]
	r.LID, r.QPNum = le.Uint16(b[2:]), le.Uint32(b[4:])
	r.RemVAddr = le.Uint64(b[8:])
	r.Size, r.Rkey = le.Uint32(b[16:]), le.Uint32(b[20:])
	r.GID = [2]uint64{le.Uint64(b[24:]), le.Uint64(b[32:])}
	r.DCKey = le.Uint32(b[40:])
}
