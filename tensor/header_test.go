package tensor

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// image is a safetensors file: the header's length, the header, data bytes.
func image(header string, data int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	b = append(b, header...)
	return append(b, make([]byte, data)...)
}

func parseImage(b []byte) (*File, error) { return readHeader(bytes.NewReader(b), int64(len(b))) }

func TestValid(t *testing.T) {
	i32 := `{"test":{"dtype":"I32","shape":[2,2],"data_offsets":[0,16]}}`
	data := int64(lengthSize + len(i32))
	tests := []struct {
		name   string
		header string
		data   int
		want   []Info
		meta   map[string]string
	}{
		{"one tensor", i32, 16, []Info{{"test", I32, []int64{2, 2}, data, 16, 0}}, nil},
		{"no tensor", "{}", 0, nil, nil},
		{"no tensor, padded", "{}      ", 0, nil, nil},
		{"white space behind", "{}\r \t\n", 0, nil, nil},
		// The format's text wants '{' first, but its reader and its tests take
		// white space, because writers align data with it.
		{"white space in front", "\t\n{}\r ", 0, nil, nil},
		{"metadata alone", `{"__metadata__":{"framework":"pt"}}`, 0, nil, map[string]string{"framework": "pt"}},
		{"empty metadata", `{"__metadata__":{}}`, 0, nil, map[string]string{}},
		{"scalar", `{"test":{"dtype":"I32","shape":[],"data_offsets":[0,4]}}`, 4, []Info{{"test", I32, []int64{}, 64, 4, 0}}, nil},
		{"empty tensor", `{"test":{"dtype":"I32","shape":[2,0],"data_offsets":[0, 0]}}`, 0, []Info{{"test", I32, []int64{2, 0}, 68, 0, 0}}, nil},
		{"two 4-bit elements", `{"attn.0":{"dtype":"F4","shape":[1,2],"data_offsets":[0,1]}}`, 1, []Info{{"attn.0", F4, []int64{1, 2}, 68, 1, 0}}, nil},
		{"four 6-bit elements", `{"a":{"dtype":"F6_E2M3","shape":[4],"data_offsets":[0,3]}}`, 3, []Info{{"a", F6_E2M3, []int64{4}, 66, 3, 0}}, nil},
		{"keys in another order", `{"a":{"shape":[1],"data_offsets":[0,8],"dtype":"C64"}}`, 8, []Info{{"a", C64, []int64{1}, 62, 8, 0}}, nil},
		{
			"entries not by offset",
			`{"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 3,
			[]Info{{"a", U8, []int64{1}, 113, 1, 0}, {"b", U8, []int64{2}, 114, 2, 0}},
			nil,
		},
		{
			"empty tensors between others",
			`{"b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]},"z":{"dtype":"U8","shape":[0],"data_offsets":[1,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 2,
			[]Info{{"a", U8, []int64{1}, 165, 1, 0}, {"z", U8, []int64{0}, 166, 0, 0}, {"b", U8, []int64{1}, 166, 1, 0}},
			nil,
		},
		{"escaped name", `{"\u0061\"\\\/\ud83d\ude00\n":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1, []Info{{"a\"\\/\U0001F600\n", U8, []int64{1}, 86, 1, 0}}, nil},
		{"empty name", `{"":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1, []Info{{"", U8, []int64{1}, 60, 1, 0}}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f, err := parseImage(image(tt.header, tt.data))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, f.Tensors); diff != "" {
				t.Errorf("tensors (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.meta, f.Metadata); diff != "" {
				t.Errorf("metadata (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMalformed(t *testing.T) {
	one := func(dtype, shape, offsets string) string {
		return fmt.Sprintf(`{"test":{"dtype":%q,"shape":[%s],"data_offsets":[%s]}}`, dtype, shape, offsets)
	}
	good := one("I32", "2,2", "0,16")
	overlapping := make([]string, 10)
	for i := range overlapping {
		overlapping[i] = fmt.Sprintf(`"weight_%d":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}`, i)
	}
	huge := image(good, 16)
	copy(huge[5:8], "\xff\xff\xff")

	tests := []struct {
		name string
		file []byte
		want string
		says string
	}{
		{"nothing", nil, ruleLength, "0 bytes"},
		{"seven bytes", make([]byte, 7), ruleLength, "7 bytes"},
		{"header too large", huge, ruleHeaderMax, "18446742974197923900"},
		{"header one byte too large", binary.LittleEndian.AppendUint64(nil, maxHeader+1), ruleHeaderMax, "100000001"},
		{"header missing", []byte("<\x00\x00\x00\x00\x00\x00\x00"), ruleHeaderEnd, "60 bytes, 0 follow"},
		{"header cut", image(good, 0)[:40], ruleHeaderEnd, "60 bytes, 32 follow"},
		{"not UTF-8", image("\xff", 0), ruleUTF8, ""},
		{"not UTF-8 in a name", image("{\"\xc3\x28\":{}}", 0), ruleUTF8, ""},
		{"empty header", image("", 0), ruleJSON, "found the end at byte 0"},
		{"brace alone", image("{", 0), ruleJSON, "found the end at byte 1"},
		{"array", image("[]", 0), ruleJSON, `found '['`},
		{"two objects", image("{}{}", 0), ruleJSON, "want the end"},
		{"NUL padding", image("{}\x00\x00", 0), ruleJSON, "want the end"},
		{"trailing comma", image(`{"a":{"dtype":"U8","shape":[1,],"data_offsets":[0,1]}}`, 1), ruleJSON, "unsigned integer"},
		{"deep", image(strings.Repeat(`{"a":`, 100_000), 0), ruleJSON, `unknown key "a"`},
		{"deep array", image(`{"a":{"dtype":"U8","data_offsets":[0,1],"shape":`+strings.Repeat("[", 100_000), 0), ruleJSON, "unsigned integer"},
		{"tensor is a number", image(`{"a":1}`, 0), ruleJSON, "want '{'"},
		{"tensor is null", image(`{"a":null}`, 0), ruleJSON, "want '{'"},
		{"missing dtype", image(`{"a":{"shape":[1],"data_offsets":[0,1]}}`, 1), ruleJSON, "lacks"},
		{"missing shape", image(`{"a":{"dtype":"U8","data_offsets":[0,1]}}`, 1), ruleJSON, "lacks"},
		{"missing offsets", image(`{"a":{"dtype":"U8","shape":[1]}}`, 1), ruleJSON, "lacks"},
		{"unknown key", image(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"strides":[1]}}`, 1), ruleJSON, `unknown key "strides"`},
		{"negative dimension", image(one("U8", "-1", "0,1"), 1), ruleJSON, `found '-'`},
		{"negative zero", image(one("U8", "-0", "0,0"), 0), ruleJSON, `found '-'`},
		{"fraction", image(one("U8", "1.0", "0,1"), 1), ruleJSON, "fraction"},
		{"exponent", image(one("U8", "1e0", "0,1"), 1), ruleJSON, "exponent"},
		{"leading zero", image(one("U8", "01", "0,1"), 1), ruleJSON, "starts with 0"},
		{"shape of strings", image(one("U8", `"1"`, "0,1"), 1), ruleJSON, "unsigned integer"},
		{"one offset", image(one("U8", "1", "0"), 1), ruleJSON, "1 numbers"},
		{"three offsets", image(one("U8", "1", "0,1,1"), 1), ruleJSON, "3 numbers"},
		{"number of 65 bits", image(one("U8", "18446744073709551616", "0,1"), 1), ruleJSON, "64 bits"},
		{"control character", image("{\"a\x01\":{}}", 0), ruleJSON, "control character"},
		{"unknown escape", image(`{"\x":{}}`, 0), ruleJSON, "escape"},
		{"short escape", image(`{"\u12`, 0), ruleJSON, "escape"},
		{"half a pair", image(`{"\ud83d":{}}`, 0), ruleJSON, "surrogate"},
		{"pair the wrong way", image(`{"\ude00\ud83d":{}}`, 0), ruleJSON, "surrogate"},
		{"metadata is a string", image(`{"__metadata__":"x"}`, 0), ruleMetadata, "not an object"},
		{"metadata is null", image(`{"__metadata__":null}`, 0), ruleMetadata, "not an object"},
		{"metadata with a number", image(`{"__metadata__":{"step":1}}`, 0), ruleMetadata, `"step"`},
		{"metadata with an object", image(`{"__metadata__":{"a":{}}}`, 0), ruleMetadata, `"a"`},
		{"metadata key twice", image(`{"__metadata__":{"a":"","a":""}}`, 0), ruleDuplicate, `"a"`},
		{"metadata twice", image(`{"__metadata__":{},"__metadata__":{}}`, 0), ruleDuplicate, "__metadata__"},
		{"name twice", image(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"\u0061":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, 2), ruleDuplicate, `tensor "a"`},
		{"dtype twice", image(`{"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1), ruleDuplicate, `"dtype"`},
		{"unknown dtype", image(one("F12", "1", "0,1"), 1), ruleDtype, `"F12"`},
		{"dtype in lower case", image(one("bf16", "1", "0,2"), 2), ruleDtype, `"bf16"`},
		{"reversed offsets", image(one("U8", "1", "1,0"), 1), ruleOffsets, "end before they begin"},
		{"offset of 64 bits", image(one("U8", "1", "0,9223372036854775808"), 1), ruleOverflow, "9223372036854775808"},
		{"hole at the start", image(one("U8", "1", "1,2"), 2), ruleOffsets, "hole of 1 bytes"},
		{"hole between", image(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}}`, 3), ruleOffsets, `"b": starts at 2: a hole`},
		{"all in one place", image("{"+strings.Join(overlapping, ",")+"}", 16), ruleOffsets, `inside "weight_0"`},
		{"empty inside another", image(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[0],"data_offsets":[1,1]}}`, 2), ruleOffsets, `inside "a"`},
		{"shape overflows", image(one("I32", "2,18446744073709551614", "0,16"), 16), ruleOverflow, "18446744073709551614"},
		{"size overflows", image(one("I32", "2,9223372036854775807", "0,16"), 16), ruleOverflow, "9223372036854775807"},
		{"count overflows", image(one("U8", "4294967296,4294967296,4294967296", "0,16"), 16), ruleOverflow, "4294967296"},
		{"half a byte", image(one("F4", "1,3", "0,2"), 2), ruleSubByte, "F4"},
		{"six bits", image(one("F6_E3M2", "1", "0,1"), 1), ruleSubByte, "F6_E3M2"},
		{"fp4 with too many bytes", image(one("F4", "1,2", "0,2"), 2), ruleSize, "give 1 bytes, data_offsets 2"},
		{"size differs", image(`{"test":{"dtype":"I32","shape":[2,2],"data_offsets":[0, 4]}}`, 0), ruleSize, "give 16 bytes, data_offsets 4"},
		{"trailing bytes", append(image(good, 16), "extra_bogus_data_for_polyglot_file"...), ruleEnd, "34 bytes follow"},
		{"two bytes missing", image(good, 14), ruleEnd, "14 of 16"},
		{"data without tensors", image("{}", 1), ruleEnd, "1 bytes follow"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f, err := parseImage(tt.file)
			if err == nil {
				t.Fatalf("accepted: %+v", f)
			}
			if !isError(err, brokenRule(tt.want)) {
				t.Errorf("error %v, want rule %q", err, tt.want)
			}
			if !strings.Contains(err.Error(), tt.says) {
				t.Errorf("error %q does not say %q", err, tt.says)
			}
		})
	}
}

func TestOpenFileNamesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "broken.safetensors")
	if err := os.WriteFile(path, image(`{"w":{"dtype":"U8","shape":[2],"data_offsets":[0,1]}}`, 1), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := openFile(path)
	fe, ok := errors.AsType[*FormatError](err)
	if !ok || fe.File != path || fe.Tensor != "w" || fe.Rule != ruleSize {
		t.Fatalf("error %#v", err)
	}
	if _, err := openFile(t.TempDir()); err == nil {
		t.Fatal("a directory was accepted")
	}
	if _, err := openFile(path + "x"); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("error %v", err)
	}
}

func TestDtypes(t *testing.T) {
	if len(dtypeBits) != 22 {
		t.Errorf("%d dtypes, the format has 22", len(dtypeBits))
	}
	for d := range dtypeBits {
		var back Dtype
		if err := json.Unmarshal([]byte(`"`+string(d)+`"`), &back); err != nil || back != d || !d.Valid() {
			t.Errorf("%s comes back as %v, %v", d, back, err)
		}
	}
	var d Dtype
	if err := json.Unmarshal([]byte(`"F12"`), &d); err == nil {
		t.Error("an unknown dtype was accepted")
	}
}

// jsonFile is how encoding/json sees a header.
type jsonEntry struct {
	Dtype   string   `json:"dtype"`
	Shape   []int64  `json:"shape"`
	Offsets [2]int64 `json:"data_offsets"`
}

// FuzzHeader checks two guarantees: nothing panics, and what is accepted means
// the same to encoding/json and covers the file's data exactly once.
func FuzzHeader(f *testing.F) {
	f.Add([]byte(`{"a":{"dtype":"I32","shape":[2,2],"data_offsets":[0,16]}}`), 16)
	f.Add([]byte(`{"__metadata__":{"k":"\u00e9\ud83d\ude00"},"b":{"dtype":"F4","shape":[2],"data_offsets":[0,1]}}  `), 1)
	f.Add([]byte(`{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"b":{"dtype":"U8","shape":[],"data_offsets":[0,1]}}`), 1)
	f.Add([]byte(" {}"), 0)
	f.Fuzz(func(t *testing.T, header []byte, data int) {
		if data < 0 || data > 1<<16 {
			return
		}
		file, err := parseImage(image(string(header), data))
		if err != nil {
			if _, ok := errors.AsType[*FormatError](err); !ok {
				t.Fatalf("error of type %T: %v", err, err)
			}
			return
		}
		var entries map[string]json.RawMessage
		if err := json.Unmarshal(header, &entries); err != nil {
			t.Fatalf("accepted %q, encoding/json: %v", header, err)
		}
		delete(entries, metadataKey)
		if len(entries) != len(file.Tensors) {
			t.Fatalf("%d tensors, encoding/json sees %d", len(file.Tensors), len(entries))
		}
		end := file.Data
		for _, info := range file.Tensors {
			var e jsonEntry
			if err := json.Unmarshal(entries[info.Name], &e); err != nil {
				t.Fatalf("%q: %v", info.Name, err)
			}
			got := jsonEntry{string(info.Dtype), info.Shape, [2]int64{info.Off - file.Data, info.Off - file.Data + info.Len}}
			if diff := cmp.Diff(e, got); diff != "" {
				t.Fatalf("%q (-encoding/json +ours):\n%s", info.Name, diff)
			}
			if info.Off != end {
				t.Fatalf("%q at %d, want %d", info.Name, info.Off, end)
			}
			end += info.Len
		}
		if end != file.Size {
			t.Fatalf("data ends at %d of %d", end, file.Size)
		}
	})
}

// Any name that JSON can carry comes back.
func TestNamesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.String().Draw(t, "name")
		quoted, err := json.Marshal(name)
		if err != nil {
			t.Fatal(err)
		}
		file, err := parseImage(image(`{`+string(quoted)+`:{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1))
		if name == metadataKey {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := file.Tensors[0].Name; got != name {
			t.Fatalf("%q came back as %q", name, got)
		}
	})
}
