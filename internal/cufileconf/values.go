package cufileconf

import (
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"

	"github.com/culvert-io/culvert/cufile"
)

// Values are settings by key.
type Values map[string]value

// Of are the values of valid settings. Of two with one key, the later wins.
func Of(settings ...[]Setting) Values {
	v := Values{}
	for _, list := range settings {
		for i := range list {
			if s := &list[i]; !s.Unknown && s.Err == nil {
				v[s.Key] = s.from
			}
		}
	}
	return v
}

// Number, Bool, Text and Numbers return the value of a key of their kind; false if it
// is not set.
func (v Values) Number(key string) (uint64, bool)    { return v[key].number() }
func (v Values) Bool(key string) (b, ok bool)        { return v[key].boolean() }
func (v Values) Text(key string) (string, bool)      { return v[key].text() }
func (v Values) Numbers(key string) ([]uint64, bool) { return v[key].numbers() }

// changed reports whether a key is set to another value than NVIDIA's stock value. Only
// then it has an effect: stock files set every key.
func (v Values) changed(name string) bool {
	set, ok := v[name]
	if !ok {
		return false
	}
	k := keys[name]
	if b, isBool := set.boolean(); k.kind == boolean && isBool {
		return fmt.Sprint(b) != k.stock
	}
	return string(set) != k.stock
}

// number is the number of a changed key, and 0 otherwise.
func (v Values) number(name string) uint64 {
	if !v.changed(name) {
		return 0
	}
	n, _ := v.Number(name)
	return n
}

// Set sets a key as a call does. A value that the key cannot have is ignored.
func (v Values) Set(name string, to any) {
	b, err := json.Marshal(to)
	k, known := keys[name]
	if err == nil && known && k.check(value(b)) == nil {
		v[name] = value(b)
	}
}

// Config is what the values mean for a driver.
func (v Values) Config() cufile.Config {
	c := cufile.Config{
		BatchSize:  int(v.number("properties.io_batchsize")),
		Workers:    int(v.number("execution.max_io_threads")),
		SlotSize:   slotSize(v.number("properties.max_direct_io_size_kb")),
		DirectOnly: v.changed("properties.allow_compat_mode"),
		StagedOnly: v.changed("properties.force_compat_mode"),
		ODirect:    v.changed("properties.force_odirect_mode"),
	}
	if c.StagedOnly { // which NVIDIA's library lets win, too
		c.DirectOnly = false
	}
	if name := "properties.max_device_pinned_mem_size_kb"; v.changed(name) {
		c.BARLimit = max(min(v.number(name), math.MaxUint64>>10)<<10, 1) // 0 maps nothing
	}
	c.PollSize = v.pollSize()
	c.PinnedBudget = v.slabs()
	c.Denylist = cufile.Denylist{FileSystems: v.texts("denylist.filesystems"), Mounts: v.texts("denylist.mounts"), Devices: v.texts("denylist.devices"), Drivers: v.texts("denylist.drivers"), FSIDs: v.texts("denylist.fsids")}
	return c
}

// pollSize is up to which size copies are polled for, in bytes; 0 without poll mode.
func (v Values) pollSize() int64 {
	const stock = 4
	if !v.changed("properties.use_poll_mode") {
		return 0
	}
	kb, ok := v.Number("properties.poll_mode_max_size_kb")
	if !ok {
		kb = stock
	}
	return int64(min(kb, math.MaxInt64>>10) << 10)
}

// texts is the list of a changed key.
func (v Values) texts(name string) []string {
	if !v.changed(name) {
		return nil
	}
	list, _ := v[name].texts()
	return list
}

const (
	page = 4 << 10
	// A ring with less cannot overlap reads and copies.
	minBudget = 8 << 20
	minSlot   = 64 << 10
)

// slotSize is a size that the ring accepts; 0 keeps its own.
func slotSize(kb uint64) int {
	if kb == 0 {
		return 0
	}
	return int(max(kb<<10/page*page, minSlot))
}

// slabs is the sum of the slabs of the POSIX pool in bytes; 0 if they are NVIDIA's or
// not pairs.
func (v Values) slabs() int64 {
	const sizes, counts = "properties.posix_pool_slab_size_kb", "properties.posix_pool_slab_count"
	if !v.changed(sizes) && !v.changed(counts) {
		return 0
	}
	kb, _ := v.Numbers(sizes)
	n, _ := v.Numbers(counts)
	if len(kb) != len(n) {
		return 0
	}
	const most = 1 << 40
	var sum uint64
	for i := range kb {
		if kb[i] > most>>10 || n[i] > most || kb[i]<<10*n[i] > most {
			return 0
		}
		sum += kb[i] << 10 * n[i]
	}
	if sum == 0 || sum > most {
		return 0
	}
	return int64(max(sum, minBudget))
}

// LogPath is the log file; empty for none.
func (v Values) LogPath() string {
	if file, _ := v.Text("logging.file"); file != "" {
		return file
	}
	if dir, _ := v.Text("logging.dir"); dir != "" {
		return filepath.Join(dir, "cufile.log")
	}
	return ""
}

// LogLimit is the largest size of the log in bytes; 0 for none.
func (v Values) LogLimit() int64 {
	const key, stock = "logging.max_file_size_mb", 32
	if v[key] == "-1" {
		return 0
	}
	if mb, ok := v.Number(key); ok {
		return int64(mb) << 20
	}
	return stock << 20
}
