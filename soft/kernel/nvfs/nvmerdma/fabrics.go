package nvmerdma

import (
	"context"
	"io"
	"net"

	"github.com/culvert-io/culvert/rdma"
)

// Fabrics is NVMe over Fabrics on verbs.
type Fabrics interface {
	// Serve serves namespaces 1, 2, … with blocks of 4096 bytes until ctx ends. When it
	// returns, nothing uses them.
	Serve(ctx context.Context, l net.Listener, dev rdma.Device, namespaces []Backing) error
	// Connect connects a host with the target that dial reaches.
	Connect(ctx context.Context, dev rdma.Device, dial func(context.Context) (net.Conn, error)) (Controller, error)
}

// A Backing has the bytes of a namespace. It is safe for concurrent use.
type Backing interface {
	io.ReaderAt
	io.WriterAt
	Sync() error
}

// A Controller is a connection of a host. It is safe for concurrent use.
type Controller interface {
	// PD is the domain in which the memory of commands is registered.
	PD() rdma.PD
	// MaxTransfer is how many bytes a command can move.
	MaxTransfer() int
	// Move reads or writes all of a region, at an offset of a namespace. It returns the
	// status of the completion, or an error if there was none: the queue is lost then,
	// and the target does not reach the region any more.
	Move(ctx context.Context, namespace uint32, write bool, mr rdma.MR, off int64) (status uint16, err error)
	// Close ends all queues. Regions must have been closed.
	Close() error
}
