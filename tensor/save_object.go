package tensor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/culvert-io/culvert/internal/object"
)

// saveObject is Save for a URL. Chunks are the parts of the upload: they go from pinned
// memory to the store. A store has no rename of two objects at once, so the manifest is
// replaced by one of both objects first, then the object appears, then the manifest is
// that of the new object alone.
func saveObject(ctx context.Context, url string, tensors []Source, o SaveOptions) (m *Manifest, err error) {
	f, sources, header, err := arrange(tensors, o.Metadata)
	if fe, ok := errors.AsType[*FormatError](err); ok {
		fe.File = url
		return nil, fe
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", url, err)
	}
	f.Path = url
	up, err := object.Create(ctx, url, f.Size)
	if err != nil {
		return nil, fmt.Errorf("saving %s: %w", url, err)
	}
	defer func() {
		if derr := up.Discard(ctx); err == nil {
			err = derr
		}
	}()
	w := &writer{opts: o, sums: newChunkSums(f, up.Part()), sources: sources, header: header}
	begin := time.Now()
	if err := w.upload(ctx, up); err != nil {
		return nil, fmt.Errorf("saving %s: %w", url, err)
	}
	begin = lap(&o.Times.Write, begin)
	m = w.sums.manifest()
	if err := publishObject(ctx, url, up, m, o.step); err != nil {
		return nil, fmt.Errorf("saving %s: %w", url, err)
	}
	lap(&o.Times.Publish, begin)
	return m, nil
}

// upload sends all chunks.
func (w *writer) upload(ctx context.Context, up *object.Upload) error {
	size := int(min(up.Part(), int64(alignUp(uint64(w.sums.file.Size), pageSize))))
	buffer := func() ([]byte, func(), error) { return w.opts.Buffer(size) }
	return eachChunk(ctx, int64(len(w.sums.chunks)), w.opts.workers, buffer, func(k int64, buf []byte) error {
		if err := w.fill(k, buf); err != nil {
			return err
		}
		start, end := w.sums.bounds(k)
		w.opts.step("write")
		if err := up.Write(ctx, buf[:end-start], start); err != nil {
			return err
		}
		w.advance(end - start)
		return nil
	})
}

// publishObject makes the object visible, with its manifest.
func publishObject(ctx context.Context, url string, up *object.Upload, m *Manifest, step func(string)) error {
	both := *m
	var err error
	if both.Previous, err = previousObject(url); err != nil {
		return err
	}
	mp := manifestBeside(url)
	step("write manifest")
	if err := putManifest(ctx, mp, &both); err != nil {
		return err
	}
	step("commit")
	if err := up.Commit(ctx); err != nil {
		if both.Previous == nil {
			err = errors.Join(err, object.Remove(context.WithoutCancel(ctx), mp))
		} else {
			err = errors.Join(err, putManifest(context.WithoutCancel(ctx), mp, both.Previous))
		}
		return err
	}
	st, err := statStored(url)
	if err != nil {
		return err
	}
	m.ETag, _ = etag(st).(string)
	step("write manifest")
	return putManifest(ctx, mp, m)
}

// previousObject is the manifest of the object that is to be replaced, nil if there is
// none.
func previousObject(url string) (*Manifest, error) {
	st, err := statStored(url)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	old, err := readManifest(url)
	if err != nil {
		old = &Manifest{Version: manifestVersion, Chunks: []Sum{}, Tensors: []TensorSum{}}
	} else {
		c := *old.of(st)
		old = &c
	}
	old.File, old.Size, old.Previous = storedName(url), st.Size(), nil
	old.ETag, _ = etag(st).(string)
	if old.check(old.File) != nil {
		old.Chunk, old.Chunks, old.Tensors = 0, []Sum{}, []TensorSum{}
	}
	return old, nil
}

func putManifest(ctx context.Context, url string, m *Manifest) error {
	var b bytes.Buffer
	if err := m.write(&b); err != nil {
		return err
	}
	return object.Put(ctx, url, b.Bytes(), object.Condition{})
}

// createObjectManifest writes the manifest of an object that was read, if it is still
// the one that is there.
func createObjectManifest(ctx context.Context, r stored, url string, t *chunkSums) (*Manifest, error) {
	if changed := named(r, url); changed != nil {
		return nil, changed
	}
	m := t.manifest()
	m.ETag, _ = etag(t.file.stat).(string)
	return m, putManifest(ctx, manifestBeside(url), m)
}
