package fusetest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// From linux/fuse.h, protocol 7.31: opcodes, flags, and sizes of structures.
const (
	opLookup      = 1
	opForget      = 2
	opGetattr     = 3
	opOpen        = 14
	opRead        = 15
	opWrite       = 16
	opStatfs      = 17
	opRelease     = 18
	opFlush       = 25
	opInit        = 26
	opInterrupt   = 36
	opDestroy     = 38
	opBatchForget = 42

	openDirectIO  = 1
	openKeepCache = 2

	initAsyncRead = 1 << 0
	initMaxPages  = 1 << 22

	headerIn, headerOut = 40, 16
	writeIn             = 40
	maxWrite            = 1 << 20
	rootNode            = 1
)

// names are the files. The node of one is its place plus firstNode.
var names = []string{Plain, Kept, Uncached, NoDirect, asked}

const firstNode = 2

// A server answers the kernel, one request after the other.
type server struct {
	device  int
	backing *os.File
	asked   int64
}

func serve(device int, backing string) error {
	f, err := os.OpenFile(backing, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	s := &server{device: device, backing: f}
	room := make([]byte, headerIn+writeIn+maxWrite)
	for {
		n, err := unix.Read(device, room)
		switch {
		case errors.Is(err, unix.ENODEV): // unmounted
			return nil
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ENOENT): // an interrupted request
			continue
		case err != nil:
			return fmt.Errorf("read a request: %w", err)
		}
		if err := s.answer(room[:n]); err != nil {
			return err
		}
	}
}

var le = binary.LittleEndian

// answer answers a request.
func (s *server) answer(req []byte) error {
	op, unique, node := le.Uint32(req[4:]), le.Uint64(req[8:]), le.Uint64(req[16:])
	if op == opForget || op == opBatchForget || op == opInterrupt {
		return nil // these have no answer
	}
	out, errno := s.do(op, node, req[headerIn:])
	if errno != 0 {
		out = nil
	}
	answer := make([]byte, headerOut, headerOut+len(out))
	le.PutUint32(answer, uint32(headerOut+len(out)))
	le.PutUint32(answer[4:], uint32(-int32(errno)))
	le.PutUint64(answer[8:], unique)
	if _, err := unix.Write(s.device, append(answer, out...)); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("answer opcode %d: %w", op, err)
	}
	return nil
}

func (s *server) do(op uint32, node uint64, arg []byte) ([]byte, unix.Errno) {
	switch op {
	case opInit:
		return s.init(arg), 0
	case opLookup:
		return s.lookup(string(arg[:len(arg)-1]))
	case opGetattr:
		attr, errno := s.attr(node)
		return append(make([]byte, 16), attr...), errno
	case opOpen:
		return s.open(node, le.Uint32(arg))
	case opRead:
		return s.read(node, int64(le.Uint64(arg[8:])), int(le.Uint32(arg[16:])))
	case opWrite:
		return s.write(int64(le.Uint64(arg[8:])), arg[writeIn:])
	case opStatfs:
		return make([]byte, 80), 0
	case opRelease, opFlush, opDestroy:
		return nil, 0
	}
	return nil, unix.ENOSYS
}

func (s *server) init(arg []byte) []byte {
	out := make([]byte, 64)
	le.PutUint32(out, 7)
	le.PutUint32(out[4:], 31)
	le.PutUint32(out[8:], le.Uint32(arg[8:])) // readahead as the kernel wants it
	le.PutUint32(out[12:], initAsyncRead|initMaxPages)
	le.PutUint16(out[16:], 12)
	le.PutUint16(out[18:], 9)
	le.PutUint32(out[20:], maxWrite)
	le.PutUint32(out[24:], 1)
	le.PutUint16(out[28:], maxWrite/4096)
	return out
}

func (s *server) lookup(name string) ([]byte, unix.Errno) {
	i := slices.Index(names, name)
	if i < 0 {
		return nil, unix.ENOENT
	}
	node := uint64(firstNode + i)
	attr, errno := s.attr(node)
	out := make([]byte, 40, 40+len(attr))
	le.PutUint64(out, node)
	return append(out, attr...), errno
}

// attr is the attributes of a node. They are not cached.
func (s *server) attr(node uint64) ([]byte, unix.Errno) {
	var st unix.Stat_t
	if err := unix.Fstat(int(s.backing.Fd()), &st); err != nil {
		return nil, unix.EIO
	}
	mode, size := uint32(unix.S_IFREG|0o600), uint64(st.Size)
	switch {
	case node == rootNode:
		mode, size = unix.S_IFDIR|0o700, 0
	case s.name(node) == asked:
		size = 0 // read until its end, as /proc
	}
	out := make([]byte, 88)
	le.PutUint64(out, node)
	le.PutUint64(out[8:], size)
	le.PutUint64(out[16:], size/512)
	for i, ts := range []unix.Timespec{st.Atim, st.Mtim, st.Ctim} {
		le.PutUint64(out[24+8*i:], uint64(ts.Sec))
		le.PutUint32(out[48+4*i:], uint32(ts.Nsec))
	}
	le.PutUint32(out[60:], mode)
	le.PutUint32(out[64:], 1)
	le.PutUint32(out[68:], uint32(os.Getuid()))
	le.PutUint32(out[72:], uint32(os.Getgid()))
	le.PutUint32(out[80:], 4096)
	return out, 0
}

func (s *server) name(node uint64) string {
	if i := int(node) - firstNode; i >= 0 && i < len(names) {
		return names[i]
	}
	return ""
}

func (s *server) open(node uint64, flags uint32) ([]byte, unix.Errno) {
	out := make([]byte, 16)
	switch s.name(node) {
	case Kept:
		le.PutUint32(out[8:], openKeepCache)
	case Uncached, asked:
		le.PutUint32(out[8:], openDirectIO)
	case NoDirect:
		if flags&unix.O_DIRECT != 0 {
			return nil, unix.EINVAL
		}
	}
	return out, 0
}

func (s *server) read(node uint64, off int64, n int) ([]byte, unix.Errno) {
	if s.name(node) == asked {
		text := fmt.Appendln(nil, s.asked)
		return text[min(int(off), len(text)):], 0
	}
	b := make([]byte, n)
	got, err := s.backing.ReadAt(b, off)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, unix.EIO
	}
	s.asked += int64(got)
	return b[:got], 0
}

func (s *server) write(off int64, b []byte) ([]byte, unix.Errno) {
	n, err := s.backing.WriteAt(b, off)
	if err != nil {
		return nil, unix.EIO
	}
	out := make([]byte, 8)
	le.PutUint32(out, uint32(n))
	return out, 0
}
