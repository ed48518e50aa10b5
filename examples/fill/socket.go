package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// An order says what to fill. The descriptor of the memory is sent with it.
type order struct {
	PCI  string `json:"pci"`
	Size uint64 `json:"size"`
}

// socketPair returns the two ends of a connection, one of them for another process.
func socketPair() (*net.UnixConn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "socket")
	ours, err := connect(os.NewFile(uintptr(fds[0]), "socket"))
	if err != nil {
		return nil, nil, errors.Join(err, theirs.Close())
	}
	return ours, theirs, nil
}

// connect makes a connection from a socket and closes the socket.
func connect(socket *os.File) (*net.UnixConn, error) {
	defer socket.Close() // the connection has its own descriptor
	c, err := net.FileConn(socket)
	if err != nil {
		return nil, err
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(errors.New("not a unix socket"), c.Close())
	}
	return u, nil
}

func send(c *net.UnixConn, o order, f *os.File) error {
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	_, _, err = c.WriteMsgUnix(text, unix.UnixRights(int(f.Fd())), nil)
	return err
}

func receive(c *net.UnixConn) (order, *os.File, error) {
	var o order
	text, oob := make([]byte, 1024), make([]byte, unix.CmsgSpace(4))
	n, oobn, _, _, err := c.ReadMsgUnix(text, oob)
	if err != nil {
		return o, nil, err
	}
	f, err := descriptor(oob[:oobn])
	if err != nil {
		return o, nil, err
	}
	if err := json.Unmarshal(text[:n], &o); err != nil {
		return o, nil, errors.Join(err, f.Close())
	}
	return o, f, nil
}

func descriptor(oob []byte) (*os.File, error) {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	if len(msgs) != 1 {
		return nil, fmt.Errorf("%d control messages, want one with a descriptor", len(msgs))
	}
	fds, err := unix.ParseUnixRights(&msgs[0])
	if err != nil {
		return nil, err
	}
	if len(fds) != 1 {
		return nil, fmt.Errorf("%d descriptors, want one", len(fds))
	}
	unix.CloseOnExec(fds[0])
	return os.NewFile(uintptr(fds[0]), "exported memory"), nil
}
