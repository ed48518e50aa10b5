package ladder

import "github.com/culvert-io/culvert/internal/storage"

// FileSource is an open file as a source.
func FileSource(f *storage.File) Source { return fileSource{f} }

type fileSource struct{ f *storage.File }

func (s fileSource) Name() string         { return s.f.Name }
func (s fileSource) Size() (int64, error) { return s.f.Size() }
func (s fileSource) File() *storage.File  { return s.f }

// ReadAt reads until p is full or the file ends (io.EOF).
func (s fileSource) ReadAt(p []byte, off int64) (int, error) { return preadFull(s.f, p, off) }

// WriteAt writes all of p.
func (s fileSource) WriteAt(p []byte, off int64) (int, error) { return pwriteFull(s.f, p, off) }
