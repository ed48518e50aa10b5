package tensor

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"

	"github.com/culvert-io/culvert/internal/object"
)

// openIndex opens a sharded model. The index decides which file a tensor comes
// from, and each of its tensors must be there.
func openIndex(path string) (*Model, error) {
	text, err := readLimited(path, maxHeader)
	if err != nil {
		return nil, err
	}
	shards, err := parseIndex(text)
	if err != nil {
		fe, ok := errors.AsType[*FormatError](err)
		if !ok {
			fe = breaks(ruleIndex, "", "%v", err)
		}
		fe.File = path
		return nil, fe
	}
	dir := dirStored(path)
	files := make(map[string]struct{})
	for name, shard := range shards {
		p := joinStored(dir, shard)
		shards[name] = p
		files[p] = struct{}{}
	}
	m, err := openFiles(path, slices.Sorted(maps.Keys(files)), shards)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", object.Redact(path), err)
	}
	for _, name := range slices.Sorted(maps.Keys(shards)) {
		if _, ok := m.byName[name]; !ok {
			return nil, &FormatError{path, name, ruleIndex, fmt.Sprintf("not in %s, where weight_map sends it", object.Redact(shards[name]))}
		}
	}
	return m, nil
}

// readLimited reads a file of at most limit bytes.
func readLimited(path string, limit int64) ([]byte, error) {
	f, err := openStored(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.NewSectionReader(f, 0, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(text)) > limit {
		return nil, fmt.Errorf("%s: larger than %d bytes", object.Redact(path), limit)
	}
	return text, nil
}

// parseIndex returns the weight_map of an index. The rest must be JSON and is
// ignored.
func parseIndex(text []byte) (map[string]string, error) {
	if !json.Valid(text) {
		var v any
		return nil, json.Unmarshal(text, &v)
	}
	var shards map[string]string
	// Unmarshal takes the last of two equal keys, so the objects are walked key by
	// key.
	err := walkObject(text, func(key string, value json.RawMessage) error {
		if key != "weight_map" {
			return nil
		}
		if shards != nil {
			return errors.New("weight_map occurs twice")
		}
		shards = make(map[string]string)
		return walkObject(value, func(name string, value json.RawMessage) error {
			if _, ok := shards[name]; ok {
				return breaks(ruleDuplicate, name, "the name occurs twice")
			}
			var file string
			if err := json.Unmarshal(value, &file); err != nil {
				return breaks(ruleIndex, name, "%v", err)
			}
			if !filepath.IsLocal(file) {
				return breaks(ruleIndex, name, "file %q is outside the index's directory", file)
			}
			shards[name] = file
			return nil
		})
	})
	if err == nil && len(shards) == 0 {
		err = errors.New("weight_map is missing or empty")
	}
	return shards, err
}

func walkObject(text []byte, field func(key string, value json.RawMessage) error) error {
	d := json.NewDecoder(bytes.NewReader(text))
	open, err := d.Token()
	if err != nil {
		return err
	}
	if open != json.Delim('{') {
		return fmt.Errorf("want an object, found %v", open)
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return err
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return err
		}
		if err := field(key.(string), value); err != nil {
			return err
		}
	}
	return nil
}
