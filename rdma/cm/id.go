package cm

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	abi "github.com/culvert-io/culvert/internal/abi/rdmacm"
	"github.com/culvert-io/culvert/internal/dl"
	"github.com/culvert-io/culvert/rdma"
)

// An id is a connection in the kernel, alone on its descriptor.
type id struct {
	file *os.File
	conn syscall.RawConn
	num  uint32
}

// openID opens a descriptor, which has no identifier yet.
func openID() (*id, error) {
	fd, err := unix.Open(abi.Device, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w (fix: modprobe rdma_ucm; in a container give it /dev/infiniband)", abi.Device, err)
	}
	i := &id{file: os.NewFile(uintptr(fd), abi.Device)}
	if i.conn, err = i.file.SyscallConn(); err != nil {
		return nil, errors.Join(err, i.file.Close())
	}
	return i, nil
}

func newID() (*id, error) {
	i, err := openID()
	if err != nil {
		return nil, err
	}
	out := new(abi.ID)
	const typeRC = 2
	// Without a number of the user's the kernel drops events.
	in := &abi.CreateID{UID: 1, Response: uint64(dl.Ref(out)), PS: abi.PS_TCP, QPType: typeRC}
	if err := do(i, "create an identifier", abi.CREATE_ID, in, sizeOf(out)); err != nil {
		return nil, errors.Join(err, i.file.Close())
	}
	i.num = out.ID
	return i, nil
}

// call runs a command that does not wait.
func (i *id) call(f func(fd uintptr) error) error {
	var err error
	cerr := i.conn.Control(func(fd uintptr) { err = f(fd) })
	return cmp.Or(cerr, err)
}

// event waits for the next event.
func (i *id) event(ctx context.Context) (*abi.Event, error) {
	if err := i.file.SetReadDeadline(time.Time{}); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = i.file.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	out := new(abi.Event)
	in := &abi.GetEvent{Response: uint64(dl.Ref(out))}
	var err error
	cerr := i.conn.Read(func(fd uintptr) bool {
		err = write(fd, "get an event", command(abi.GET_EVENT, in, sizeOf(out)))
		return !errors.Is(err, unix.EAGAIN)
	})
	runtime.KeepAlive(out)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if cerr != nil {
		return nil, cerr
	}
	return out, err
}

// expect waits for an event of a kind; any other is an error.
func (i *id) expect(ctx context.Context, kind uint32, step string) (*abi.Event, error) {
	e, err := i.event(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", step, err)
	}
	if e.Event != kind {
		return nil, fmt.Errorf("%s: %w", step, failure(e))
	}
	return e, nil
}

// resolve finds the way to an address, and the device.
func (i *id) resolve(ctx context.Context, to netip.AddrPort) (abi.Addresses, error) {
	in := &abi.ResolveIP{Dst: sockaddr(to), ID: i.num, Timeout: resolveTime}
	binary.NativeEndian.PutUint16(in.Src[:], family(to))
	if err := do(i, "resolve the address", abi.RESOLVE_IP, in, 0); err != nil {
		return abi.Addresses{}, fmt.Errorf("%w (fix: check that a device with a RoCE or IPoIB interface reaches it)", err)
	}
	if _, err := i.expect(ctx, abi.EVENT_ADDR_RESOLVED, "resolve the address"); err != nil {
		return abi.Addresses{}, err
	}
	route := &abi.ResolveRoute{ID: i.num, Timeout: resolveTime}
	if err := do(i, "resolve the route", abi.RESOLVE_ROUTE, route, 0); err != nil {
		return abi.Addresses{}, err
	}
	if _, err := i.expect(ctx, abi.EVENT_ROUTE_RESOLVED, "resolve the route"); err != nil {
		return abi.Addresses{}, err
	}
	return i.addresses()
}

// addresses are those of both ends, and the device.
func (i *id) addresses() (abi.Addresses, error) {
	out := new(abi.Addresses)
	q := &abi.Query{Response: uint64(dl.Ref(out)), ID: i.num, Option: abi.QUERY_ADDR}
	err := do(i, "query the device", abi.QUERY, q, sizeOf(out))
	return *out, err
}

// resolveTime is in ms.
const resolveTime = 5000

func family(a netip.AddrPort) uint16 {
	if a.Addr().Unmap().Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

func sockaddr(a netip.AddrPort) (s abi.Sockaddr) {
	binary.NativeEndian.PutUint16(s[:], family(a))
	binary.BigEndian.PutUint16(s[2:], a.Port())
	if ip := a.Addr().Unmap(); ip.Is4() {
		copy(s[4:], ip.AsSlice())
	} else {
		copy(s[8:], ip.AsSlice())
	}
	return s
}

// addrPort reads what sockaddr writes.
func addrPort(s []byte) netip.AddrPort {
	port := binary.BigEndian.Uint16(s[2:])
	if binary.NativeEndian.Uint16(s) == unix.AF_INET {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(s[4:8])), port)
	}
	return netip.AddrPortFrom(netip.AddrFrom16([16]byte(s[8:24])), port)
}

// modify brings a queue pair to a state with the attributes that the kernel gives, except
// for those that change sets.
func (i *id) modify(qp rdma.QP, to rdma.State, change func(*rdma.QPAttr)) error {
	out := new(abi.QPAttr)
	in := &abi.InitQPAttr{Response: uint64(dl.Ref(out)), ID: i.num, State: uint32(to)}
	if err := do(i, "get the attributes for "+to.String(), abi.INIT_QP_ATTR, in, sizeOf(out)); err != nil {
		return err
	}
	a := attributes(out)
	change(&a)
	return qp.Modify(a, rdma.Mask(out.Mask))
}

func attributes(a *abi.QPAttr) rdma.QPAttr {
	return rdma.QPAttr{
		State: rdma.State(a.State), PathMTU: rdma.MTU(a.PathMTU), RQPSN: a.RQPSN, SQPSN: a.SQPSN, DestQPN: a.DestQPN,
		Access: rdma.Access(a.Access), PKeyIndex: a.PKeyIndex, Port: a.Port, MaxRDAtomic: a.MaxRDAtomic, MaxDestRDAtomic: a.MaxDestRDAtomic,
		MinRNRTimer: a.MinRNRTimer, Timeout: a.Timeout, RetryCount: a.RetryCount, RNRRetry: a.RNRRetry,
		AV: rdma.AV{
			DGID: a.AH.DGID, SGIDIndex: a.AH.SGIDIndex, HopLimit: a.AH.HopLimit, TrafficClass: a.AH.TrafficClass, FlowLabel: a.AH.FlowLabel,
			DLID: a.AH.DLID, SL: a.AH.SL, Global: a.AH.IsGlobal != 0, Port: a.AH.Port,
		},
	}
}
