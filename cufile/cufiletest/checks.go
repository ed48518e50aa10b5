package cufiletest

import (
	"math"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/cufile"
)

// This file has the argument checks: what NVIDIA's library was seen to refuse,
// and what it was seen not to.

const (
	checkFile = 100_000   // bytes of the files in this file
	checkMem  = 256 << 10 // bytes of the memory
)

var register = Step{Call: Register}

// fileChecks registers descriptors of all sorts.
func fileChecks() []Case {
	rw := File{Size: checkFile, Flags: unix.O_RDWR}
	with := func(flag int) File { return File{Size: checkFile, Flags: rw.Flags | flag} }
	fd := func(f FD, want cufile.Code) Step { return Step{Call: Register, FD: f, Want: want} }
	read := Step{Call: Read, Len: 5000, Off: 3, Buf: 7}
	deregister := Step{Call: Deregister}
	var cases []Case
	for _, c := range []struct {
		name  string
		file  File
		steps []Step
	}{
		{"minus-one", rw, []Step{fd(MinusOne, cufile.InvalidValue)}},
		{"closed", rw, []Step{fd(Closed, cufile.InvalidValue)}},
		{"path-only", rw, []Step{fd(PathOnly, cufile.InvalidValue)}},
		{"directory", rw, []Step{fd(Directory, cufile.InvalidFileType)}},
		{"pipe", rw, []Step{fd(Pipe, cufile.InvalidFileType)}},
		{"socket", rw, []Step{fd(Socket, cufile.InvalidFileType)}},
		{"null-device", rw, []Step{fd(NullDev, cufile.InvalidFileType)}},
		{"append", with(unix.O_APPEND), []Step{{Call: Register, Want: cufile.InvalidFileOpenFlag}}},
		{"append-direct", with(unix.O_APPEND | unix.O_DIRECT), []Step{{Call: Register, Want: cufile.InvalidFileOpenFlag}}},
		{"nonblock", with(unix.O_NONBLOCK), []Step{register, read}},
		{"noatime", with(unix.O_NOATIME), []Step{register, read}},
		{"nofollow", with(unix.O_NOFOLLOW), []Step{register, read}},
		{"sync", with(unix.O_SYNC), []Step{register, read, {Call: Write, Len: 5000, Off: 9, Buf: 1}}},
		{"twice", rw, []Step{register, {Call: Register, Want: cufile.HandleAlreadyRegistered}, read}},
		{"file-twice", rw, []Step{register, fd(Again, cufile.Success), read}},
		{"dup", rw, []Step{register, fd(Dup, cufile.Success), read}},
		{"anew", rw, []Step{register, read, deregister, register, read}},
		{"deregistered", rw, []Step{register, deregister, {Call: Read, Len: 10, Want: cufile.HandleNotRegistered}}},
		{"deregistered-write", rw, []Step{register, deregister, {Call: Write, Len: 10, Want: cufile.HandleNotRegistered}}},
	} {
		for _, on := range []Place{Disk, Shm} {
			cases = append(cases, Case{name("file", c.name, on), on, c.file, Mem{Device, checkMem}, c.steps})
		}
	}
	return cases
}

// bufferChecks registers memory of all kinds, rightly and wrongly.
func bufferChecks() []Case {
	var cases []Case
	for _, k := range Kinds {
		code := cufile.Success
		if k == Managed {
			code = cufile.CUDAMemoryTypeInvalid
		}
		for _, c := range bufferTable(code) {
			cases = append(cases, Case{name("buffer", c.name, k), Disk, File{Size: checkFile, Flags: unix.O_RDWR}, Mem{k, checkMem}, c.steps})
		}
	}
	past := Step{Call: RegisterBuffer, Len: 1 << 40, Want: cufile.CUDAPointerRangeError}
	for _, k := range []Kind{Device, Virtual} {
		cases = append(cases, Case{name("buffer", "past-allocation", k), Disk, File{Flags: unix.O_RDWR}, Mem{k, checkMem}, []Step{past}})
	}
	return append(cases, Case{
		name("buffer", "made-up", Plain), Disk,
		File{Flags: unix.O_RDWR},
		Mem{Plain, checkMem},
		[]Step{{Call: RegisterBuffer, Wild: 12345, Len: 10, Want: cufile.InvalidValue}, {Call: DeregisterBuffer, Wild: 12345, Want: cufile.MemoryNotRegistered}},
	})
}

type steps struct {
	name  string
	steps []Step
}

