package nvfs

// SetRDMAArgs are the arguments of SET_RDMA_REG_INFO (104 bytes).
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
func (a *SetRDMAArgs) Encode(b []byte) { encode(b, a) }

// Decode reads them.
func (a *SetRDMAArgs) Decode(b []byte) { decode(b, a) }

// RDMAInfo is the answer of GET_RDMA_REG_INFO (48 bytes, the last 4 unused).
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

// RDMAInfoAt is the offset of the information in the argument, after cpuvaddr
// and gpu_buf_offset.
const RDMAInfoAt = 16

// Encode writes the information to the beginning of b.
func (r *RDMAInfo) Encode(b []byte) { encode(b, r) }

// Decode reads it.
func (r *RDMAInfo) Decode(b []byte) { decode(b, r) }
