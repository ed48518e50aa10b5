package blockstack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"unsafe"

	"github.com/culvert-io/culvert/internal/dev"
)

// A captured operating system has the files of a tree, and the tables of device
// mapper if the process may read them.
type captured struct {
	root   fstest.MapFS
	tables map[string][]string // target types by device number; nil if not permitted
}

func (c *captured) FS() fs.FS { return c.root }

func (c *captured) Open(name string) (dev.Node, error) {
	if name != mapperControl || c.tables == nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.EACCES}
	}
	return control{c}, nil
}

// control answers as /dev/mapper/control.
type control struct{ c *captured }

func (n control) Mmap(int64, int, int) (dev.Mapping, error) { return nil, errors.ErrUnsupported }
func (n control) Fd() int                                   { return -1 }
func (n control) Close() error                              { return nil }

func (n control) Ioctl(req uintptr, arg unsafe.Pointer) error {
	call := (*tableCall)(arg)
	if req != tableStatus || call.Version[0] != 4 || call.DataSize != uint32(unsafe.Sizeof(*call)) || call.DataStart != headerSize {
		return syscall.EINVAL
	}
	minor := call.Dev&0xff | call.Dev>>12&^0xff
	types, ok := n.c.tables[fmt.Sprintf("%d:%d", call.Dev>>8&0xfff, minor)]
	if !ok {
		return syscall.ENXIO
	}
	encodeTypes(call, types)
	return nil
}

// encodeTypes writes an answer as the kernel does: each target, its status, aligned.
func encodeTypes(c *tableCall, types []string) {
	c.TargetCount = uint32(len(types))
	at := 0
	for _, t := range types {
		spec := c.Data[at:]
		copy(spec[24:40], t)
		copy(spec[40:], "0 8 status\x00")
		at = (at + specSize + 11 + 7) &^ 7
		binary.NativeEndian.PutUint32(spec[20:], uint32(at))
	}
}

// tree makes files from lines "PATH CONTENT" and links from lines "PATH -> TARGET".
// A block device "block NUMBER DIRECTORY" gets its links by number and by name, and a
// file dev.
func tree(t *testing.T, text string) fstest.MapFS {
	t.Helper()
	root := fstest.MapFS{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		name, content, _ := strings.Cut(line, " ")
		target, link := strings.CutPrefix(content, "-> ")
		switch {
		case line == "":
		case name == "block":
			number, dir, _ := strings.Cut(content, " ")
			root["sys/dev/block/"+number] = &fstest.MapFile{Mode: fs.ModeSymlink, Data: []byte("../../" + dir)}
			root["sys/class/block/"+path.Base(dir)] = &fstest.MapFile{Mode: fs.ModeSymlink, Data: []byte("../../" + dir)}
			root["sys/"+dir+"/dev"] = &fstest.MapFile{Data: []byte(number + "\n")}
		case link:
			root[name] = &fstest.MapFile{Mode: fs.ModeSymlink, Data: []byte(target)}
		case name == "mount":
			const info = "proc/self/mountinfo"
			if root[info] == nil {
				root[info] = &fstest.MapFile{}
			}
			root[info].Data = append(root[info].Data, content+"\n"...)
		default:
			root[name] = &fstest.MapFile{Data: []byte(content + "\n")}
		}
	}
	return root
}
