package verbsapi

import (
	"context"
	"encoding/binary"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/rdma"
)

// A channel is the writing end of a completion channel. Events are the IDs of completion
// queues, 8 bytes each.
type channel struct{ *os.File }

// CreateChannel makes a channel; the program reads from fd.
func (a *API) CreateChannel(out, fd cmem.Ptr) error {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return err
	}
	// A goroutine that waits for a full pipe must not keep a thread.
	if err := unix.SetNonblock(p[1], true); err != nil {
		_, _ = unix.Close(p[0]), unix.Close(p[1]) // the first error is reported
		return err
	}
	c := &channel{os.NewFile(uintptr(p[1]), "completion channel")}
	cmem.Store(fd, int32(p[0]))
	return add(a.channels, out, c, c.Close)
}

// DestroyChannel closes the writing end.
func (a *API) DestroyChannel(id handle.ID) error {
	return remove(a.channels, id, "completion channel")
}

// A queue is a completion queue.
type queue struct {
	rdma.CQ
	owned
	mu  sync.Mutex
	wcs [16]rdma.WC // of the poll in progress
}

// CreateCQ makes a completion queue, whose events go to a channel unless that is 0.
func (a *API) CreateCQ(in handle.ID, n int32, events handle.ID, out cmem.Ptr) error {
	d, err := find(a.contexts, in, "context")
	if err != nil {
		return err
	}
	var to *channel
	if events != 0 {
		if to, err = find(a.channels, events, "completion channel"); err != nil {
			return err
		}
	}
	cq, err := d.CreateCQ(int(n))
	if err != nil {
		return err
	}
	q := &queue{CQ: cq, owned: owned{in}}
	if err := add(a.queues, out, q, q.Close); err != nil {
		return err
	}
	if to != nil {
		go q.report(cmem.Load[handle.ID](out), to)
	}
	return nil
}

// report writes events until the queue is destroyed.
func (q *queue) report(id handle.ID, to *channel) {
	var b [8]byte
	le.PutUint64(b[:], uint64(id))
	for q.Wait(context.Background()) == nil {
		if _, err := to.Write(b[:]); err != nil {
			return // the channel was destroyed
		}
	}
}

// DestroyCQ fails with EBUSY while queue pairs use it.
func (a *API) DestroyCQ(id handle.ID) error { return remove(a.queues, id, "completion queue") }

// ArmCQ requests an event.
func (a *API) ArmCQ(id handle.ID, solicited int32) error {
	q, err := find(a.queues, id, "completion queue")
	if err != nil {
		return err
	}
	return q.Arm(solicited != 0)
}

// PollCQ stores up to room completions as struct ibv_wc.
func (a *API) PollCQ(id handle.ID, room int32, list cmem.Ptr) (int64, error) {
	q, err := find(a.queues, id, "completion queue")
	if err != nil {
		return 0, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	done := 0
	for done < int(room) {
		n, err := q.Poll(q.wcs[:min(len(q.wcs), int(room)-done)])
		if err != nil {
			return 0, err
		}
		if n == 0 {
			break
		}
		// The program's own memory, as the C library would write it.
		b := cmem.Bulk(list+cmem.Ptr(done*wcSize), n*wcSize)
		for i := range n {
			putWC(b[i*wcSize:], &q.wcs[i])
		}
		done += n
	}
	return int64(done), nil
}

const wcSize = 48

func putWC(b []byte, w *rdma.WC) {
	le.PutUint64(b, w.ID)
	le.PutUint32(b[8:], uint32(w.Status))
	le.PutUint32(b[12:], uint32(w.Op))
	le.PutUint32(b[16:], w.VendorErr)
	le.PutUint32(b[20:], w.Len)
	binary.BigEndian.PutUint32(b[24:], w.Imm)
	le.PutUint32(b[28:], w.QPNum)
	le.PutUint32(b[32:], w.SrcQP)
	le.PutUint32(b[36:], uint32(w.Flags))
	le.PutUint64(b[40:], 0) // partition key, LIDs, service level
}
