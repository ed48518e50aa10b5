package cufiletest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
)

// A Record is what an engine answered on a machine.
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

// NewRecord returns an empty record of an engine on a GPU.
func NewRecord(engine string, drv gpu.Driver) (*Record, error) {
	infos, err := drv.Devices()
	if err != nil {
		return nil, err
	}
	if len(infos) == 0 {
		return nil, gpu.ErrNoDevice
	}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return nil, err
	}
	return &Record{
		Engine: engine, Driver: drv.Name(), Device: infos[0], Suite: SuiteHash(),
		Kernel: unix.ByteSliceToString(u.Release[:]), Cases: map[string][]string{},
	}, nil
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

// Save writes the record to a file; Load reads it.
func (r *Record) Save(file string) error {
	text, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
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

// A Difference is one that is meant: in cases whose name matches the pattern of
// path.Match, ours is Culvert's outcome and theirs the other engine's.
type Difference struct {
	Cases        string
	Ours, Theirs string // patterns, too
	Reason       string
}

func (d *Difference) covers(name, ours, theirs string) bool {
	match := func(pattern, s string) bool {
		ok, err := path.Match(pattern, s)
		return ok && err == nil
	}
	return match(d.Cases, name) && match(d.Ours, ours) && match(d.Theirs, theirs)
}

// Compare lists how Culvert's outcomes differ from another engine's without
// leave, and the differences that were expected and are none. In each case the
// first difference counts: what comes after it follows from it.
func Compare(ours, theirs *Record, meant []Difference) []string {
	var complaints []string
	needed := make([]bool, len(meant))
	for _, name := range slices.Sorted(maps.Keys(theirs.Cases)) {
		o, ok := ours.Cases[name]
		if !ok {
			complaints = append(complaints, name+": recorded, but not played")
			continue
		}
		a, b, differ := firstOther(o, theirs.Cases[name])
		if !differ {
			continue
		}
		i := slices.IndexFunc(meant, func(d Difference) bool { return d.covers(name, a, b) })
		if i < 0 {
			complaints = append(complaints, fmt.Sprintf("%s: ours %q, theirs %q", name, a, b))
			continue
		}
		needed[i] = true
	}
	for i, d := range meant {
		if !needed[i] {
			complaints = append(complaints, fmt.Sprintf("%s: ours %q, theirs %q: expected (%s), but nothing differs so", d.Cases, d.Ours, d.Theirs, d.Reason))
		}
	}
	return complaints
}

func firstOther(ours, theirs []string) (o, t string, differ bool) {
	const none = "nothing"
	for i := range max(len(ours), len(theirs)) {
		o, t = none, none
		if i < len(ours) {
			o = ours[i]
		}
		if i < len(theirs) {
			t = theirs[i]
		}
		if o != t {
			return o, t, true
		}
	}
	return "", "", false
}
