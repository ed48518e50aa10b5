package hold

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/tensor"
)

// Version is the version of the protocol. Both sides must have the same.
const Version = 1

const (
	protocol  = "culvert-hold"
	maxHello  = 4 << 10
	maxAnswer = 200_000_000 // a list of as many tensors as two headers may have
	// maxBuffers is how many descriptors Linux allows in one message (SCM_MAX_FD).
	maxBuffers = 253
)

// A Share says how a client gets the memory.
type Share string

const (
	ByDescriptor Share = "descriptor" // the same memory, mapped again
	ByCopy       Share = "copy"       // the same bytes in other memory
)

// hello is the client's message, and the start of the answer.
type hello struct {
	Protocol string `json:"protocol"`
	Version  int    `json:"version"`
}

func (h hello) check(who string) error {
	if h.Protocol != protocol || h.Version != Version {
		return fmt.Errorf("%s speaks %q version %d, this is %q version %d (fix: use the same release on both sides)", who, h.Protocol, h.Version, protocol, Version)
	}
	return nil
}

// A head is the first message of the answer.
type head struct {
	hello
	Error    string            `json:"error,omitempty"`
	Model    string            `json:"model,omitempty"`
	Share    Share             `json:"share,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`
	Buffers  []wireBuffer      `json:"buffers,omitempty"`
}

// A wireBuffer is an allocation.
type wireBuffer struct {
	GPU  gpu.UUID `json:"gpu"`
	Size uint64   `json:"bytes"`
}

// A wireTensor is a tensor in a buffer.
type wireTensor struct {
	Name   string       `json:"name"`
	Dtype  tensor.Dtype `json:"dtype"`
	Shape  []int64      `json:"shape"`
	Buffer int          `json:"buffer"`
	Off    uint64       `json:"offset"`
	Len    uint64       `json:"bytes"`
}

// check compares a head with the descriptors that came with it.
func (h *head) check(descriptors int) error {
	if h.Error != "" {
		return fmt.Errorf("the server says: %s", h.Error)
	}
	if err := h.hello.check("the server"); err != nil {
		return err
	}
	if len(h.Buffers) != descriptors {
		return fmt.Errorf("%d buffers came with %d descriptors", len(h.Buffers), descriptors)
	}
	if h.Share != ByDescriptor && h.Share != ByCopy {
		return fmt.Errorf("unknown share %q", h.Share)
	}
	return nil
}

// checkTensors checks that each tensor is inside its buffer and has the size of its
// shape: clients make views of memory from them.
func checkTensors(tensors []wireTensor, buffers []wireBuffer) error {
	for i := range tensors {
		t := &tensors[i]
		if t.Buffer < 0 || t.Buffer >= len(buffers) {
			return fmt.Errorf("tensor %q is in buffer %d of %d", t.Name, t.Buffer, len(buffers))
		}
		if size := buffers[t.Buffer].Size; t.Off > size || t.Len > size-t.Off {
			return fmt.Errorf("tensor %q is at %d+%d of %d bytes", t.Name, t.Off, t.Len, size)
		}
		if n, err := t.Dtype.Size(t.Shape); err != nil || uint64(n) != t.Len {
			return fmt.Errorf("tensor %q, dtype %s, shape %v, has %d bytes", t.Name, t.Dtype, t.Shape, t.Len)
		}
	}
	return nil
}

// encode returns the text of a message.
func encode(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err == nil && len(text) > maxAnswer {
		err = fmt.Errorf("message of %d bytes exceeds the limit of %d", len(text), maxAnswer)
	}
	return text, err
}

// send writes one message, with descriptors.
func send(c *net.UnixConn, text []byte, files []*os.File) error {
	var length [4]byte
	binary.LittleEndian.PutUint32(length[:], uint32(len(text)))
	var rights []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd())
		}
		rights = unix.UnixRights(fds...)
	}
	if _, _, err := c.WriteMsgUnix(length[:], rights, nil); err != nil {
		return err
	}
	_, err := c.Write(text)
	return err
}

// receive reads one message of at most limit bytes. The caller must close the files
// that come with it, also after an error.
func receive(c *net.UnixConn, v any, limit int) ([]*os.File, error) {
	var length [4]byte
	rights := make([]byte, unix.CmsgSpace(4*maxBuffers))
	n, rn, flags, _, err := c.ReadMsgUnix(length[:], rights)
	files, rerr := parseRights(rights[:rn])
	switch {
	case err != nil:
		return files, err
	case rerr != nil:
		return files, rerr
	case n == 0:
		return files, io.ErrUnexpectedEOF
	case flags&unix.MSG_CTRUNC != 0:
		return files, errors.New("descriptors dropped: limit reached (fix: raise ulimit -n)")
	}
	if _, err := io.ReadFull(c, length[n:]); err != nil {
		return files, err
	}
	size := binary.LittleEndian.Uint32(length[:])
	if size > uint32(limit) {
		return files, fmt.Errorf("message of %d bytes exceeds the limit of %d", size, limit)
	}
	text := make([]byte, size)
	if _, err := io.ReadFull(c, text); err != nil {
		return files, err
	}
	return files, json.Unmarshal(text, v)
}

func parseRights(b []byte) ([]*os.File, error) {
	messages, err := unix.ParseSocketControlMessage(b)
	if err != nil {
		return nil, os.NewSyscallError("control message", err)
	}
	var files []*os.File
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			continue // another control message
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "shared-memory"))
		}
	}
	return files, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close() // descriptors of memory: close writes nothing
	}
}
