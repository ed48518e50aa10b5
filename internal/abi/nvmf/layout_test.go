package nvmf

import (
	"testing"

	"github.com/culvert-io/culvert/internal/abi/cproof"
)

// header declares the structs once more, in C, with the sizes of nvme-rdma.h and nvme.h.
const header = `
struct cm_req { uint16_t recfmt, qid, hrqsize, hsqsize, cntlid; uint8_t rsvd[22]; };
struct cm_rep { uint16_t recfmt, crqsize; uint8_t rsvd[28]; };
struct cm_rej { uint16_t recfmt, sts; };
struct keyed { uint64_t addr; uint8_t length[3], key[4], type; };
union dptr { struct { uint64_t prp1, prp2; }; struct keyed ksgl; };
struct connect { uint8_t opcode, resv1; uint16_t command_id; uint8_t fctype, resv2[19]; union dptr dptr;
	uint16_t recfmt, qid, sqsize; uint8_t cattr, resv3; uint32_t kato; uint8_t resv4[12]; };
struct connect_data { uint8_t hostid[16]; uint16_t cntlid; char resv4[238], subsysnqn[256], hostnqn[256], resv5[256]; };
struct property { uint8_t opcode, resv1; uint16_t command_id; uint8_t fctype, resv2[35], attrib, resv3[3];
	uint32_t offset; uint64_t value, resv4; };
`

func TestLayoutsAgainstC(t *testing.T) {
	cproof.Check(t, header, []cproof.Layout{
		{C: "struct cm_req", Members: "recfmt qid hrqsize hsqsize cntlid", Go: RDMARequest{}},
		{C: "struct cm_rep", Members: "recfmt crqsize", Go: RDMAAccept{}},
		{C: "struct cm_rej", Members: "recfmt sts", Go: RDMAReject{}},
		{C: "struct connect", Members: "opcode command_id fctype dptr recfmt qid sqsize cattr kato", Go: ConnectCommand{}},
		{C: "struct connect_data", Members: "hostid cntlid subsysnqn hostnqn", Go: ConnectData{}},
		{C: "struct property", Members: "opcode command_id fctype attrib offset value", Go: PropertyCommand{}},
	})
	cproof.Numbers(t, header, map[string]uint64{
		"sizeof(struct cm_req)":        RDMARequestSize,
		"sizeof(struct cm_rep)":        RDMAAcceptSize,
		"sizeof(struct cm_rej)":        RDMARejectSize,
		"sizeof(struct connect_data)":  ConnectDataSize,
		"offsetof(struct keyed, key)":  11,
		"offsetof(struct keyed, type)": 15,
	})
}