// bufferTable is for memory whose registration answers code.
func bufferTable(code cufile.Code) []steps {
	regbuf := func(at int64, n uint64, want cufile.Code) Step {
		return Step{Call: RegisterBuffer, At: at, Len: n, Want: want}
	}
	forget := func(at int64, want cufile.Code) Step { return Step{Call: DeregisterBuffer, At: at, Want: want} }
	read := Step{Call: Read, Len: 5000, Off: 3, Buf: 7}
	whole := regbuf(0, checkMem, code)
	table := []steps{
		{"null", []Step{{Call: RegisterBuffer, Null: true, Len: 4096, Want: cufile.InvalidValue}}},
		{"length-0", []Step{regbuf(0, 0, cufile.InvalidValue)}},
		{"unknown", []Step{forget(0, cufile.MemoryNotRegistered)}},
		{"register", []Step{whole, register, read}},
	}
	if code != cufile.Success {
		return table
	}
	return append(table, []steps{
		{"forget-null", []Step{{Call: DeregisterBuffer, Null: true, Want: cufile.InvalidValue}}},
		{"twice", []Step{whole, regbuf(0, 4096, cufile.MemoryAlreadyRegistered), register, read}},
		{"inside", []Step{whole, regbuf(4096, 8192, 0), register, read, {Call: Read, At: 4096, Len: 8000, Off: 1, Buf: 100}}},
		{"inside-unaligned", []Step{whole, regbuf(4099, 8192, 0), register, {Call: Read, At: 4099, Len: 8000, Off: 1, Buf: 100}}},
		{"anew", []Step{whole, forget(0, 0), regbuf(0, 8192, 0), register, read}},
		{"forget-twice", []Step{whole, forget(0, 0), forget(0, cufile.MemoryNotRegistered)}},
		{"forget-inside", []Step{whole, forget(4096, cufile.MemoryNotRegistered), forget(0, 0)}},
		{"forget-then-read", []Step{whole, register, forget(0, 0), read}},
	}...)
}

// transferChecks are reads and writes with arguments that are wrong.
func transferChecks() []Case {
	rw := File{Size: checkFile, Flags: unix.O_RDWR}
	var cases []Case
	for _, k := range Kinds {
		for _, c := range transferTable(k) {
			for _, call := range []Call{Read, Write} {
				all := append([]Step(nil), c.steps...)
				for i := range all {
					if all[i].Call == Read {
						all[i].Call = call
					}
				}
				cases = append(cases, Case{name("check", call, c.name, k), Disk, rw, Mem{k, checkMem}, all})
			}
		}
		cases = append(cases,
			Case{
				name("check", Read, "write-only", k), Disk,
				File{Size: checkFile, Flags: unix.O_WRONLY},
				Mem{k, checkMem},
				[]Step{register, {Call: Read, Len: 10, Want: cufile.InvalidFileOpenFlag}, {Call: Write, Len: 10}},
			},
			Case{
				name("check", Write, "read-only", k), Disk,
				File{Size: checkFile, Flags: unix.O_RDONLY},
				Mem{k, checkMem},
				[]Step{register, {Call: Write, Len: 10, Want: cufile.InvalidFileOpenFlag}, {Call: Read, Len: 10}},
			})
	}
	return append(cases, Case{
		name("check", Read, "wild", Plain), Disk, rw,
		Mem{Plain, checkMem},
		[]Step{register, {Call: Read, Wild: 4096, Len: 10, Want: cufile.IOError}},
	})
}

// transferTable has reads that are wrong for memory of a kind. Each stands for
// a write, too.
func transferTable(k Kind) []steps {
	read := func(s Step, want cufile.Code) Step { s.Call, s.Want = Read, want; return s }
	bad := func(s Step, want cufile.Code) []Step { return []Step{register, read(s, want)} }
	table := []steps{
		{"size-0", bad(Step{}, 0)},
		{"null", bad(Step{Null: true, Len: 10}, cufile.InvalidValue)},
		{"negative-offset", bad(Step{Off: -1, Len: 10}, cufile.InvalidValue)},
		{"least-offset", bad(Step{Off: math.MinInt64, Len: 10}, cufile.InvalidValue)},
		{"overflow", bad(Step{Off: 1 << 62, Len: 1 << 63}, cufile.InvalidValue)},
		{"negative-buffer-offset", bad(Step{Buf: -1, Len: 10}, cufile.CUDAPointerRangeError)},
		{"page-before-buffer", bad(Step{Buf: -4096, Len: 4096}, cufile.CUDAPointerRangeError)},
	}
	if k != Plain { // the end of plain memory is not known
		table = append(table, steps{"past-allocation", bad(Step{Buf: 1 << 36, Len: 10}, cufile.CUDAPointerRangeError)})
	}
	if k == Managed {
		return table
	}
	whole := Step{Call: RegisterBuffer, Len: checkMem}
	half := Step{Call: RegisterBuffer, Len: checkMem / 2}
	wrong := func(reg, s Step, want cufile.Code) []Step { return []Step{register, reg, read(s, want)} }
	table = append(table, []steps{
		{"registered-past-end", wrong(whole, Step{Buf: checkMem - 5, Len: 10}, cufile.InvalidMappingRange)},
		{"registered-at-end", wrong(whole, Step{Buf: checkMem, Len: 1}, cufile.InvalidMappingRange)},
		{"registered-far", wrong(whole, Step{Buf: 1 << 36, Len: 10}, cufile.InvalidMappingRange)},
		{"registered-half", wrong(half, Step{Len: checkMem/2 + 1}, cufile.InvalidMappingRange)},
		{"registered-negative", wrong(whole, Step{Buf: -1, Len: 10}, cufile.InvalidMappingRange)},
		{"registered-to-end", wrong(whole, Step{Buf: checkMem - 5000, Len: 5000}, 0)},
	}...)
	if k.OnDevice() { // freed host memory may have a new owner at once
		table = append(table, steps{"freed", []Step{whole, register, read(Step{Len: 10}, 0), {Call: Free}, read(Step{Len: 10}, cufile.CUDAPointerInvalid)}})
	}
	return table
}
