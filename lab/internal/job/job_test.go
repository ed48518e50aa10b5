package job

import "testing"

func TestExitCode(t *testing.T) {
	for code, want := range map[int]int{0: 0, 1: 1, 2: 2, 63: 63, 64: 62, 137: 62, -1: 62} {
		status := int(ExitByte(code))<<1 | 1 // as QEMU computes it
		if status > 255 {
			t.Errorf("ExitByte(%d) does not fit into an exit status", code)
		}
		if got, ok := ExitCode(status); !ok || got != want {
			t.Errorf("code %d came back as %d, %v", code, got, ok)
		}
	}
	// 0: powered off without a report. 1: QEMU's own error. 255: exit(-1).
	for _, status := range []int{0, 1, 2, 3, 127, 128, 130} {
		if code, ok := ExitCode(status); ok {
			t.Errorf("status %d was taken for exit code %d", status, code)
		}
	}
}
