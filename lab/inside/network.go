package inside

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// SetAddress gives an interface an IPv4 address and enables it.
func SetAddress(name string, p netip.Prefix) error {
	if err := setAddress(name, p); err != nil {
		return fmt.Errorf("address %v of %s: %w", p, name, err)
	}
	return nil
}

func setAddress(name string, p netip.Prefix) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	// The address sets the mask of its class, so that the mask comes after it.
	for _, r := range []struct {
		request uint
		value   []byte
	}{{unix.SIOCSIFADDR, p.Addr().AsSlice()}, {unix.SIOCSIFNETMASK, net.CIDRMask(p.Bits(), 32)}} {
		if err := ifr.SetInet4Addr(r.value); err != nil {
			return err
		}
		if err := unix.IoctlIfreq(fd, r.request, ifr); err != nil {
			return err
		}
	}
	ifr.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr)
}

// From rdma/rdma_netlink.h: the message that adds a link, and its attributes.
const (
	nldevNewLink  = 5<<10 | 3 // RDMA_NLDEV_CMD_NEWLINK of the client RDMA_NL_NLDEV
	attrDevName   = 2
	attrNetDev    = 51
	attrLinkType  = 65
	ackSize       = 36
	netlinkHeader = 16
)

// AddRXE makes a software RoCE device on a network interface, as
// rdma link add NAME type rxe netdev INTERFACE does.
func AddRXE(name, netdev string) error {
	if err := addRXE(name, netdev); err != nil {
		return fmt.Errorf("add software RoCE device %s on %s: %w", name, netdev, err)
	}
	return nil
}

func addRXE(name, netdev string) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_RDMA)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	m := make([]byte, netlinkHeader)
	for _, a := range []struct {
		kind  uint16
		value string
	}{{attrDevName, name}, {attrLinkType, "rxe"}, {attrNetDev, netdev}} {
		m = binary.LittleEndian.AppendUint16(m, uint16(4+len(a.value)+1))
		m = binary.LittleEndian.AppendUint16(m, a.kind)
		m = append(append(m, a.value...), 0)
		m = append(m, make([]byte, -len(m)&3)...)
	}
	binary.LittleEndian.PutUint32(m, uint32(len(m)))
	binary.LittleEndian.PutUint16(m[4:], nldevNewLink)
	binary.LittleEndian.PutUint16(m[6:], unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	if err := unix.Sendto(fd, m, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	ack := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, ack, 0)
	if err != nil {
		return err
	}
	if n < ackSize || binary.LittleEndian.Uint16(ack[4:]) != unix.NLMSG_ERROR {
		return fmt.Errorf("the kernel answered %d bytes that are no acknowledgement", n)
	}
	if errno := -int32(binary.LittleEndian.Uint32(ack[netlinkHeader:])); errno != 0 {
		return syscall.Errno(errno)
	}
	return nil
}
