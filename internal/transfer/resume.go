package transfer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/atomicfile"
	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/route"
)

// resumable is the size from which a file can be resumed in the middle: that of the
// buffer. A smaller one is soon copied again.
const resumable = 64 << 20

// A KeptError means that the copy of a large file was stopped. Its beginning is kept,
// and a rerun continues.
type KeptError struct {
	Path     string // of the unfinished file
	Kept, Of int64  // bytes
	Err      error
}

func (e *KeptError) Error() string {
	return fmt.Sprintf("%s of %s are kept in %s: %v", human.Size(e.Kept), human.Size(e.Of), e.Path, e.Err)
}

func (e *KeptError) Unwrap() error { return e.Err }

// A target is the file that a copy fills. It is created with the attributes that new
// files get here. A large file has a name that survives a kill: it takes the place of
// the one that was created, and its attributes.
type target struct {
	*atomicfile.File
	part  bool  // survives a kill
	start int64 // its first bytes are those of the source
}

// resume replaces a new file by the unfinished one of an earlier copy, if the source
// is large. It keeps the beginning that is the same as in the source: all of it is read
// and compared, so it does not matter who wrote it, from which source, and whether
// the machine lost some of it.
func (c *fileCopy) resume(ctx context.Context, fresh *atomicfile.File) (*target, error) {
	o := &c.opts
	if c.source.Size < o.resumable() {
		return &target{File: fresh}, c.dropPart()
	}
	part, err := atomicfile.OpenPart(c.dir, c.name, atomicfile.Options{Step: func(string) { o.step() }})
	if part == nil {
		return &target{File: fresh}, err
	}
	t := &target{File: part, part: true}
	if err := adopt(part.File, fresh.File); err != nil {
		// Then the attributes of a new file could not be had.
		return &target{File: fresh}, part.Discard()
	}
	if t.start, err = c.compare(ctx, part.File); err != nil {
		return nil, errors.Join(c.keep(t, err), fresh.Discard())
	}
	o.step()
	if err := part.Truncate(t.start); err != nil {
		return nil, errors.Join(err, part.Discard(), fresh.Discard())
	}
	if c.res.Resumed = t.start; t.start > 0 && o.Resumed != nil {
		o.Resumed(t.start)
	}
	return t, fresh.Discard()
}

// dropPart removes the unfinished file of an earlier copy, whose source was larger.
func (c *fileCopy) dropPart() error {
	if c.opts.noPart {
		return nil
	}
	if _, err := c.dir.Stat(atomicfile.PartName(c.name)); err != nil {
		return nil // as a rule there is none
	}
	part, err := atomicfile.OpenPart(c.dir, c.name, atomicfile.Options{Step: func(string) { c.opts.step() }})
	if part == nil {
		return err
	}
	return part.Discard()
}

// resumable is the size of the smallest file that is resumed.
func (o *Options) resumable() int64 {
	if o.resumeFrom > 0 {
		return o.resumeFrom
	}
	return resumable
}

// compare returns how many bytes of the unfinished file are used. They are whole units,
// and not all of the source: the last write sets the time of modification. If a route
// is required, that is so for every byte, and none is used.
func (c *fileCopy) compare(ctx context.Context, part *os.File) (int64, error) {
	o := &c.opts
	if o.Route != route.None || o.Require != route.None {
		return 0, nil
	}
	st, err := part.Stat()
	if err != nil {
		return 0, err
	}
	size := c.source.Size
	seen := func(off int64) {
		if o.Advance != nil {
			o.Advance(off, size)
		}
	}
	n, err := samePrefix(ctx, c.in, part, min(st.Size(), size), seen)
	return max(0, min(n, size-1)) / compareUnit * compareUnit, err
}

// keep is called when the copy has failed. One that was stopped is continued by a
// rerun; other errors would come again.
func (c *fileCopy) keep(t *target, err error) error {
	if !t.part || !errors.Is(err, context.Canceled) {
		return errors.Join(err, t.Discard())
	}
	st, serr := t.Stat()
	if serr != nil || st.Size() < compareUnit {
		return errors.Join(err, t.Discard())
	}
	kept := &KeptError{c.dir.Path(atomicfile.PartName(c.name)), min(st.Size(), c.source.Size), c.source.Size, err}
	if lerr := t.Leave(); lerr != nil {
		return errors.Join(kept, lerr)
	}
	return kept
}

// adopt gives an unfinished file the group and extended attributes of a new one: a copy
// that was killed may have given it those of its source. Nobody else may write it, or
// the next copy would not use it.
func adopt(part, fresh *os.File) error {
	var is, want unix.Stat_t
	if err := errors.Join(unix.Fstat(int(part.Fd()), &is), unix.Fstat(int(fresh.Fd()), &want)); err != nil {
		return err
	}
	if is.Gid != want.Gid {
		if err := unix.Fchown(int(part.Fd()), -1, int(want.Gid)); err != nil {
			return err
		}
	}
	if err := sameXattrs(part, fresh); err != nil {
		return err
	}
	return unix.Fchmod(int(part.Fd()), 0o600) // the mode of the copy comes with its last attributes
}

// sameXattrs removes the extended attributes that a new file does not have, and copies
// the others. Those of security modules are theirs.
func sameXattrs(part, fresh *os.File) error {
	is, err := xattrs(part)
	if err != nil {
		return err
	}
	want, err := xattrs(fresh)
	if err != nil {
		return err
	}
	for _, name := range is {
		if slices.Contains(want, name) || strings.HasPrefix(name, "security.") {
			continue
		}
		if err := unix.Fremovexattr(int(part.Fd()), name); err != nil && !errors.Is(err, unix.ENODATA) {
			return err
		}
	}
	return copyXattrs(fresh, part)
}
