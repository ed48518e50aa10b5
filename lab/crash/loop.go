package crash

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// attaching is locked while a free device is found and used.
var attaching sync.Mutex

// attach makes a file a block device.
func attach(f *os.File, sector int) (*os.File, error) {
	attaching.Lock()
	defer attaching.Unlock()
	ctl, err := os.Open("/dev/loop-control")
	if err != nil {
		return nil, err
	}
	defer ctl.Close()
	n, err := unix.IoctlRetInt(int(ctl.Fd()), unix.LOOP_CTL_GET_FREE)
	if err != nil {
		return nil, os.NewSyscallError("LOOP_CTL_GET_FREE", err)
	}
	dev, err := os.OpenFile(fmt.Sprintf("/dev/loop%d", n), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	fd := int(dev.Fd())
	if err := unix.IoctlSetInt(fd, unix.LOOP_SET_FD, int(f.Fd())); err != nil {
		dev.Close()
		return nil, os.NewSyscallError("LOOP_SET_FD", err)
	}
	if err := unix.IoctlSetInt(fd, unix.LOOP_SET_BLOCK_SIZE, sector); err != nil {
		return nil, errors.Join(os.NewSyscallError("LOOP_SET_BLOCK_SIZE", err), detach(dev))
	}
	return dev, nil
}

func detach(dev *os.File) error {
	err := os.NewSyscallError("LOOP_CLR_FD", unix.IoctlSetInt(int(dev.Fd()), unix.LOOP_CLR_FD, 0))
	return errors.Join(err, dev.Close())
}
