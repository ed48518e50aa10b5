package nvfs

import (
	"encoding/binary"
	"fmt"
	"io/fs"
	"syscall"
	"unsafe"

	abi "github.com/culvert-io/culvert/internal/abi/nvfs"
)

// A Key tells storage on other hosts how a network adapter names the memory of a buffer, and
// which queue pair reaches it.
type Key struct {
	GID   [16]byte
	LID   uint16
	QPNum uint32
	RKey  uint32
	DCKey uint32 // of a dynamically connected target
}

// keyVersion is that of the module's interface.
const keyVersion = abi.MIN_RDMA_VER

// SetKey passes the key to nvidia-fs, whose storage drivers may ask for it. The memory must
// stay registered until ClearKey.
func (b *Buffer) SetKey(k Key) error {
	return b.keyCall("set key", abi.NVFS_IOCTL_SET_RDMA_REG_INFO, func(cpu uint64) {
		a := abi.SetRDMAArgs{
			CPUVAddr: cpu, QPNum: k.QPNum, LID: k.LID, Version: keyVersion, DCKey: k.DCKey, Rkey: [abi.MAX_RDMA_KEYS]uint32{k.RKey}, Nkeys: 1,
			GID: [2]uint64{binary.LittleEndian.Uint64(k.GID[:]), binary.LittleEndian.Uint64(k.GID[8:])},
		}
		a.Encode(b.arg[:])
	})
}

// Key returns what nvidia-fs tells storage about the buffer from an offset on: the key, the
// address that goes with it, and the bytes behind that. All are zero without SetKey.
func (b *Buffer) Key(off uint64) (k Key, addr uint64, n uint32, err error) {
	var info abi.RDMAInfo
	b.mu.Lock()
	defer b.mu.Unlock()
	err = b.keyCallLocked("get key", abi.NVFS_IOCTL_GET_RDMA_REG_INFO, func(cpu uint64) {
		clear(b.arg[:])
		binary.LittleEndian.PutUint64(b.arg[0:], cpu)
		binary.LittleEndian.PutUint64(b.arg[8:], off)
	})
	if err != nil {
		return k, 0, 0, err
	}
	info.Decode(b.arg[abi.RDMAInfoAt:])
	k = Key{LID: info.LID, QPNum: info.QPNum, RKey: info.Rkey, DCKey: info.DCKey}
	binary.LittleEndian.PutUint64(k.GID[:], info.GID[0])
	binary.LittleEndian.PutUint64(k.GID[8:], info.GID[1])
	return k, info.RemVAddr, info.Size, nil
}

// ClearKey removes the key.
func (b *Buffer) ClearKey() error {
	return b.keyCall("clear key", abi.NVFS_IOCTL_CLEAR_RDMA_REG_INFO, func(cpu uint64) {
		clear(b.arg[:])
		binary.LittleEndian.PutUint64(b.arg[0:], cpu)
	})
}

func (b *Buffer) keyCall(op string, req uintptr, encode func(cpu uint64)) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.keyCallLocked(op, req, encode)
}

// keyCallLocked issues a request whose errno is the answer; the others have it in the result.
func (b *Buffer) keyCallLocked(op string, req uintptr, encode func(cpu uint64)) error {
	err := error(fs.ErrClosed)
	if b.shadow != nil {
		encode(uint64(b.shadow.Addr()))
		err = b.c.node.Ioctl(req, unsafe.Pointer(b.arg))
	}
	if err == syscall.EPERM { //nolint:errorlint // a module without kernel RDMA answers -1
		err = fmt.Errorf("%w (nvidia-fs was built without kernel RDMA, or does not know the buffer)", err)
	}
	if err != nil {
		return fmt.Errorf("nvidia-fs buffer %#x+%#x: %s: %w", b.cfg.Addr, b.cfg.Size, op, err)
	}
	return nil
}
