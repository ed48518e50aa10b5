package vfio

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	abi "github.com/culvert-io/culvert/internal/abi/vfio"
)

// ioctl makes a request with a number as its argument, or none.
func ioctl(f *os.File, req abi.Request, arg uintptr) (int, error) {
	conn, err := f.SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("%s: %w", f.Name(), err)
	}
	var n uintptr
	var errno unix.Errno
	err = conn.Control(func(fd uintptr) { n, _, errno = unix.Syscall(unix.SYS_IOCTL, fd, uintptr(req), arg) })
	if err != nil {
		return 0, fmt.Errorf("%s: %w", f.Name(), err)
	}
	if errno != 0 {
		return 0, fmt.Errorf("%s: %v: %w", f.Name(), req, errno)
	}
	return int(n), nil
}

// ioctlOn makes a request with a struct.
func ioctlOn[T any](f *os.File, req abi.Request, arg *T) error {
	var pin runtime.Pinner
	pin.Pin(arg)
	defer pin.Unpin()
	_, err := ioctl(f, req, uintptr(unsafe.Pointer(arg)))
	return err
}

// deviceFD opens a device of a group.
func deviceFD(group *os.File, pci string) (int, error) {
	name, err := unix.BytePtrFromString(pci)
	if err != nil {
		return 0, err
	}
	var pin runtime.Pinner
	pin.Pin(name)
	defer pin.Unpin()
	return ioctl(group, abi.VFIO_GROUP_GET_DEVICE_FD, uintptr(unsafe.Pointer(name)))
}

// setContainer puts a group into a container.
func setContainer(group, container *os.File) error {
	conn, err := container.SyscallConn()
	if err != nil {
		return err
	}
	cerr := conn.Control(func(fd uintptr) {
		n := int32(fd)
		err = ioctlOn(group, abi.VFIO_GROUP_SET_CONTAINER, &n)
	})
	return errors.Join(cerr, err)
}

// setEventfds connects MSI-X vectors, starting with the first, to event counters.
func setEventfds(device *os.File, fds []int32) error {
	const header = int(unsafe.Sizeof(abi.IRQSet{})) / 4
	buf := make([]uint32, header+len(fds))
	*(*abi.IRQSet)(unsafe.Pointer(&buf[0])) = abi.IRQSet{
		Argsz: uint32(4 * len(buf)), Flags: abi.VFIO_IRQ_SET_DATA_EVENTFD | abi.VFIO_IRQ_SET_ACTION_TRIGGER,
		Index: abi.VFIO_PCI_MSIX_IRQ_INDEX, Count: uint32(len(fds)),
	}
	for i, fd := range fds {
		buf[header+i] = uint32(fd)
	}
	return ioctlOn(device, abi.VFIO_DEVICE_SET_IRQS, &buf[0])
}

// iovaRanges are the bus addresses that the IOMMU accepts, or none if the kernel
// does not report them.
func iovaRanges(container *os.File) ([]abi.IOVARange, error) {
	info := abi.IOMMUInfo{Argsz: sizeOf[abi.IOMMUInfo]()}
	if err := ioctlOn(container, abi.VFIO_IOMMU_GET_INFO, &info); err != nil {
		return nil, err
	}
	if info.Argsz <= uint32(unsafe.Sizeof(info)) {
		return nil, nil
	}
	buf := make([]uint64, (info.Argsz+7)/8)
	full := (*abi.IOMMUInfo)(unsafe.Pointer(&buf[0]))
	full.Argsz = info.Argsz
	if err := ioctlOn(container, abi.VFIO_IOMMU_GET_INFO, full); err != nil {
		return nil, err
	}
	return parseRanges(unsafe.Slice((*byte)(unsafe.Pointer(&buf[0])), len(buf)*8)), nil
}

// parseRanges reads the capabilities that follow an abi.IOMMUInfo.
func parseRanges(b []byte) []abi.IOVARange {
	if len(b) < int(unsafe.Sizeof(abi.IOMMUInfo{})) {
		return nil
	}
	info := at[abi.IOMMUInfo](b, 0)
	if info.Flags&abi.VFIO_IOMMU_INFO_CAPS == 0 {
		return nil
	}
	for off, seen := int(info.CapOffset), 0; off > 0 && off+int(unsafe.Sizeof(abi.IOVACap{})) <= len(b) && seen < 64; seen++ {
		c := at[abi.IOVACap](b, off)
		if c.Header.ID == abi.VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE {
			var list []abi.IOVARange
			for i := range int(c.NrIovas) {
				o := off + int(unsafe.Sizeof(abi.IOVACap{})) + i*int(unsafe.Sizeof(abi.IOVARange{}))
				if o+int(unsafe.Sizeof(abi.IOVARange{})) > len(b) {
					break
				}
				list = append(list, at[abi.IOVARange](b, o))
			}
			return list
		}
		off = int(c.Header.Next)
	}
	return nil
}

// at is a copy of a struct in b, at any alignment.
func at[T any](b []byte, off int) (v T) {
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&v)), unsafe.Sizeof(v)), b[off:])
	return v
}

func addrOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(&b[0]))) }

// sizeOf is the Argsz of a struct.
func sizeOf[T any]() uint32 {
	var v T
	return uint32(unsafe.Sizeof(v))
}
