package cufileconf

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/culvert-io/culvert/cufile"
)

const example = `// a file of a user
{
  "logging": { "level": "ERROR" }, // as in the stock file
  "properties": {
    "max_direct_io_size_kb": 1024, /* block comment */
    "posix_pool_slab_size_kb": [ 64, 1024 ],
    "posix_pool_slab_count": [ 64, 32 ],
    "use_compat_mode": 0,
    "io_batchsize": 300,
    "no_such_key": { "deep": [1, {"x": null}] },
  },
  "fs": { "lustre": { "mount_table": { "/mnt": { "rdma_dev_addr_list": ["10.0.0.1"] } } } },
}
`

func TestParse(t *testing.T) {
	got, err := Parse([]byte(example))
	if err != nil {
		t.Fatal(err)
	}
	type row struct {
		Key, Value   string
		Line, Column int
		Unknown      bool
		Err          string
	}
	var rows []row
	for _, s := range got {
		r := row{s.Key, s.Value, s.Line, s.Column, s.Unknown, ""}
		if s.Err != nil {
			r.Err = s.Err.Error()
		}
		rows = append(rows, r)
	}
	want := []row{
		{"logging.level", `"ERROR"`, 3, 16, false, ""},
		{"properties.max_direct_io_size_kb", "1024", 5, 5, false, ""},
		{"properties.posix_pool_slab_size_kb", "[64,1024]", 6, 5, false, ""},
		{"properties.posix_pool_slab_count", "[64,32]", 7, 5, false, ""},
		{"properties.allow_compat_mode", "0", 8, 5, false, ""},
		{"properties.io_batchsize", "300", 9, 5, false, "300 exceeds 256"},
		{"properties.no_such_key.deep", `[1,{"x":null}]`, 10, 22, true, ""},
		{"fs.lustre.mount_table", `{"/mnt":{"rdma_dev_addr_list":["10.0.0.1"]}}`, 12, 23, false, ""},
	}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	c := Of(got).Config()
	if diff := cmp.Diff(cufile.Config{SlotSize: 1 << 20, PinnedBudget: 36 << 20, DirectOnly: true}, c); diff != "" {
		t.Errorf("config (-want +got):\n%s", diff)
	}
}

