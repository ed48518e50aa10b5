package trace

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/route"
)

// A store has the memory of a recorder.
type store interface {
	grow() ([]Record, error)
	name(string)
	slabs(each func([]Record))
	close() error
}

// memory is that of the process.
type memory struct{ mems [][]byte }

func (m *memory) grow() ([]Record, error) {
	mem, err := unix.Mmap(-1, 0, slabBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, errors.Join(errNoRoom, err)
	}
	m.mems = append(m.mems, mem)
	return prepare(mem), nil
}

func (m *memory) name(string) {}

func (m *memory) slabs(each func([]Record)) {
	for _, mem := range m.mems {
		each(asRecords(mem))
	}
}

func (m *memory) close() (err error) {
	for _, mem := range m.mems {
		err = errors.Join(err, unix.Munmap(mem))
	}
	m.mems = nil
	return err
}

// files are those of a process in the directory of a run: one with its names, and one for
// each slab. None stays open: a program may close descriptors that it did not open, and give
// their numbers to files of its own.
type files struct {
	memory
	base string
}

const (
	namesSuffix = ".trace-names"
	slabSuffix  = ".trace-slab"
)

func newFiles(dir string) (*files, error) {
	p := ownProcess()
	f := &files{base: filepath.Join(dir, fmt.Sprintf("%d-%d", p.PID, p.Base))}
	return f, f.add(os.O_CREATE|os.O_EXCL, p)
}

// add writes a line to the file with the names.
func (f *files) add(flags int, line any) error {
	names, err := os.OpenFile(f.base+namesSuffix, os.O_WRONLY|os.O_APPEND|flags, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(json.NewEncoder(names).Encode(line), names.Close())
}

func (f *files) name(s string) { _ = f.add(0, s) } // the disk is full: the name is unknown

func (f *files) grow() ([]Record, error) {
	file, err := os.OpenFile(fmt.Sprintf("%s.%03d%s", f.base, len(f.mems), slabSuffix), os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	// Blocks are allocated now: a store into a mapping on a full disk would kill the process.
	if err := unix.Fallocate(int(file.Fd()), 0, 0, slabBytes); err != nil {
		return nil, errors.Join(fmt.Errorf("allocate %s: %w", file.Name(), err), os.Remove(file.Name()))
	}
	mem, err := unix.Mmap(int(file.Fd()), 0, slabBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	f.mems = append(f.mems, mem)
	return prepare(mem), nil
}

// A process is what one process recorded.
type process struct {
	PID     int    `json:"pid"`
	Command string `json:"command"`
	Base    int64  `json:"base"` // time of day in nanoseconds at which its clock was 0
	Dropped int64  `json:"-"`

	names     []string
	transfers []transfer
	pieces    [numKinds][]Piece
}

func ownProcess() *process {
	return &process{PID: os.Getpid(), Command: filepath.Base(os.Args[0]), Base: began.UnixNano()}
}

// A transfer is a call as it was recorded.
type transfer struct {
	Piece    // its time, offset and bytes
	turn     uint32
	file     uint32
	host     int64
	requests uint32
	gpu      int32
	write    bool
	failed   bool
	by       route.ByRoute
	route    route.ID
}

// The kinds of records.
const (
	kindNone uint8 = iota // not used
	kindRead
	kindWrite
	kindShare
	kindPiece // and those of pieces
)

const (
	flagFailed uint8 = 1 << iota
	flagShares       // records of shares follow
)

func tagOf(c *Call, id route.ID, requests int) tag {
	t := tag{kind: kindRead, route: uint8(id), requests: uint32(requests), gpu: int32(c.GPU)}
	if c.Dir == route.Write {
		t.kind = kindWrite
	}
	if c.Failed {
		t.flags = flagFailed
	}
	return t
}

// decode adds the records of a slab. Those of a process that was killed may lack the last
// one of a buffer.
func (p *process) decode(list []Record) {
	for i := range list {
		r := &list[i]
		switch k := r.kind(); {
		case k == kindRead || k == kindWrite:
			p.transfer(r, list[i+1:])
		case k >= kindPiece && k < kindPiece+uint8(numKinds):
			kind := Kind(k - kindPiece)
			p.pieces[kind] = append(p.pieces[kind], Piece{kind, ns(r.begin), ns(r.end), r.off, r.bytes})
		}
	}
}

func (p *process) transfer(r *Record, rest []Record) {
	t := transfer{
		Piece: Piece{Begin: ns(r.begin), End: ns(r.end), Off: r.off, Bytes: r.bytes}, turn: r.turn, file: r.file, host: r.host,
		requests: r.requests, gpu: r.gpu, write: r.kind() == kindWrite, failed: uint8(r.tag>>16)&flagFailed != 0, route: route.ID(min(uint8(r.tag>>8), uint8(len(route.ByRoute{})-1))),
	}
	if uint8(r.tag>>16)&flagShares == 0 {
		t.by[t.route] = t.Bytes
	}
	for i := 0; uint8(r.tag>>16)&flagShares != 0 && i < len(rest) && rest[i].kind() == kindShare; i++ {
		if id := int(uint8(rest[i].tag >> 8)); id < len(t.by) {
			t.by[id] += rest[i].bytes
		}
	}
	p.transfers = append(p.transfers, t)
	if t.turn > 0 && t.Bytes > 0 { // moved in two steps
		first, second := Read, Copy
		if t.write {
			first, second = Copy, Write
		}
		turn := min(t.Begin+ns(int64(t.turn)), t.End)
		p.pieces[first] = append(p.pieces[first], Piece{first, t.Begin, turn, t.Off, t.Bytes})
		p.pieces[second] = append(p.pieces[second], Piece{second, turn, t.End, t.Off, t.Bytes})
	}
}

// collect reads what the processes of a run left in a directory.
func collect(dir string) ([]*process, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*"+namesSuffix))
	if err != nil {
		return nil, err
	}
	slices.Sort(paths)
	var list []*process
	for _, path := range paths {
		p, err := readNames(path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		slabs, err := filepath.Glob(strings.TrimSuffix(path, namesSuffix) + ".*" + slabSuffix)
		if err != nil {
			return nil, err
		}
		for _, slab := range slabs {
			data, err := os.ReadFile(slab)
			if err != nil {
				return nil, err
			}
			p.decode(asRecords(data))
		}
		if len(p.transfers) == MaxEvents || len(slabs)*slabBytes/64 >= MaxEvents {
			p.Dropped = -1 // perhaps: the process kept the number to itself
		}
		list = append(list, p)
	}
	return list, nil
}

// readNames reads a process and its names. The last line may be incomplete.
func readNames(path string) (*process, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	p := &process{}
	if lines.Scan() {
		if err := json.Unmarshal(lines.Bytes(), p); err != nil {
			return nil, err
		}
	}
	for lines.Scan() {
		var name string
		_ = json.Unmarshal(lines.Bytes(), &name)
		p.names = append(p.names, name)
	}
	return p, lines.Err()
}
