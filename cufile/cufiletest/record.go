package cufiletest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"

	"github.com/culvert-io/culvert/gpu"
)

// A Record is what an implementation of cuFile answered on a machine.
type Record struct {
	Engine string   `json:"engine"`
	Driver string   `json:"driver"` // the GPU's
	Device gpu.Info `json:"device"`
	Kernel string   `json:"kernel"`
	Suite  string   `json:"suite"` // hash of the cases
	// Cases are the outcomes of the steps by case. A case that ended early has
	// fewer.
	Cases map[string][]string `json:"cases"`
}

// SuiteHash tells which cases a record was made with.
func SuiteHash() string {
	text, err := json.Marshal(Cases())
	if err != nil {
		return err.Error()
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// Load reads a record from a file.
func Load(file string) (*Record, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	r := new(Record)
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return r, nil
}