// NVIDIA's stock values ask for nothing.
func TestStockValuesChangeNothing(t *testing.T) {
	var all []Setting
	for name, k := range keys {
		if k.stock == "" {
			continue
		}
		s := newSetting(name, value(k.stock))
		if s.Err != nil {
			t.Errorf("%s: the stock value is invalid: %v", name, s.Err)
		}
		all = append(all, s)
	}
	v := Of(all)
	if diff := cmp.Diff(cufile.Config{}, v.Config()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for i := range all {
		if got := v.Effect(&all[i]); !strings.HasPrefix(got, "no effect") {
			t.Errorf("%s: %s", all[i].Key, got)
		}
	}
}

// Every key that is not declined says what it does.
func TestEveryKeyHasAnEffectOrAReason(t *testing.T) {
	samples := map[kind]value{boolean: "true", number: "2", text: `"DEBUG"`, numbers: "[2048]", texts: `["x"]`, other: `["x"]`}
	for name, k := range keys {
		v := samples[k.kind]
		if string(v) == k.stock {
			v = "false"
		}
		all := []Setting{newSetting(name, v)}
		if k.kind == numbers && k.none == "" { // they are pairs
			all = append(all, newSetting("properties.posix_pool_slab_size_kb", v), newSetting("properties.posix_pool_slab_count", v))
		}
		if strings.HasPrefix(name, "logging.") && name != "logging.dir" { // they need a log
			all = append(all, newSetting("logging.dir", `"/log"`))
		}
		if name == "properties.poll_mode_max_size_kb" {
			all = append(all, newSetting("properties.use_poll_mode", "true"))
		}
		got := Of(all).Effect(&all[0])
		if none := strings.HasPrefix(got, "no effect: "); none != (k.none != "") || got == "no effect" {
			t.Errorf("%s=%s: %s", name, v, got)
		}
	}
}

// A later list wins: variables come after the file, and calls after both.
func TestPrecedence(t *testing.T) {
	file, err := Parse([]byte(`{"properties": {"allow_compat_mode": false, "io_batchsize": 16}}`))
	if err != nil {
		t.Fatal(err)
	}
	env := FromEnvironment(func(name string) string {
		return map[string]string{"CUFILE_ALLOW_COMPAT_MODE": "TRUE", "CUFILE_FORCE_COMPAT_MODE": "maybe", "CUFILE_LOGFILE_PATH": "/tmp/x"}[name]
	})
	v := Of(file, env)
	if diff := cmp.Diff(cufile.Config{BatchSize: 16}, v.Config()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := v.LogPath(); got != "/tmp/x" {
		t.Errorf("log %q", got)
	}
	if got := v.Effect(&file[0]); got != "no effect: set again elsewhere" {
		t.Error(got)
	}
	if diff := cmp.Diff([]string{"CUFILE_LOGFILE_PATH", "CUFILE_ALLOW_COMPAT_MODE", "CUFILE_FORCE_COMPAT_MODE"}, []string{env[0].Where(), env[1].Where(), env[2].Where()}); diff != "" {
		t.Error(diff)
	}
	if env[2].Err == nil {
		t.Error("an invalid variable is valid")
	}
}

func TestInvalidFiles(t *testing.T) {
	for text, want := range map[string]string{
		"":            "EOF",
		"[]":          "not a JSON object",
		"{":           "line 1",
		`{"a": 1`:     "line 1",
		"{\n\"a\" 1}": "line 2",
		`{"a":"` + strings.Repeat("x", maxSize) + `"}`: "larger than",
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v, want %q", text, err, want)
		}
	}
	name := filepath.Join(t.TempDir(), "cufile.json")
	if err := os.WriteFile(name, []byte("{,}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadFile(name); err == nil || !strings.Contains(err.Error(), name) {
		t.Error(err)
	}
	if s, err := Parse([]byte(`{"properties": {"io_batchsize": null, "use_poll_mode": "yes", "posix_pool_slab_count": [-1]}}`)); err != nil || s[0].Err == nil || s[1].Err == nil || s[2].Err == nil {
		t.Errorf("%+v, %v", s, err)
	}
}

// The keys of the log depend on one another.
func TestLog(t *testing.T) {
	for _, c := range []struct {
		text, file    string // file is the variable
		path          string
		limit         int64
		key, contains string
	}{
		{`{"logging":{"level":"TRACE"}}`, "", "", 32 << 20, "logging.level", "there is no log"},
		{`{"logging":{"dir":"/var/log","level":"trace"}}`, "", "/var/log/cufile.log", 32 << 20, "logging.level", "its route"},
		{`{"logging":{"dir":"/var/log","level":"loud"}}`, "", "/var/log/cufile.log", 32 << 20, "logging.level", "counts as ERROR"},
		{`{"logging":{"dir":"/var/log"}}`, "", "/var/log/cufile.log", 32 << 20, "logging.dir", "/var/log/cufile.log"},
		{`{"logging":{"dir":"/var/log","max_file_size_mb":-1}}`, "/tmp/x", "/tmp/x", 0, "logging.dir", "CUFILE_LOGFILE_PATH wins"},
		{`{"logging":{"dir":"/var/log","max_file_size_mb":1}}`, "", "/var/log/cufile.log", 1 << 20, "logging.max_file_size_mb", "emptied"},
		{`{"logging":{"file":"/var/log/x"}}`, "", "", 32 << 20, "logging.file", "unknown key"},
	} {
		file, err := Parse([]byte(c.text))
		if err != nil {
			t.Fatal(err)
		}
		v := Of(file, FromEnvironment(func(name string) string {
			if name == "CUFILE_LOGFILE_PATH" {
				return c.file
			}
			return ""
		}))
		if v.LogPath() != c.path || v.LogLimit() != c.limit {
			t.Errorf("%s: %q, %d", c.text, v.LogPath(), v.LogLimit())
		}
		for i := range file {
			if got := v.Effect(&file[i]); file[i].Key == c.key && !strings.Contains(got, c.contains) {
				t.Errorf("%s: %s", c.text, got)
			}
		}
	}
}

// Poll mode is off unless it is asked for; then NVIDIA's size is 4 KiB.
func TestPollMode(t *testing.T) {
	for text, want := range map[string]int64{
		`{}`: 0,
		`{"properties":{"poll_mode_max_size_kb":64}}`:                                        0,
		`{"properties":{"use_poll_mode":false,"poll_mode_max_size_kb":64}}`:                  0,
		`{"properties":{"use_poll_mode":true}}`:                                              4 << 10,
		`{"properties":{"use_poll_mode":true,"poll_mode_max_size_kb":64}}`:                   64 << 10,
		`{"properties":{"use_poll_mode":true,"poll_mode_max_size_kb":18446744073709551615}}`: math.MaxInt64 &^ 1023,
	} {
		all, err := Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if got := Of(all).Config().PollSize; got != want {
			t.Errorf("%s: %d, want %d", text, got, want)
		}
	}
}

// A cap of 0 maps nothing, and a value too large to be counted in bytes no less than all.
func TestPinnedMemory(t *testing.T) {
	for text, want := range map[string]uint64{"33554432": 0, "1024": 1 << 20, "0": 1, "18446744073709551615": math.MaxUint64 &^ 1023, "18014398509481984": math.MaxUint64 &^ 1023} {
		all, err := Parse([]byte(`{"properties":{"max_device_pinned_mem_size_kb":` + text + `}}`))
		if err != nil {
			t.Fatal(err)
		}
		if got := Of(all).Config().BARLimit; got != want {
			t.Errorf("%s KiB: %d bytes, want %d", text, got, want)
		}
	}
}

func TestDenylist(t *testing.T) {
	all, err := Parse([]byte(`{"denylist":{"mounts":["/a"],"filesystems":["xfs"],"drivers":["nvme"],"fsids":["1f"]},"blacklist":{"devices":["/dev/sda"]}}`))
	if err != nil {
		t.Fatal(err)
	}
	want := cufile.Config{Denylist: cufile.Denylist{FileSystems: []string{"xfs"}, Mounts: []string{"/a"}, Devices: []string{"/dev/sda"}, Drivers: []string{"nvme"}, FSIDs: []string{"1f"}}}
	if d := cmp.Diff(want, Of(all).Config()); d != "" {
		t.Error(d)
	}
	if bad, err := Parse([]byte(`{"denylist":{"mounts":[1],"devices":"/dev/sda"}}`)); err != nil || bad[0].Err == nil || bad[1].Err == nil {
		t.Errorf("%+v, %v", bad, err)
	}
}

// A hostile file costs no more than its size: nesting is bounded, and places are found in
// one pass.
func TestHostileFiles(t *testing.T) {
	deep := func(open, end string, n int) string { return strings.Repeat(open, n) + "1" + strings.Repeat(end, n) }
	for text, want := range map[string]string{
		deep(`{"a":`, "}", 43000):                     "nested deeper",
		`{"a":` + deep("[", "]", 120000) + "}":        "nested deeper",
		deep(`{"a":`, "}", maxDepth+1):                "nested deeper",
		deep(`{"a":`, "}", maxDepth):                  "",
		`{"a":"` + strings.Repeat("[", 200000) + `"}`: "",
		"{/*" + strings.Repeat("{", 200000) + "*/}":   "",
		"{//" + strings.Repeat("[", 200000) + "\n}":   "",
		`{"\\\"` + strings.Repeat("[", 99) + `":1}`:   "",
		"{/*" + strings.Repeat("[", 99):               "line 1",
		`{"` + strings.Repeat("[", 99):                "line 1",
		"{" + strings.Repeat(`"a":1,`, 40000) + "}":   "",
	} {
		_, err := Parse([]byte(text))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%.30q: %v, want %q", text, err, want)
		}
	}
	all, err := Parse([]byte("{" + strings.Repeat("\n \"a\":1,", 30000) + "}"))
	if err != nil || len(all) != 30000 || all[29999].Line != 30001 || all[29999].Column != 2 {
		t.Errorf("%d settings, %v", len(all), err)
	}
}

// Any file gives settings or an error, and any settings a valid configuration.
func FuzzParse(f *testing.F) {
	f.Add([]byte(example))
	f.Add([]byte(`{"properties":{"posix_pool_slab_size_kb":[18446744073709551615],"posix_pool_slab_count":[2]}}`))
	f.Add([]byte(`{"properties":{"max_direct_io_size_kb":1,"max_device_pinned_mem_size_kb":18446744073709551615}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		all, err := Parse(text)
		if err != nil {
			return
		}
		v := Of(all)
		if err := v.Config().Check(); err != nil {
			t.Errorf("%q: %v", text, err)
		}
		for i := range all {
			if v.Effect(&all[i]) == "" || all[i].Line < 1 || all[i].Column < 1 {
				t.Errorf("%q: %+v", text, all[i])
			}
		}
	})
}
