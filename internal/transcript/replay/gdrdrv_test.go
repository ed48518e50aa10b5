package replay

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"syscall"

	abi "github.com/culvert-io/culvert/internal/abi/gdrdrv"
	"github.com/culvert-io/culvert/internal/transcript"
)

// The intended differences of the emulated gdrdrv. All others fail.
const (
	gdrUnknownHandle = "unknown handle: the module uses the oldest pin of the file, the emulation returns EINVAL"
	gdrForgotten     = "the module forgets a mapping when it rejects a second one, the emulation keeps it and removes it in time"
	gdrPrivate       = "the module allows a private mapping and then treats the handle as mapped for ever, the emulation rejects it"
)

// A gdrdrvJudge knows the module's state from the recorded answers.
type gdrdrvJudge struct {
	files map[string]*gdrFile
	// zapped are the addresses of mappings that the module forgot, and so did
	// not remove.
	zapped map[uint64]bool
}

// A gdrFile is the module's state of an open file.
type gdrFile struct {
	pins      []uint64 // handles, oldest first
	mapped    map[uint64]uint64
	forgotten map[uint64]bool // handles whose mapping the module forgot
	private   map[uint64]bool // handles that were mapped privately
}

func newGdrdrvJudge() *gdrdrvJudge {
	return &gdrdrvJudge{files: map[string]*gdrFile{}, zapped: map[uint64]bool{}}
}

func (j *gdrdrvJudge) Judge(e *transcript.Event) transcript.Verdict {
	f := j.files[e.FD]
	switch e.Call {
	case "open":
		j.files[e.FD] = &gdrFile{mapped: map[uint64]uint64{}, forgotten: map[uint64]bool{}, private: map[uint64]bool{}}
	case "ioctl":
		return j.ioctl(e, f)
	case "mmap":
		return j.mmap(e, f)
	case "munmap":
		j.munmap(e)
	case "stub":
		if e.Args.Knob == "revoke" {
			for _, f := range j.files {
				for h := range f.forgotten {
					j.zapped[f.mapped[h]] = true
				}
			}
		}
	case "access":
		for base := range j.zapped {
			if e.Addr >= base && e.Addr < base+bufferSize && e.Ret == "0" && e.Got.Ret == "fault" {
				return transcript.Verdict{Reason: gdrForgotten}
			}
		}
	}
	return transcript.Verdict{}
}

func (j *gdrdrvJudge) ioctl(e *transcript.Event, f *gdrFile) (v transcript.Verdict) {
	if f == nil || len(e.Sent) < abi.ArgSize(uintptr(e.Req)) || len(e.Sent) < 8 || strings.HasPrefix(e.Name, "child.") {
		return v
	}
	handle := binary.LittleEndian.Uint64(e.Sent)
	known := slices.Contains(f.pins, handle)
	switch e.Req {
	case abi.GDRDRV_IOC_PIN_BUFFER:
		f.pinned(e, 32)
		return v
	case abi.GDRDRV_IOC_PIN_BUFFER_V2:
		f.pinned(e, 24)
		return v
	case abi.GDRDRV_IOC_GET_ATTR, abi.GDRDRV_IOC_GET_VERSION:
		return v
	}
	if !known && len(f.pins) > 0 && e.Got.Errno == int(syscall.EINVAL) {
		v.Reason = gdrUnknownHandle
	}
	switch e.Req {
	case abi.GDRDRV_IOC_UNPIN_BUFFER:
		return j.unpin(e, f, handle, v)
	case abi.GDRDRV_IOC_GET_INFO, abi.GDRDRV_IOC_GET_INFO_V2:
		switch {
		case !known || !sameInfo(e):
		case f.forgotten[handle] && infoMapped(e.Got.Out) && !infoMapped(e.Recorded):
			v.Reason = gdrForgotten
		case f.private[handle] && !infoMapped(e.Got.Out) && infoMapped(e.Recorded):
			v.Reason = gdrPrivate
		}
	case abi.GDRDRV_IOC_REQ_MAPPING_TYPE:
		if known && f.forgotten[handle] && e.Err == 0 && e.Got.Errno == int(syscall.EBUSY) {
			v.Reason = gdrForgotten
		}
	}
	return v
}

// sameInfo reports whether two answers of GET_INFO agree but for clocks and the
// mapping.
func sameInfo(e *transcript.Event) bool {
	const clocks = 28
	return e.Err == 0 && e.Got.Errno == 0 && len(e.Recorded) >= 48 && len(e.Got.Out) >= 48 &&
		bytes.Equal(e.Recorded[:clocks], e.Got.Out[:clocks])
}

// infoMapped reports whether either form of GET_INFO says that there is a
// mapping.
func infoMapped(out []byte) bool { return len(out) >= 48 && binary.LittleEndian.Uint32(out[40:]) != 0 }

// pinned notes the handle that the module gave.
func (f *gdrFile) pinned(e *transcript.Event, at int) {
	if e.Err == 0 && len(e.Recorded) >= at+8 {
		f.pins = append(f.pins, binary.LittleEndian.Uint64(e.Recorded[at:]))
	}
}

// unpin notes which pin the module released, and releases it in the emulation.
func (j *gdrdrvJudge) unpin(e *transcript.Event, f *gdrFile, handle uint64, v transcript.Verdict) transcript.Verdict {
	if e.Err != 0 || len(f.pins) == 0 {
		return v
	}
	i := max(slices.Index(f.pins, handle), 0)
	oldest := f.pins[i]
	f.pins = slices.Delete(f.pins, i, i+1)
	if f.forgotten[oldest] {
		j.zapped[f.mapped[oldest]] = true
	}
	if v.Reason != "" {
		v.Then = func() error { return unpinGdrdrv(e.Node, oldest) }
	}
	return v
}

func (j *gdrdrvJudge) mmap(e *transcript.Event, f *gdrFile) (v transcript.Verdict) {
	if f == nil || strings.HasPrefix(e.Name, "child.") {
		return v
	}
	handle := e.Offset / abi.HOST_PAGE
	refused := e.Got.Errno == int(syscall.EINVAL)
	known := slices.Contains(f.pins, handle)
	switch {
	case !known && len(f.pins) > 0 && refused && e.Err == 0:
		v.Reason = gdrUnknownHandle
	case strings.Contains(e.Args.Flags, "PRIVATE"):
		f.private[handle] = f.private[handle] || e.Err == 0
		if refused && e.Err == 0 {
			v.Reason = gdrPrivate
		}
	case f.private[handle] && e.Err == int(syscall.EINVAL) && e.Got.Errno == 0:
		v.Reason = gdrPrivate
	case known && e.Err == 0:
		f.mapped[handle] = e.Bindings[strings.Trim(string(e.Ret), "<>")]
		delete(j.zapped, f.mapped[handle])
	case known && e.Err == int(syscall.EINVAL) && f.mapped[handle] != 0:
		f.forgotten[handle] = true
	}
	return v
}

// munmap forgets a mapping.
func (j *gdrdrvJudge) munmap(e *transcript.Event) {
	delete(j.zapped, e.Addr)
	for _, f := range j.files {
		for h, addr := range f.mapped {
			if addr == e.Addr {
				delete(f.mapped, h)
				delete(f.forgotten, h)
			}
		}
	}
}
