package kernels

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"time"

	"github.com/culvert-io/culvert/gpu"
)

// An NVMe is what culvert_nvme works on: a pair of queues of an NVMe controller,
// and commands for it. Each command moves one page of 64 KiB of the data; it is
// number n of the launch, and n is its command id.
type NVMe struct {
	SQ, CQ                 gpu.Addr // the rings
	SQDoorbell, CQDoorbell gpu.Addr
	Lists                  gpu.Addr // room for a PRP list of NVMeList bytes for each command
	ListsBus               uint64   // where the controller sees it
	Pages                  gpu.Addr // of the bus addresses of the data's pages, 8 bytes each
	LBA                    uint64   // of the first command
	Entries                uint32   // of either ring
	NSID                   uint32
	Opcode                 uint32
	Blocks                 uint32 // of a command
	Count                  uint32 // commands: at most NVMeCommands
	Looks                  uint32 // at an entry that does not come, before the kernel gives up

	// Where the rings stand. The kernel carries them on from launch to launch;
	// a fresh pair has a phase of 1.
	Tail, Head, Phase uint32

	// What the launch did.
	Done     uint32 // commands that were answered
	Strays   uint32 // completions that answered nothing; more than Count end the launch
	Status   uint32 // of the first command that failed, as in dword 3 from bit 17 on
	Failed   uint32 // its number
	Reserved uint32
	Answered [NVMeCommands / 32]uint32 // a bit for each command
}

const (
	// NVMeCommands is how many commands a launch takes.
	NVMeCommands = 512
	// NVMeList is the size of a command's PRP list.
	NVMeList = 128
	// NVMeSize is the size of an NVMe in memory.
	NVMeSize = 184

	nvmePage    = 4096     // of the controller
	nvmeData    = 64 << 10 // of a command
	nvmeCommand = 64       // sizes of entries
	nvmeEntry   = 16
)

// Append adds the words to b as they stand in memory.
func (q *NVMe) Append(b []byte) []byte {
	b, _ = binary.Append(b, binary.LittleEndian, q) // its size is fixed
	return b
}

// Decode reads what Append wrote.
func (q *NVMe) Decode(b []byte) error {
	_, err := binary.Decode(b, binary.LittleEndian, q)
	return err
}

func nvme(l Launch) error {
	at := gpu.Addr(l.Args[0])
	raw, err := get(l.Mem, at, NVMeSize)
	if err != nil {
		return err
	}
	var q NVMe
	if err := q.Decode(raw); err != nil {
		return err
	}
	if q.Count > NVMeCommands || q.Entries < 2 {
		return fmt.Errorf("%d commands for rings of %d entries: %w", q.Count, q.Entries, gpu.ErrIllegalAddress)
	}
	if err := q.run(l.Mem); err != nil {
		return err
	}
	return put(l.Mem, at, q.Append(nil))
}

func (q *NVMe) run(m Mem) error {
	q.Done, q.Strays, q.Status, q.Failed, q.Answered = 0, 0, 0, 0, [len(q.Answered)]uint32{}
	var sent, looks uint32
	for q.Done < q.Count && q.Strays <= q.Count {
		before := sent
		for ; sent < q.Count && sent-q.Done < q.Entries-1; sent++ {
			if err := q.put(m, sent); err != nil {
				return err
			}
		}
		if sent != before {
			if err := withWord(m, q.SQDoorbell, 4, func(w word) { w.store(uint64(q.Tail)) }); err != nil {
				return err
			}
		}
		var dw3 uint32
		if err := withWord(m, q.CQ+gpu.Addr(q.Head)*nvmeEntry+12, 4, func(w word) { dw3 = uint32(w.load()) }); err != nil {
			return err
		}
		if dw3>>16&1 != q.Phase {
			if looks++; looks >= q.Looks {
				return nil
			}
			giveWay(looks)
			continue
		}
		looks = 0
		q.take(sent, dw3)
		if q.Head++; q.Head == q.Entries {
			q.Head = 0
			q.Phase ^= 1
		}
		if err := withWord(m, q.CQDoorbell, 4, func(w word) { w.store(uint64(q.Head)) }); err != nil {
			return err
		}
	}
	return nil
}

// giveWay lets the drive's half of the software machine run, which has the same
// processors.
func giveWay(looks uint32) {
	if looks%256 != 0 {
		runtime.Gosched()
		return
	}
	time.Sleep(10 * time.Microsecond)
}

// put writes command n and its list.
func (q *NVMe) put(m Mem, n uint32) error {
	le := binary.LittleEndian
	raw, err := get(m, q.Pages+gpu.Addr(n)*8, 8)
	if err != nil {
		return err
	}
	bus := le.Uint64(raw)
	var list []byte
	for off := uint64(nvmePage); off < nvmeData; off += nvmePage {
		list = le.AppendUint64(list, bus+off)
	}
	if err := put(m, q.Lists+gpu.Addr(n)*NVMeList, list); err != nil {
		return err
	}
	var cmd [nvmeCommand]byte
	le.PutUint32(cmd[0:], n<<16|q.Opcode)
	le.PutUint32(cmd[4:], q.NSID)
	le.PutUint64(cmd[24:], bus)
	le.PutUint64(cmd[32:], q.ListsBus+uint64(n)*NVMeList)
	le.PutUint64(cmd[40:], q.LBA+uint64(n)*uint64(q.Blocks))
	le.PutUint32(cmd[48:], q.Blocks-1)
	if err := put(m, q.SQ+gpu.Addr(q.Tail)*nvmeCommand, cmd[:]); err != nil {
		return err
	}
	if q.Tail++; q.Tail == q.Entries {
		q.Tail = 0
	}
	return nil
}

// take answers a command by the last word of its completion.
func (q *NVMe) take(sent, dw3 uint32) {
	n := dw3 & 0xffff
	if n >= sent || q.Answered[n/32]&(1<<(n%32)) != 0 {
		q.Strays++
		return
	}
	q.Answered[n/32] |= 1 << (n % 32)
	q.Done++
	if s := dw3 >> 17; s != 0 && q.Status == 0 {
		q.Status, q.Failed = s, n
	}
}

// get copies memory out of its segments.
func get(m Mem, a gpu.Addr, n uint64) ([]byte, error) {
	if a%8 != 0 {
		return nil, fmt.Errorf("%d bytes at %v: %w", n, a, gpu.ErrMisalignedAddress)
	}
	segs, err := bytesOf(m, a, n)
	if err != nil {
		return nil, err
	}
	raw := make([]byte, 0, n)
	for _, s := range segs {
		raw = append(raw, s...)
	}
	return raw, nil
}

// put copies into segments of memory.
func put(m Mem, a gpu.Addr, b []byte) error {
	if a%8 != 0 {
		return fmt.Errorf("%d bytes at %v: %w", len(b), a, gpu.ErrMisalignedAddress)
	}
	segs, err := bytesOf(m, a, uint64(len(b)))
	if err != nil {
		return err
	}
	for _, s := range segs {
		b = b[copy(s, b):]
	}
	return nil
}
