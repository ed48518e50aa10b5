package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Two programs for scripts about served models.

// crowd connects many clients to a socket at a time. Each asks for the model and
// takes its memory; crowd prints how much memory all of them have together.
//
//	crowd SOCKET CLIENTS
func crowd() {
	n, _ := strconv.Atoi(os.Args[2])
	sizes := map[uint64]int64{} // by inode
	for range n {
		c, err := net.DialTimeout("unix", os.Args[1], time.Minute)
		if err == nil {
			err = takeMemory(c.(*net.UnixConn), sizes)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "crowd:", err)
			os.Exit(1)
		}
	}
	var sum int64
	for _, size := range sizes {
		sum += size
	}
	fmt.Printf("clients %d\nbytes %d\n", n, sum)
}

// takeMemory leaves connection and descriptors open.
func takeMemory(c *net.UnixConn, sizes map[uint64]int64) error {
	if err := sendText(c, `{"protocol":"culvert-hold","version":1}`); err != nil {
		return err
	}
	oob := make([]byte, 4096)
	_, n, _, _, err := c.ReadMsgUnix(make([]byte, 4), oob)
	if err != nil {
		return err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(messages) != 1 {
		return fmt.Errorf("%d control messages, %w", len(messages), err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	for _, fd := range fds {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return err
		}
		sizes[st.Ino] = st.Blocks * 512
	}
	return err
}

func sendText(c net.Conn, text string) error {
	_, err := c.Write(append(binary.LittleEndian.AppendUint32(nil, uint32(len(text))), text...))
	return err
}

// answer listens on a socket and gives the first client an answer.
//
//	answer SOCKET TEXT
func answer() {
	l, err := net.Listen("unix", os.Args[1])
	if err == nil {
		var c net.Conn
		if c, err = l.Accept(); err == nil {
			err = sendText(c, os.Args[2])
			_, _ = io.Copy(io.Discard, c) // until the client ends
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "answer:", err)
		os.Exit(1)
	}
}
