package nvme

import (
	"testing"
	"unsafe"
)

// TestOffsets holds the structs to the byte numbers that the specification
// prints beside their fields.
func TestOffsets(t *testing.T) {
	var (
		cmd Command
		cqe Completion
		ctl IdentifyController
		ns  IdentifyNamespace
	)
	for _, f := range []struct {
		name      string
		got, want uintptr
	}{
		{"command NSID", unsafe.Offsetof(cmd.NSID), 4},
		{"command CID", unsafe.Offsetof(cmd.CID), 2},
		{"command MPTR", unsafe.Offsetof(cmd.MPTR), 16},
		{"command PRP1", unsafe.Offsetof(cmd.PRP1), 24},
		{"command PRP2", unsafe.Offsetof(cmd.PRP2), 32},
		{"command CDW10", unsafe.Offsetof(cmd.CDW10), 40},
		{"command CDW15", unsafe.Offsetof(cmd.CDW15), 60},
		{"completion SQHD", unsafe.Offsetof(cqe.SQHD), 8},
		{"completion SQID", unsafe.Offsetof(cqe.SQID), 10},
		{"completion DW3", unsafe.Offsetof(cqe.DW3), 12},
		{"controller SN", unsafe.Offsetof(ctl.SN), 4},
		{"controller MN", unsafe.Offsetof(ctl.MN), 24},
		{"controller FR", unsafe.Offsetof(ctl.FR), 64},
		{"controller RAB", unsafe.Offsetof(ctl.RAB), 72},
		{"controller MDTS", unsafe.Offsetof(ctl.MDTS), 77},
		{"controller CNTLID", unsafe.Offsetof(ctl.CNTLID), 78},
		{"controller VER", unsafe.Offsetof(ctl.VER), 80},
		{"controller OACS", unsafe.Offsetof(ctl.OACS), 256},
		{"controller ACL", unsafe.Offsetof(ctl.ACL), 258},
		{"controller NPSS", unsafe.Offsetof(ctl.NPSS), 263},
		{"controller SQES", unsafe.Offsetof(ctl.SQES), 512},
		{"controller CQES", unsafe.Offsetof(ctl.CQES), 513},
		{"controller MAXCMD", unsafe.Offsetof(ctl.MAXCMD), 514},
		{"controller NN", unsafe.Offsetof(ctl.NN), 516},
		{"controller ONCS", unsafe.Offsetof(ctl.ONCS), 520},
		{"controller VWC", unsafe.Offsetof(ctl.VWC), 525},
		{"controller AWUN", unsafe.Offsetof(ctl.AWUN), 526},
		{"controller SGLS", unsafe.Offsetof(ctl.SGLS), 536},
		{"controller SUBNQN", unsafe.Offsetof(ctl.SUBNQN), 768},
		{"controller PSD", unsafe.Offsetof(ctl.PSD), 2048},
		{"controller Vendor", unsafe.Offsetof(ctl.Vendor), 3072},
		{"namespace NCAP", unsafe.Offsetof(ns.NCAP), 8},
		{"namespace NUSE", unsafe.Offsetof(ns.NUSE), 16},
		{"namespace NLBAF", unsafe.Offsetof(ns.NLBAF), 25},
		{"namespace FLBAS", unsafe.Offsetof(ns.FLBAS), 26},
		{"namespace MC", unsafe.Offsetof(ns.MC), 27},
		{"namespace DPS", unsafe.Offsetof(ns.DPS), 29},
		{"namespace NGUID", unsafe.Offsetof(ns.NGUID), 104},
		{"namespace EUI64", unsafe.Offsetof(ns.EUI64), 120},
		{"namespace LBAF", unsafe.Offsetof(ns.LBAF), 128},
		{"namespace Vendor", unsafe.Offsetof(ns.Vendor), 384},
		{"format LBADS", unsafe.Offsetof(ns.LBAF[0].LBADS), 2},
	} {
		if f.got != f.want {
			t.Errorf("%s is at byte %d, the specification says %d", f.name, f.got, f.want)
		}
	}
}

// TestCAP reads what QEMU's controller shows.
func TestCAP(t *testing.T) {
	const c CAP = 0x0040_1820_0f01_07ff
	switch {
	case c.MQES() != 2047, !c.CQR(), c.TO() != 15, c.DSTRD() != 0, c.CSS() != 0xc1, c.MPSMIN() != 0, c.MPSMAX() != 4:
		t.Errorf("%#x: MQES %d, CQR %v, TO %d, DSTRD %d, CSS %#x, MPSMIN %d, MPSMAX %d",
			uint64(c), c.MQES(), c.CQR(), c.TO(), c.DSTRD(), c.CSS(), c.MPSMIN(), c.MPSMAX())
	}
	made := CAP(4095 | CAP_CQR | 60<<CAP_TO_SHIFT | 3<<CAP_DSTRD_SHIFT | CAP_CSS_NVM | 1<<CAP_MPSMIN_SHIFT | 2<<CAP_MPSMAX_SHIFT)
	if made.MQES() != 4095 || !made.CQR() || made.TO() != 60 || made.DSTRD() != 3 || made.CSS() != 1 || made.MPSMIN() != 1 || made.MPSMAX() != 2 {
		t.Errorf("made %#x", uint64(made))
	}
}

func TestDoorbells(t *testing.T) {
	for _, d := range []struct {
		q      uint16
		stride uint8
		sq, cq uint64
	}{
		{0, 0, 0x1000, 0x1004},
		{1, 0, 0x1008, 0x100c},
		{3, 0, 0x1018, 0x101c},
		{1, 4, 0x1080, 0x10c0},
		{65535, 15, 0x1000 + 131070*0x20000, 0x1000 + 131071*0x20000},
	} {
		if sq, cq := SQTDBL(d.q, d.stride), CQHDBL(d.q, d.stride); sq != d.sq || cq != d.cq {
			t.Errorf("queue %d, stride %d: doorbells at %#x and %#x, want %#x and %#x", d.q, d.stride, sq, cq, d.sq, d.cq)
		}
	}
}

func TestDW3(t *testing.T) {
	dw3 := MakeDW3(0xabcd, true, UNRECOVERED_READ|STATUS_DNR)
	if CID(dw3) != 0xabcd || !Phase(dw3) || StatusOf(dw3) != UNRECOVERED_READ|STATUS_DNR {
		t.Errorf("%#x: cid %#x, phase %v, status %v", dw3, CID(dw3), Phase(dw3), StatusOf(dw3))
	}
	if dw3 = MakeDW3(1, false, 0); dw3 != 1 {
		t.Errorf("%#x", dw3)
	}
}

func TestStatusText(t *testing.T) {
	for s, want := range map[Status]string{
		UNRECOVERED_READ | STATUS_DNR: "Unrecovered Read Error (0x281), do not retry",
		LBA_OUT_OF_RANGE:              "LBA Out of Range (0x080)",
		0x1ff:                         "command specific status (0x1ff)",
		0x7c0 | STATUS_MORE:           "vendor specific status (0x7c0)",
		0x4c0:                         "reserved status (0x4c0)",
	} {
		if got := s.String(); got != want {
			t.Errorf("%#x is %q, want %q", uint16(s), got, want)
		}
	}
}
