package cufiletest

import "golang.org/x/sys/unix"

// The plain case, one transfer, has ten dimensions: direction, kind of memory,
// access and O_DIRECT, offset, length, buffer offset, registration, end of file
// and file system. All combinations would be half a million cases. Instead
// every combination of any three values occurs in at least one case: faults
// that need four things to come together are rare.

// The values of each dimension, by index.
var (
	dimCalls   = []Call{Read, Write}
	dimAccess  = []bool{false, true} // whether the file can be used the other way, too
	dimDirect  = []int{0, unix.O_DIRECT}
	dimOffsets = []int64{0, 1, 511, 512, 4095, 4096, 65536 + 3}
	dimLengths = []uint64{1, 511, 512, 4096, 4097, 65536, 128<<10 + 1, 1 << 20, 1<<20 + 5}
	dimBuf     = []int64{0, 1, 512, 4096, 4099}
	dimBuffer  = []buffering{unregistered, registeredWhole, registeredPart, insideOther}
	dimEnd     = []end{inside, across, at, beyond}
	dimPlaces  = []Place{Disk, Shm}
)

// buffering says how a pointer relates to registrations.
type buffering uint8

const (
	unregistered    buffering = iota
	registeredWhole           // the allocation is registered and its start is passed
	registeredPart            // a part is registered and its start is passed
	insideOther               // the allocation is registered, and a pointer into it is passed
)

func (b buffering) String() string {
	return [...]string{"unregistered", "whole", "part", "inside"}[b]
}

// end says where the file ends.
type end uint8

const (
	inside end = iota // behind the request
	across            // in its middle
	at                // where it begins
	beyond            // before that
)

func (e end) String() string { return [...]string{"within", "across", "at", "beyond"}[e] }

func dims() []int {
	return []int{
		len(dimCalls), len(Kinds), len(dimAccess), len(dimDirect), len(dimOffsets),
		len(dimLengths), len(dimBuf), len(dimBuffer), len(dimEnd), len(dimPlaces),
	}
}

// possible rejects what cannot be had: managed memory cannot be registered.
func possible(row []int) bool {
	return Kinds[row[1]] != Managed || dimBuffer[row[7]] == unregistered
}

func covering() []Case {
	var cases []Case
	for _, row := range triples(dims(), possible) {
		cases = append(cases, transferCase(row))
	}
	return cases
}

// transferCase builds the case of a row of indices.
func transferCase(row []int) Case {
	call, kind, access, direct := dimCalls[row[0]], Kinds[row[1]], dimAccess[row[2]], dimDirect[row[3]]
	off, n, buf := dimOffsets[row[4]], dimLengths[row[5]], dimBuf[row[6]]
	buffer, end, on := dimBuffer[row[7]], dimEnd[row[8]], dimPlaces[row[9]]

	flags := unix.O_RDWR
	if !access {
		flags = map[Call]int{Read: unix.O_RDONLY, Write: unix.O_WRONLY}[call]
	}
	f := File{Flags: flags | direct}
	switch end {
	case inside:
		f.Size = off + int64(n) + 5000
	case across:
		f.Size = off + (int64(n)+1)/2
	case at:
		f.Size = off
	case beyond:
		f.Size = off / 2
	}
	m := Mem{kind, n + uint64(buf) + 3*4096 + 100}
	step := Step{Call: call, Len: n, Off: off, Buf: buf}
	steps := []Step{register}
	switch buffer {
	case registeredWhole:
		steps = append(steps, Step{Call: RegisterBuffer, Len: m.Size})
	case registeredPart:
		step.At = 4096
		steps = append(steps, Step{Call: RegisterBuffer, At: 4096, Len: n + uint64(buf)})
	case insideOther:
		step.At = 517
		steps = append(steps, Step{Call: RegisterBuffer, Len: m.Size})
	}
	return Case{
		name(call, kind, flagsName(f.Flags), on, off, n, buf, buffer, end),
		on, f, m, append(steps, step),
	}
}
