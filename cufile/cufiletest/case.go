package cufiletest

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
)

// A Case is one scenario. Its steps run in order; the first that fails without
// leave ends it.
type Case struct {
	Name  string
	On    Place
	File  File
	Mem   Mem
	Steps []Step
}

// A Place is a directory in which a case's file lies.
type Place uint8

const (
	Disk Place = iota // the temporary directory
	Shm               // /dev/shm
)

func (p Place) String() string { return [...]string{"disk", "shm"}[p] }

// A File is what a case begins with. Bytes outside the holes are random.
type File struct {
	Size  int64
	Holes []Range
	Flags int // of open(2)
}

// A Range is Len bytes from Off.
type Range struct{ Off, Len int64 }

// Mem is the memory of a case: one allocation.
type Mem struct {
	Kind Kind
	Size uint64
}

// A Kind is a kind of memory: the driver's, and two sorts of host memory that
// the driver did not allocate.
type Kind uint8

const (
	Device     Kind = iota
	Virtual         // cuMemCreate, cuMemMap
	Managed         // cuMemAllocManaged
	Pinned          // cuMemHostAlloc
	Registered      // cuMemHostRegister
	Plain           // unknown to CUDA
)

// Kinds are all of them.
var Kinds = []Kind{Device, Virtual, Managed, Pinned, Registered, Plain}

func (k Kind) String() string {
	return [...]string{"device", "virtual", "managed", "pinned", "registered", "plain"}[k]
}

// OnDevice reports whether the CPU cannot reach the memory.
func (k Kind) OnDevice() bool { return k == Device || k == Virtual }

// A Call is what a step does.
type Call uint8

const (
	Register         Call = iota // the descriptor: which one, Step.FD says
	Deregister                   // the handle
	RegisterBuffer               // Len bytes at the pointer
	DeregisterBuffer             // the pointer
	Read                         // Len bytes at file offset Off to Pointer+Buf
	Write
	Truncate // the file to Off bytes, past the library
	Free     // the memory
)

func (c Call) String() string {
	return [...]string{"register", "deregister", "register-buffer", "deregister-buffer", "read", "write", "truncate", "free"}[c]
}

// A Step is one call.
type Step struct {
	Call Call
	FD   FD    // Register: which descriptor
	At   int64 // the pointer that is passed, from the start of the memory
	Wild gpu.Addr
	Null bool   // the pointer is 0; otherwise Wild stands for it unless that is 0
	Len  uint64 // of the buffer or the transfer
	Off  int64  // in the file
	Buf  int64  // cuFile's buf_offset
	// Want is the code that the call must fail with. With Success the model
	// says how many bytes move and which.
	Want cufile.Code
}

// An FD says which descriptor is registered.
type FD uint8

const (
	TheFile   FD = iota // the case's file, opened once
	Again               // the same file, opened a second time
	Dup                 // a duplicate of the descriptor
	MinusOne            // -1
	Closed              // a number that stands for nothing
	Directory           // opened for reading
	Pipe                // its reading end
	Socket              // unconnected
	NullDev             // /dev/null
	PathOnly            // the case's file with O_PATH
)

func (f FD) String() string {
	return [...]string{"file", "again", "dup", "minus-one", "closed", "directory", "pipe", "socket", "null-device", "path-only"}[f]
}

// String is the step's call, and what sets it apart.
func (s Step) String() string {
	switch {
	case s.Call == Register && s.FD != TheFile:
		return "register-" + s.FD.String()
	case s.Null:
		return s.Call.String() + "-null"
	}
	return s.Call.String()
}

// flagNames are the open flags that names of cases mention.
var flagNames = []struct {
	flag int
	name string
}{
	{unix.O_DIRECT, "direct"},
	{unix.O_APPEND, "append"},
	{unix.O_NONBLOCK, "nonblock"},
	{unix.O_NOATIME, "noatime"},
	{unix.O_NOFOLLOW, "nofollow"},
	{unix.O_SYNC, "sync"},
}

// flagsName is "rw" or "ro-direct".
func flagsName(flags int) string {
	name := [...]string{"ro", "wo", "rw"}[flags&unix.O_ACCMODE]
	for _, f := range flagNames {
		if flags&f.flag == f.flag {
			name += "-" + f.name
			flags &^= f.flag
		}
	}
	return name
}

// Cases is the whole suite. Names are unique.
func Cases() []Case {
	return slices.Concat(fileChecks(), bufferChecks(), transferChecks(), sequences(), holes(), covering())
}

// name joins the parts of a case's name.
func name(parts ...any) string {
	words := make([]string, len(parts))
	for i, p := range parts {
		words[i] = fmt.Sprint(p)
	}
	return strings.Join(words, "/")
}
