package nvrm

import (
	"encoding/binary"
	"testing"
)

// The offsets were seen on the wire; they are written out here once more, so
// that a slip in the struct shows.
func TestIPCMemHandleOffsets(t *testing.T) {
	var b [64]byte
	le := binary.LittleEndian
	le.PutUint32(b[8:], 4711)
	le.PutUint64(b[16:], 1<<20+512)
	le.PutUint32(b[24:], 512)
	le.PutUint32(b[28:], 0x38800)
	le.PutUint32(b[32:], 0x6500)
	le.PutUint32(b[48:], 0xc1d00042)
	le.PutUint32(b[52:], 0x5c00001f)
	want := IPCMemHandle{
		PID: 4711, Size: 1<<20 + 512, Pages: 512, Offset: 0x38800, GPUID: 0x6500,
		HClient: 0xc1d00042, HMemory: 0x5c00001f,
	}
	got := ParseIPC(b)
	if got != want {
		t.Errorf("parsed %+v, want %+v", got, want)
	}
	if got.Bytes() != b {
		t.Error("a handle does not survive being parsed and written")
	}
}
