package gpu

import (
	"encoding/hex"
	"fmt"
	"strings"
)

// String formats the UUID as nvidia-smi does.
func (u UUID) String() string {
	h := hex.EncodeToString(u[:])
	return fmt.Sprintf("GPU-%s-%s-%s-%s-%s", h[:8], h[8:12], h[12:16], h[16:20], h[20:])
}

// MarshalText is String.
func (u UUID) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// UnmarshalText parses the format of String.
func (u *UUID) UnmarshalText(text []byte) error {
	h, ok := strings.CutPrefix(string(text), "GPU-")
	b, err := hex.DecodeString(strings.ReplaceAll(h, "-", ""))
	if !ok || err != nil || len(b) != len(u) {
		return fmt.Errorf("invalid GPU UUID %q", text)
	}
	copy(u[:], b)
	return nil
}
