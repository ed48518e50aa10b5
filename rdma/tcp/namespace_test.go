package tcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/lab/inside"
	"github.com/culvert-io/culvert/rdma"
	"github.com/culvert-io/culvert/rdma/rdmatest"
)

// namespaceEnv says which of the two processes in network namespaces this is.
const namespaceEnv = "CULVERT_TEST_RDMA_NAMESPACE"

// Both ends of the cable between the namespaces.
var (
	nearLink = link{"near", netip.MustParsePrefix("192.0.2.1/24")}
	farLink  = link{"far", netip.MustParsePrefix("192.0.2.2/24")}
)

type link struct {
	name string
	addr netip.Prefix
}

// provider is one at the link's address, with a secret: other hosts could reach it.
func (l link) provider() (*Provider, error) {
	return New(Config{Listen: netip.AddrPortFrom(l.addr.Addr(), 0).String(), Token: []byte("a secret of both ends")})
}

// TestNamespaces runs the suite of all providers between two processes in two network
// namespaces, which only a cable joins.
func TestNamespaces(t *testing.T) {
	if os.Getenv(namespaceEnv) == "near" {
		inNamespaces(t)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestNamespaces$", "-test.v")
	cmd.Env = append(os.Environ(), namespaceEnv+"=near")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, syscall.EPERM) {
		t.Skipf("this user may not make network namespaces: %v (fix: run as root)", err)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if strings.Contains(string(out), "--- SKIP: TestNamespaces ") {
		t.Skipf("%s", out)
	}
	if n := strings.Count(string(out), "--- PASS: TestNamespaces/"); n < 29 {
		t.Errorf("%d tests passed in the namespaces\n%s", n, out)
	}
}

// inNamespaces starts the other process and joins the namespaces.
func inNamespaces(t *testing.T) {
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	arena, file, err := rdmatest.NewArena()
	ok(err)
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	ok(err)
	own, theirs := os.NewFile(uintptr(ends[0]), "socket"), os.NewFile(uintptr(ends[1]), "socket")
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), namespaceEnv+"=far")
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = []*os.File{theirs, file}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	ok(cmd.Start())
	ok(theirs.Close())
	ok(file.Close())
	if err := addCable(nearLink.name, farLink.name, cmd.Process.Pid); errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.EPERM) {
		_ = own.Close() // which ends the other process
		_ = cmd.Wait()
		t.Skipf("this kernel makes no cable between network namespaces (veth): %v", err)
	} else {
		ok(err)
	}
	ok(inside.SetAddress(nearLink.name, nearLink.addr))
	conn, err := net.FileConn(own)
	ok(err)
	ok(own.Close())
	_, err = conn.Write([]byte{1}) // the cable is there
	ok(err)
	p, err := nearLink.provider()
	ok(err)
	far := rdmatest.NewFar(conn, arena)
	rdmatest.Run(t, rdmatest.Backend{Arena: arena, Open: func(t *testing.T) (a, b rdma.Device) {
		a, err := p.Open("")
		ok(err)
		b, err = far.Open()
		ok(err)
		return a, b
	}})
	ok(errors.Join(p.Close(), far.Close(), cmd.Wait(), arena.Close()))
}

// farProcess is the other process: it serves its provider.
func farProcess() error {
	own := os.NewFile(3, "socket")
	conn, err := net.FileConn(own)
	if err != nil {
		return err
	}
	arena, err := rdmatest.OpenArena(os.NewFile(4, "arena"))
	if err != nil {
		return err
	}
	var b [1]byte
	if _, err := conn.Read(b[:]); err != nil {
		return err
	}
	if err := inside.SetAddress(farLink.name, farLink.addr); err != nil {
		return err
	}
	p, err := farLink.provider()
	if err != nil {
		return err
	}
	return errors.Join(rdmatest.Serve(conn, p, arena), p.Close())
}

// addCable makes two joined interfaces, the second in the namespace of a process, as
// ip link add NAME type veth peer name PEER netns PID does.
func addCable(name, peer string, pid int) error {
	other := append(make([]byte, unix.SizeofIfInfomsg), attr(unix.IFLA_IFNAME, append([]byte(peer), 0))...)
	other = append(other, attr(unix.IFLA_NET_NS_PID, binary.NativeEndian.AppendUint32(nil, uint32(pid)))...)
	const vethInfoPeer = 1
	info := append(attr(unix.IFLA_INFO_KIND, []byte("veth")), attr(unix.IFLA_INFO_DATA, attr(vethInfoPeer, other))...)
	body := append(make([]byte, unix.SizeofIfInfomsg), attr(unix.IFLA_IFNAME, append([]byte(name), 0))...)
	body = append(body, attr(unix.IFLA_LINKINFO, info)...)
	m := binary.NativeEndian.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+len(body)))
	m = binary.NativeEndian.AppendUint16(m, unix.RTM_NEWLINK)
	m = binary.NativeEndian.AppendUint16(m, unix.NLM_F_REQUEST|unix.NLM_F_ACK|unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	m = append(append(m, make([]byte, 8)...), body...)
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Sendto(fd, m, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("add a cable: %w", err)
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil || n < unix.SizeofNlMsghdr+4 {
		return fmt.Errorf("add a cable: an answer of %d bytes, %w", n, err)
	}
	if errno := -int32(binary.NativeEndian.Uint32(answer[unix.SizeofNlMsghdr:])); errno != 0 {
		return fmt.Errorf("add a cable: %w", syscall.Errno(errno))
	}
	return nil
}

// attr is an attribute of netlink.
func attr(kind uint16, value []byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(value)))
	b = append(binary.NativeEndian.AppendUint16(b, kind), value...)
	return append(b, make([]byte, -len(b)&3)...)
}
