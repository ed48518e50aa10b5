package tensor

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/culvert-io/culvert/internal/object"
)

const (
	manifestSuffix  = ".culvert.json" // behind the name of the file
	manifestVersion = 1

	// maxChunk limits the memory that a reader of a manifest needs.
	maxChunk = 64 << 20
)

// A Manifest contains the checksums of a safetensors file. It is a file of its own
// beside it, because the format has no place for it.
type Manifest struct {
	Version int         `json:"version"`
	File    string      `json:"file"` // without directory
	Size    int64       `json:"bytes"`
	Chunk   int64       `json:"chunk_bytes"`
	Chunks  []Sum       `json:"chunks"` // CRC-32C of each Chunk bytes of the file
	Tensors []TensorSum `json:"tensors"`

	// Inode and Modified (in ns since 1970) are those of the file when it was saved.
	// A copy has others; 0 is unknown.
	Inode    uint64 `json:"inode,omitempty"`
	Modified int64  `json:"modified_ns,omitempty"`
	// ETag is what a store called an object when it was saved, or "".
	ETag string `json:"etag,omitempty"`
	// Previous describes the file that this one replaces, while a save gives the
	// new one its name, and after a crash in that moment. Chunk 0 means that its
	// checksums are unknown.
	Previous *Manifest `json:"previous,omitempty"`
}

// A TensorSum is the CRC-32C of one tensor's bytes.
type TensorSum struct {
	Name string `json:"name"`
	Sum  Sum    `json:"crc32c"`
}

// ErrNoManifest reports a file without a manifest beside it.
var ErrNoManifest = errors.New("no manifest")

// ManifestPath returns the path of a file's manifest: beside it, or, if path is a
// symbolic link with none beside it, beside the file that it points to.
func ManifestPath(path string) string {
	beside := manifestBeside(path)
	if object.IsURL(path) {
		return beside
	}
	if _, err := os.Lstat(beside); !errors.Is(err, fs.ErrNotExist) {
		return beside
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		if _, err := os.Lstat(manifestBeside(real)); err == nil {
			return manifestBeside(real)
		}
	}
	return beside
}

func manifestBeside(path string) string {
	if object.IsURL(path) {
		return object.Join(object.Dir(path), object.Base(path)+manifestSuffix)
	}
	return path + manifestSuffix
}

// manifestFor reads the manifest of the safetensors file at path, of which st is
// the state.
func manifestFor(path string, st fs.FileInfo) (*Manifest, error) {
	m, err := readManifest(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, noManifest(path)
	}
	if err != nil {
		return nil, err
	}
	if m = m.of(st); m.Chunk == 0 {
		return nil, noManifest(path)
	}
	return m, nil
}

func noManifest(path string) error {
	path = object.Redact(path)
	return fmt.Errorf("%s: %w: checksums are unknown (fix: culvert verify --create %s)", path, ErrNoManifest, path)
}

// of returns the manifest of a file: m, or m.Previous if the file is that one.
func (m *Manifest) of(st fs.FileInfo) *Manifest {
	if m.Previous == nil || st == nil {
		return m
	}
	if tag, ok := etag(st).(string); ok { // what the new object is called is not known before it is there
		if tag != "" && tag == m.Previous.ETag {
			return m.Previous
		}
		return m
	}
	// In a copy of both, the inode differs, and perhaps the time.
	for _, same := range []func(*Manifest) bool{
		func(e *Manifest) bool {
			return e.Size == st.Size() && e.Modified == modified(st) && e.Inode == inode(st)
		},
		func(e *Manifest) bool { return e.Size == st.Size() && e.Modified == modified(st) },
		func(e *Manifest) bool { return e.Size == st.Size() },
	} {
		for _, e := range []*Manifest{m, m.Previous} {
			if same(e) {
				return e
			}
		}
	}
	return m
}

// describe notes which file the manifest belongs to.
func (m *Manifest) describe(st fs.FileInfo) { m.Inode, m.Modified = inode(st), modified(st) }

func modified(st fs.FileInfo) int64 { return st.ModTime().UnixNano() }

func inode(st fs.FileInfo) uint64 {
	if s, ok := st.Sys().(*syscall.Stat_t); ok {
		return s.Ino
	}
	return 0
}

// readManifest reads the manifest of the safetensors file at path, with that of the
// previous file if a save is in progress.
func readManifest(path string) (*Manifest, error) {
	mp := ManifestPath(path)
	text, err := readLimited(mp, 4*maxHeader)
	if err != nil {
		return nil, err
	}
	// A later version may have fields that are unknown here.
	var later struct{ Version int }
	if json.Unmarshal(text, &later) == nil && later.Version > manifestVersion {
		return nil, fmt.Errorf("%s: %w", object.Redact(mp), unsupportedManifest(later.Version))
	}
	m := &Manifest{}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(m); err != nil {
		return nil, fmt.Errorf("%s: %w", object.Redact(mp), err)
	}
	name := strings.TrimSuffix(storedName(mp), manifestSuffix)
	if err := m.check(name); err != nil {
		return nil, fmt.Errorf("%s: %w", object.Redact(mp), err)
	}
	if p := m.Previous; p != nil && p.Chunk != 0 {
		if err := p.check(name); err != nil {
			return nil, fmt.Errorf("%s: previous: %w", object.Redact(mp), err)
		}
	}
	return m, nil
}

func unsupportedManifest(version int) error {
	return fmt.Errorf("manifest version %d is not supported (want %d)", version, manifestVersion)
}

func (m *Manifest) check(name string) error {
	switch {
	case m.Version != manifestVersion:
		return unsupportedManifest(m.Version)
	case m.File != name:
		return fmt.Errorf("it is the manifest of %q", m.File)
	case m.Size < 0 || m.Chunk <= 0 || m.Chunk > maxChunk:
		return fmt.Errorf("invalid sizes: %d bytes in chunks of %d", m.Size, m.Chunk)
	case int64(len(m.Chunks)) != m.Size/m.Chunk+min(m.Size%m.Chunk, 1):
		return fmt.Errorf("%d chunks of %d for %d bytes", len(m.Chunks), m.Chunk, m.Size)
	}
	seen := make(map[string]bool, len(m.Tensors))
	for _, t := range m.Tensors {
		if seen[t.Name] {
			return fmt.Errorf("tensor %q occurs twice", t.Name)
		}
		seen[t.Name] = true
	}
	return nil
}

func (m *Manifest) tensorSums() map[string]Sum {
	sums := make(map[string]Sum, len(m.Tensors))
	for _, t := range m.Tensors {
		sums[t.Name] = t.Sum
	}
	return sums
}

func (m *Manifest) write(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(m)
}

// manifest returns the manifest of a file all of whose chunks were added.
func (t *chunkSums) manifest() *Manifest {
	m := &Manifest{
		Version: manifestVersion, File: storedName(t.file.Path), Size: t.file.Size,
		Chunk: t.chunk, Chunks: t.chunks, Tensors: []TensorSum{},
	}
	for i := range t.file.Tensors {
		m.Tensors = append(m.Tensors, TensorSum{t.file.Tensors[i].Name, t.tensor(i)})
	}
	return m
}
