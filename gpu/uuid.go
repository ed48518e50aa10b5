package gpu

import (
	"encoding/hex"
	"fmt"
)

// String prints the UUID the way nvidia-smi does.
func (u UUID) String() string {
	h := hex.EncodeToString(u[:])
	return fmt.Sprintf("GPU-%s-%s-%s-%s-%s", h[:8], h[8:12], h[12:16], h[16:20], h[20:])
}

// MarshalText makes JSON carry the printed form.
func (u UUID) MarshalText() ([]byte, error) { return []byte(u.String()), nil }
