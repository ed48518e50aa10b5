package vfio

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ioctl makes a request with a number as its argument, or none.
func ioctl(f *os.File, name string, req, arg uintptr) (int, error) {
	return control(f, name, func(fd uintptr) (uintptr, unix.Errno) {
		n, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, req, arg)
		return n, errno
	})
}

// ioctlOn makes a request with a struct.
func ioctlOn[T any](f *os.File, name string, req uintptr, arg *T) (int, error) {
	return control(f, name, func(fd uintptr) (uintptr, unix.Errno) {
		n, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, req, uintptr(unsafe.Pointer(arg)))
		return n, errno
	})
}

func control(f *os.File, name string, call func(fd uintptr) (uintptr, unix.Errno)) (int, error) {
	conn, err := f.SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("%s: %w", f.Name(), err)
	}
	var n uintptr
	var errno unix.Errno
	if err := conn.Control(func(fd uintptr) { n, errno = call(fd) }); err != nil {
		return 0, fmt.Errorf("%s: %w", f.Name(), err)
	}
	if errno != 0 {
		return 0, fmt.Errorf("%s: %s: %w", f.Name(), name, errno)
	}
	return int(n), nil
}

// deviceFD asks a group for one of its devices.
func deviceFD(group *os.File, pci string) (int, error) {
	name, err := unix.BytePtrFromString(pci)
	if err != nil {
		return 0, err
	}
	return ioctlOn(group, "VFIO_GROUP_GET_DEVICE_FD", VFIO_GROUP_GET_DEVICE_FD, name)
}

// setContainer puts a group into a container.
func setContainer(group, container *os.File) error {
	conn, err := container.SyscallConn()
	if err != nil {
		return err
	}
	cerr := conn.Control(func(fd uintptr) {
		n := int32(fd)
		_, err = ioctlOn(group, "VFIO_GROUP_SET_CONTAINER", VFIO_GROUP_SET_CONTAINER, &n)
	})
	if cerr != nil {
		return cerr
	}
	return err
}

// setEventfds has MSI-X vectors, from the first on, signal event counters.
func setEventfds(device *os.File, fds []int32) error {
	size := int(unsafe.Sizeof(irqSet{})) + 4*len(fds)
	buf := make([]uint32, (size+3)/4)
	set := (*irqSet)(unsafe.Pointer(&buf[0]))
	*set = irqSet{
		Argsz: uint32(size), Flags: VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER,
		Index: VFIO_PCI_MSIX_IRQ_INDEX, Count: uint32(len(fds)),
	}
	for i, fd := range fds {
		buf[5+i] = uint32(fd)
	}
	_, err := ioctlOn(device, "VFIO_DEVICE_SET_IRQS", VFIO_DEVICE_SET_IRQS, &buf[0])
	return err
}

// iovaRanges are the bus addresses that an IOMMU accepts.
func iovaRanges(container *os.File) ([]iovaRange, error) {
	info := iommuInfo{Argsz: uint32(unsafe.Sizeof(iommuInfo{}))}
	if _, err := ioctlOn(container, "VFIO_IOMMU_GET_INFO", VFIO_IOMMU_GET_INFO, &info); err != nil {
		return nil, err
	}
	if info.Argsz <= uint32(unsafe.Sizeof(info)) {
		return nil, nil // an old kernel that does not tell
	}
	buf := make([]uint64, (info.Argsz+7)/8)
	full := (*iommuInfo)(unsafe.Pointer(&buf[0]))
	full.Argsz = info.Argsz
	if _, err := ioctlOn(container, "VFIO_IOMMU_GET_INFO", VFIO_IOMMU_GET_INFO, full); err != nil {
		return nil, err
	}
	return parseRanges(unsafe.Slice((*byte)(unsafe.Pointer(&buf[0])), len(buf)*8)), nil
}

// parseRanges walks the capabilities behind an iommuInfo.
func parseRanges(b []byte) []iovaRange {
	if len(b) < int(unsafe.Sizeof(iommuInfo{})) {
		return nil
	}
	info := at[iommuInfo](b, 0)
	if info.Flags&VFIO_IOMMU_INFO_CAPS == 0 {
		return nil
	}
	for off, seen := int(info.CapOffset), 0; off > 0 && off+int(unsafe.Sizeof(iovaCap{})) <= len(b) && seen < 64; seen++ {
		c := at[iovaCap](b, off)
		if c.Header.ID == VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE {
			var list []iovaRange
			for i := range int(c.NrIovas) {
				o := off + int(unsafe.Sizeof(iovaCap{})) + i*int(unsafe.Sizeof(iovaRange{}))
				if o+int(unsafe.Sizeof(iovaRange{})) > len(b) {
					break
				}
				list = append(list, at[iovaRange](b, o))
			}
			return list
		}
		off = int(c.Header.Next)
	}
	return nil
}

// at is a copy of a struct in bytes that may lie anywhere.
func at[T any](b []byte, off int) (v T) {
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&v)), unsafe.Sizeof(v)), b[off:])
	return v
}

func addrOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(&b[0]))) }

// sizeOf is what a request's argsz says.
func sizeOf[T any]() uintptr {
	var v T
	return unsafe.Sizeof(v)
}
