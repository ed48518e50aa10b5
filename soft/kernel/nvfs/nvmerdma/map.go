package nvmerdma

import (
	"errors"
	"syscall"

	"github.com/culvert-io/culvert/rdma"
	"github.com/culvert-io/culvert/soft/kernel/nvfs"
	"github.com/culvert-io/culvert/soft/nvme/dma"
	"github.com/culvert-io/culvert/soft/pcie"
)

// A command is a part of a request that one NVMe command moves, with its memory.
type command struct {
	m     *Module
	s     *session
	write bool
	off   int64
	pages []nvfs.Page

	sg     []nvfs.SG // GPU memory, mapped by nvidia-fs
	cpu    *dma.Map  // or ordinary memory
	ranges []pcie.Range
	mr     rdma.MR
}

// dmaMapReq is nvme_rdma_dma_map_req: it maps the memory of a command for the adapter. What
// nvidia-fs does not know is ordinary memory.
func (c *command) dmaMapReq() error {
	if isNVFS, err := c.nvfsMapData(); isNVFS {
		return err
	}
	c.m.stats.cpu.Add(1)
	mem := nvfs.Memory(c.pages)
	var err error
	if c.cpu, err = dma.Host(c.m.nic.Function(), mem, nil); err != nil {
		return errors.Join(syscall.EIO, err)
	}
	for _, bus := range c.cpu.Addrs {
		c.ranges = append(c.ranges, pcie.Range{Bus: bus, Len: dma.HostPage})
	}
	return nil
}

// nvfsMapData is nvme_rdma_nvfs_map_data. An error of nvidia-fs fails the request: pages
// that stand for GPU memory must not be filled instead.
func (c *command) nvfsMapData() (isNVFS bool, err error) {
	var n int
	c.sg, n = c.m.ops.BlkRqMapSG(c.pages, nil)
	if n == nvfs.NoGPUPages {
		return false, nil
	}
	if n < 0 || c.m.ops.DMAMapSGAttrs(c.m.nic.Function(), c.sg) < 0 {
		c.sg = nil
		c.m.stats.mapErrors.Add(1)
		return true, syscall.EIO
	}
	c.m.stats.gpu.Add(1)
	for i := range c.sg {
		c.ranges = append(c.ranges, pcie.Range{Bus: c.sg[i].Bus, Len: c.sg[i].Len})
	}
	return true, nil
}

// mapData is nvme_rdma_map_data: it maps the memory and makes a region of it, which the
// target may only write, or only read.
func (c *command) mapData() error {
	if err := c.dmaMapReq(); err != nil {
		return err
	}
	access := rdma.LocalWrite | rdma.RemoteWrite
	if c.write {
		access = rdma.RemoteRead
	}
	var err error
	if c.mr, err = c.m.nic.MapSG(c.s.ctrl.PD(), c.ranges, access); err != nil {
		c.unmapData()
		return errors.Join(syscall.EIO, err)
	}
	return nil
}

// unmapData is nvme_rdma_unmap_data. The key is invalidated first: then the target does not
// reach the memory.
func (c *command) unmapData() {
	if c.mr != nil {
		_ = c.mr.Close() // it was made here, once
	}
	switch {
	case c.cpu != nil:
		_ = c.cpu.Unmap() // it was mapped here, once
	case c.sg != nil:
		c.m.ops.DMAUnmapSG(c.sg)
	}
	c.mr, c.cpu, c.sg, c.ranges = nil, nil, nil, nil
}
