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
		return nil, fmt.Errorf("%s: %w", object.Redact(url), err)
	}
	f.Path = url
	up, err := object.Create(ctx, url, f.Size, o.fresh)
	if err != nil {
		return nil, fmt.Errorf("saving %s: %w", object.Redact(url), err)
	}
	defer func() {
		if derr := up.Discard(ctx); err == nil {
			err = derr
		}
	}()
	w := &writer{opts: o, sums: newChunkSums(f, up.Part()), sources: sources, header: header}
	begin := time.Now()
	if err := w.upload(ctx, up); err != nil {
		return nil, fmt.Errorf("saving %s: %w", object.Redact(url), err)
	}
	begin = lap(&o.Times.Write, begin)
	m = w.sums.manifest()
	if err := publishObject(ctx, url, up, m, o.step); err != nil {
		return nil, fmt.Errorf("saving %s: %w", object.Redact(url), err)
	}
	lap(&o.Times.Publish, begin)
	*o.Origin = up.TakeOrigin()
	return m, nil
}

// upload sends all chunks. One that cannot be sent ends the others.
func (w *writer) upload(ctx context.Context, up *object.Upload) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	size := int(min(up.Part(), int64(alignUp(uint64(w.sums.file.Size), pageSize))))
	buffer := func() ([]byte, func(), error) { return w.opts.Buffer(size) }
	err := eachChunk(ctx, int64(len(w.sums.chunks)), w.opts.workers, buffer, func(k int64, buf []byte) error {
		err := w.send(ctx, up, k, buf)
		if err != nil {
			end(err)
		}
		return err
	})
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return cause
	}
	return err
}

// send sends one chunk.
func (w *writer) send(ctx context.Context, up *object.Upload, k int64, buf []byte) error {
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
}

// publishObject makes the object visible, with its manifest. Another save of the same
// object may do so at the same time: the conditions of the writes leave one of them, and
// the manifest that is there in the end is that of the object.
func publishObject(ctx context.Context, url string, up *object.Upload, m *Manifest, step func(string)) error {
	mp := manifestBeside(url)
	cond, err := object.Current(ctx, mp)
	if err != nil {
		return err
	}
	both := *m
	if both.Previous, err = previousObject(url); err != nil {
		return err
	}
	step("write manifest")
	tag, err := putManifest(ctx, mp, &both, cond)
	if err != nil && context.Cause(ctx) != nil {
		// The store may have it all the same: ask what is there.
		return errors.Join(err, withdrawManifest(ctx, url, &both, cond))
	}
	if err != nil {
		return err
	}
	step("commit")
	if err := up.Commit(ctx); err != nil {
		return errors.Join(err, restoreManifest(ctx, url, &both, tag))
	}
	m.ETag = up.ETag()
	step("write manifest")
	return settleManifest(ctx, url, m, object.Condition{ETag: tag})
}

// settleManifest writes the manifest of an object that has become visible. If another
// save has replaced the manifest meanwhile, that one counts unless it does not know the
// object: then it was written before the object was there, by a save that fails.
func settleManifest(ctx context.Context, url string, m *Manifest, cond object.Condition) (err error) {
	mp := manifestBeside(url)
	for range 5 { // each conflict is another save
		if _, err = putManifest(ctx, mp, m, cond); !errors.Is(err, object.ErrChanged) {
			return err
		}
		var cerr error
		if cond, cerr = object.Current(ctx, mp); cerr != nil {
			return cerr
		}
		now, err := readManifest(url)
		if err == nil && now.Previous != nil && now.Previous.ETag == m.ETag {
			return nil
		}
		if st, err := statStored(url); err != nil || etag(st) != any(m.ETag) {
			return err // the object was replaced; its manifest is not ours
		}
	}
	return err
}

// restoreTime is how long the manifest of a save that was stopped is worth waiting for: as
// long as the removal of its parts.
const restoreTime = 10 * time.Second

// restoreManifest undoes the manifest of a save that has failed, unless another save has
// replaced it. A save that was stopped does so, too, but not for a store that does not answer.
func restoreManifest(ctx context.Context, url string, both *Manifest, tag string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), restoreTime)
	defer cancel()
	mp := manifestBeside(url)
	if now, err := object.Current(ctx, mp); err != nil || now.ETag != tag {
		return err
	}
	st, err := statWith(ctx, url)
	if err == nil && both.Previous != nil && etag(st) == any(both.Previous.ETag) {
		_, err = putManifest(ctx, mp, both.Previous, object.Condition{ETag: tag})
		if errors.Is(err, object.ErrChanged) {
			err = nil
		}
		return err
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return object.Remove(ctx, mp) // there is no object, or one with other checksums
}

// withdrawManifest undoes a manifest whose writing was stopped, if it is there. cond is what
// was there before.
func withdrawManifest(ctx context.Context, url string, both *Manifest, cond object.Condition) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), restoreTime)
	defer cancel()
	var want bytes.Buffer
	if err := both.write(&want); err != nil {
		return err
	}
	f, err := object.Open(ctx, manifestBeside(url))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	now := f.Info()
	if now.ETag == cond.ETag || now.Size != int64(want.Len()) {
		return nil // it never arrived, or is that of another save
	}
	got := make([]byte, now.Size)
	if err := readFull(f, got, 0); err != nil || !bytes.Equal(got, want.Bytes()) {
		return err
	}
	return restoreManifest(ctx, url, both, now.ETag)
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

func putManifest(ctx context.Context, url string, m *Manifest, c object.Condition) (etag string, err error) {
	var b bytes.Buffer
	if err := m.write(&b); err != nil {
		return "", err
	}
	return object.Put(ctx, url, b.Bytes(), c)
}

// createObjectManifest writes the manifest of an object that was read, if it is still
// the one that is there.
func createObjectManifest(ctx context.Context, r stored, url string, t *chunkSums) (*Manifest, error) {
	if changed := named(r, url); changed != nil {
		return nil, changed
	}
	m := t.manifest()
	m.ETag, _ = etag(t.file.stat).(string)
	_, err := putManifest(ctx, manifestBeside(url), m, object.Condition{})
	return m, err
}
