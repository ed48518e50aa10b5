//go:build linux

package machine

import (
	"context"
	"errors"
	"net"

	"github.com/culvert-io/culvert/nvme/fabrics"
	"github.com/culvert-io/culvert/rdma"
	"github.com/culvert-io/culvert/soft/kernel/nvfs/nvmerdma"
)

// overFabrics is package nvme/fabrics for the software machine's remote drive.
type overFabrics struct{}

const (
	remoteNQN    = "nqn.2026-01.io.culvert:soft"
	remoteQueues = 4
	remoteDepth  = 16
	remoteShift  = 12
)

// Serve implements nvmerdma.Fabrics.
func (overFabrics) Serve(ctx context.Context, l net.Listener, dev rdma.Device, namespaces []nvmerdma.Backing) error {
	cfg := fabrics.TargetConfig{Device: dev, NQN: remoteNQN, Model: "Culvert software drive", Queues: remoteQueues}
	for _, n := range namespaces {
		// More blocks than any file has: the file system knows the size.
		cfg.Drives = append(cfg.Drives, fabrics.Drive{Backing: n, Blocks: 1<<63>>remoteShift - 1, Shift: remoteShift})
	}
	t, err := fabrics.NewTarget(cfg)
	if err != nil {
		return err
	}
	return t.Serve(ctx, l)
}

// Connect implements nvmerdma.Fabrics.
func (overFabrics) Connect(ctx context.Context, dev rdma.Device, dial func(context.Context) (net.Conn, error)) (nvmerdma.Controller, error) {
	c, err := fabrics.Connect(ctx, fabrics.Config{Device: dev, NQN: remoteNQN, Queues: remoteQueues, Depth: remoteDepth, Dial: dial})
	if err != nil {
		return nil, err
	}
	return remoteController{c}, nil
}

type remoteController struct{ *fabrics.Controller }

// Move implements nvmerdma.Controller.
func (c remoteController) Move(ctx context.Context, namespace uint32, write bool, mr rdma.MR, off int64) (uint16, error) {
	ns := c.Namespaces()[namespace-1]
	move := ns.Read
	if write {
		move = ns.Write
	}
	err := move(ctx, mr, 0, mr.Len(), off)
	if e, ok := errors.AsType[*fabrics.CommandError](err); ok {
		return e.Status, nil
	}
	return 0, err
}
