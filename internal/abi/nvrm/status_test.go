package nvrm

import (
	"errors"
	"fmt"
	"testing"
)

func TestStatus(t *testing.T) {
	if err := NV_OK.Err(); err != nil {
		t.Errorf("NV_OK is an error: %v", err)
	}
	err := fmt.Errorf("map: %w", NV_ERR_STATE_IN_USE.Err())
	if !errors.Is(err, NV_ERR_STATE_IN_USE) || errors.Is(err, NV_ERR_GENERIC) {
		t.Errorf("errors.Is does not see the status in %v", err)
	}
	if got, want := err.Error(), "map: NV_ERR_STATE_IN_USE (0x63)"; got != want {
		t.Errorf("text is %q, want %q", got, want)
	}
	if got, want := Status(0x12345).Error(), "NV_STATUS_0x12345 (0x12345)"; got != want {
		t.Errorf("text of an unknown status is %q, want %q", got, want)
	}
}

func TestStatusNamesAreThoseOfTheConstants(t *testing.T) {
	for name, s := range map[string]Status{
		"NV_OK": NV_OK, "NV_ERR_GENERIC": NV_ERR_GENERIC, "NV_ERR_INSUFFICIENT_PERMISSIONS": NV_ERR_INSUFFICIENT_PERMISSIONS,
		"NV_ERR_INVALID_CLASS": NV_ERR_INVALID_CLASS, "NV_ERR_INVALID_LIMIT": NV_ERR_INVALID_LIMIT,
		"NV_ERR_OBJECT_NOT_FOUND": NV_ERR_OBJECT_NOT_FOUND, "NV_ERR_STATE_IN_USE": NV_ERR_STATE_IN_USE,
		"NV_ERR_NOT_SUPPORTED": NV_ERR_NOT_SUPPORTED, "NV_ERR_INVALID_PARAM_STRUCT": NV_ERR_INVALID_PARAM_STRUCT,
	} {
		if s.Name() != name {
			t.Errorf("%#x is named %s, want %s", uint32(s), s.Name(), name)
		}
	}
	for s, name := range map[Status]string{
		0x1: "NV_ERR_BROKEN_FB", 0x8b: "NV_ERR_DMA_XFER_FAILED", 0x8c: "NV_STATUS_0x8c",
		0x10000: "NV_STATUS_0x10000", 0x10001: "NV_WARN_HOT_SWITCH", 0x10009: "NV_WARN_THRESHOLD_CROSSED", 0x1000a: "NV_STATUS_0x1000a",
	} {
		if s.Name() != name {
			t.Errorf("%#x is named %s, want %s", uint32(s), s.Name(), name)
		}
	}
	// Seen on hardware: a device object without an open node; UVM without P2P pages.
	if NV_ERR_INSUFFICIENT_PERMISSIONS != 0x1b || NV_ERR_NOT_SUPPORTED != 0x56 {
		t.Error("numbers differ from those seen on hardware")
	}
}
