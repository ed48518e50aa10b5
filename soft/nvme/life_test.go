package nvme_test

import (
	"testing"

	"pgregory.net/rapid"

	abi "github.com/culvert-io/culvert/internal/abi/nvme"
	"github.com/culvert-io/culvert/soft/nvme"
)

// TestQueuesLiveAndDie creates and deletes queues at random, resets the
// controller now and then, and compares what it answers with what the
// specification says about queues that exist and that do not.
func TestQueuesLiveAndDie(t *testing.T) {
	const ids = 4 // of which the last one is too many
	r := newRaw(t, options{cfg: nvme.Config{Queues: ids - 1, Entries: 8}})
	r.enable(8)
	data := r.alloc(1)
	var qs [ids + 1]*rawQueue
	for id := range qs {
		qs[id] = &rawQueue{r: r, id: uint16(id), n: 4, sq: r.alloc(1), cq: r.alloc(1), stride: r.admin.stride}
	}
	rapid.Check(t, func(rt *rapid.T) {
		r.t = rt
		defer func() { r.t = t }()
		r.disable() // all queues are gone with that
		r.enableAgain()
		cqs, sqs := map[uint16]bool{}, map[uint16]uint16{} // submission queues have the completion queue behind them
		used := func(cq uint16) bool {
			for _, c := range sqs {
				if c == cq {
					return true
				}
			}
			return false
		}
		draw := func(what string) uint16 { return rapid.Uint16Range(0, ids).Draw(rt, what) }
		bad := func(id uint16) bool { return id == 0 || id >= ids }
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			id := draw("id")
			want := abi.Status(abi.SUCCESS)
			var cmd abi.Command
			switch rapid.IntRange(0, 5).Draw(rt, "what") {
			case 0:
				cmd = qs[id].createCQ()
				cmd.CDW11 &= abi.QUEUE_PC
				if bad(id) || cqs[id] {
					want = abi.INVALID_QUEUE_ID
				} else {
					cqs[id] = true
					clear(r.mem[qs[id].cq:][:page])
					qs[id].head, qs[id].phase = 0, true
				}
			case 1:
				cq := draw("completion queue")
				cmd = qs[id].createSQ(cq)
				_, there := sqs[id]
				switch {
				case bad(id):
					want = abi.INVALID_QUEUE_ID
				case !cqs[cq]:
					want = abi.CQ_INVALID
				case there:
					want = abi.INVALID_QUEUE_ID
				default:
					sqs[id] = cq
					qs[id].tail = 0
				}
			case 2:
				cmd = abi.Command{Opcode: abi.ADMIN_DELETE_SQ, CDW10: uint32(id)}
				if _, there := sqs[id]; !there {
					want = abi.INVALID_QUEUE_ID
				}
				delete(sqs, id)
			case 3:
				cmd = abi.Command{Opcode: abi.ADMIN_DELETE_CQ, CDW10: uint32(id)}
				switch {
				case !cqs[id]:
					want = abi.INVALID_QUEUE_ID
				case used(id):
					want = abi.INVALID_QUEUE_DELETION
				default:
					delete(cqs, id)
				}
			default:
				if cq, there := sqs[id]; there {
					q := qs[id]
					q.push(r.rw(abi.NVM_READ, 0, 1, data))
					q.ring()
					if e := r.must(qs[cq].pop(true)); e.SQID != id {
						rt.Fatalf("a command of queue %d was answered for queue %d", id, e.SQID)
					}
				}
				continue
			}
			if got := abi.StatusOf(r.admin.do(cmd).DW3).Code(); got != want {
				rt.Fatalf("opcode %#x for queue %d: %v, want %v", cmd.Opcode, id, got, want)
			}
		}
	})
}
