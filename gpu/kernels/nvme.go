package kernels

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"time"

	"github.com/culvert-io/culvert/gpu"
)

// An NVMe is the argument of culvert_nvme: a queue pair of an NVMe controller and
// commands for it. Each command transfers 64 KiB. Its number in the launch is its
// command id.
type NVMe struct {
	SQ, CQ                 gpu.Addr // the rings
	SQDoorbell, CQDoorbell gpu.Addr
	Lists                  gpu.Addr // memory for a PRP list of NVMeList bytes per command
	ListsBus               uint64   // its bus address
	Pages                  gpu.Addr // bus addresses of the data's pages, 8 bytes each
	LBA                    uint64   // of the first command
	Entries                uint32   // of either ring
	NSID                   uint32
	Opcode                 uint32
	Blocks                 uint32 // of a command
	Count                  uint32 // commands: at most NVMeCommands
	Looks                  uint32 // polls without a completion until the kernel gives up

	// Positions in the rings, which the kernel updates. A new pair has phase 1.
	Tail, Head, Phase uint32

	// Results of the launch.
	Done     uint32 // completed commands
	Strays   uint32 // completions of no command; more than Count end the launch
	Status   uint32 // of the first failed command: dword 3 from bit 17
	Failed   uint32 // its number
	Reserved uint32
	Answered [NVMeCommands / 32]uint32 // a bit for each command
}

const (
	// NVMeCommands is the largest number of commands of a launch.
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

// Append appends the words as they are in memory.
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
	raw, err := loadAligned(l.Mem, at, NVMeSize)
	if err != nil {
		return err
	}
	var q NVMe
	if err := q.Decode(raw); err != nil {
		return err
	}
	if q.Count > NVMeCommands || q.Entries < 2 {
		return fmt.Errorf("invalid queue: %d commands for rings of %d entries: %w", q.Count, q.Entries, gpu.ErrIllegalAddress)
	}
	if err := q.run(l.Mem); err != nil {
		return err
	}
	return storeAligned(l.Mem, at, q.Append(nil))
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

// giveWay lets the software drive run, which shares the processors.
func giveWay(looks uint32) {
	if looks%256 != 0 {
		runtime.Gosched()
		return
	}
	time.Sleep(10 * time.Microsecond)
}

// put writes command n and its PRP list.
func (q *NVMe) put(m Mem, n uint32) error {
	le := binary.LittleEndian
	raw, err := loadAligned(m, q.Pages+gpu.Addr(n)*8, 8)
	if err != nil {
		return err
	}
	bus := le.Uint64(raw)
	var list []byte
	for off := uint64(nvmePage); off < nvmeData; off += nvmePage {
		list = le.AppendUint64(list, bus+off)
	}
	if err := storeAligned(m, q.Lists+gpu.Addr(n)*NVMeList, list); err != nil {
		return err
	}
	var cmd [nvmeCommand]byte
	le.PutUint32(cmd[0:], n<<16|q.Opcode)
	le.PutUint32(cmd[4:], q.NSID)
	le.PutUint64(cmd[24:], bus)
	le.PutUint64(cmd[32:], q.ListsBus+uint64(n)*NVMeList)
	le.PutUint64(cmd[40:], q.LBA+uint64(n)*uint64(q.Blocks))
	le.PutUint32(cmd[48:], q.Blocks-1)
	if err := storeAligned(m, q.SQ+gpu.Addr(q.Tail)*nvmeCommand, cmd[:]); err != nil {
		return err
	}
	if q.Tail++; q.Tail == q.Entries {
		q.Tail = 0
	}
	return nil
}

// take processes the last word of a completion.
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
