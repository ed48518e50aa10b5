package nvme

import (
	"encoding/binary"

	abi "github.com/culvert-io/culvert/internal/abi/nvme"
	"github.com/culvert-io/culvert/soft/pcie"
)

// prps collects the bus ranges of a command's n bytes of data.
func (w *worker) prps(cmd *abi.Command, n int) abi.Status {
	page := int(w.c.page.Load())
	w.ranges = w.ranges[:0]
	if cmd.PRP1%4 != 0 {
		return abi.PRP_OFFSET_INVALID | abi.STATUS_DNR
	}
	first := min(n, page-int(cmd.PRP1)&(page-1))
	w.ranges = append(w.ranges, pcie.Range{Bus: cmd.PRP1, Len: first})
	n -= first
	switch {
	case n == 0:
		return abi.SUCCESS
	case n <= page:
		return w.add(cmd.PRP2, page, n)
	}
	return w.prpList(cmd.PRP2, page, n)
}

// add appends a page of n bytes, or the part of it that is needed.
func (w *worker) add(prp uint64, page, n int) abi.Status {
	if prp&uint64(page-1) != 0 {
		return abi.PRP_OFFSET_INVALID | abi.STATUS_DNR
	}
	w.ranges = append(w.ranges, pcie.Range{Bus: prp, Len: min(n, page)})
	return abi.SUCCESS
}

// prpList follows a chain of lists for n bytes. Only n determines its length.
func (w *worker) prpList(list uint64, page, n int) abi.Status {
	if list%8 != 0 {
		return abi.PRP_OFFSET_INVALID | abi.STATUS_DNR
	}
	for {
		entries := (n + page - 1) / page
		room := (page - int(list)&(page-1)) / 8
		more := entries > room
		if more {
			entries = room
		}
		buf := w.list[:entries*8]
		if w.read(list, buf) != nil {
			return abi.DATA_TRANSFER_ERROR
		}
		w.c.stats.listed.Add(uint64(len(buf)))
		if more {
			entries--
		}
		for i := range entries {
			if s := w.add(binary.LittleEndian.Uint64(buf[i*8:]), page, n); s != abi.SUCCESS {
				return s
			}
			n -= min(n, page)
		}
		if !more {
			return abi.SUCCESS
		}
		list = binary.LittleEndian.Uint64(buf[entries*8:])
		if list&uint64(page-1) != 0 {
			return abi.PRP_OFFSET_INVALID | abi.STATUS_DNR
		}
	}
}

// read reads memory at a bus address.
func (w *worker) read(bus uint64, dst []byte) error {
	w.one[0] = pcie.Range{Bus: bus, Len: len(dst)}
	_, err := w.c.dma.Read(w.one[:], dst)
	return err
}
