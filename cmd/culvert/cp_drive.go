package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/internal/crc32c"
	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/internal/transfer"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/nvme"
	"github.com/culvert-io/culvert/route"
)

// driveScheme begins the name of a range of a drive without a file system.
const driveScheme = "nvme://"

// A driveCopy copies a range of a drive to a file, or the reverse.
type driveCopy struct {
	URL    string `json:"drive"`
	File   string `json:"file"`
	Write  bool   `json:"write"` // to the drive
	name   string // as culvert nvme takes it
	nsid   uint32
	offset int64
	size   int64 // 0 means to the end

	machine *machine.Machine
}

// planDrive plans a copy of which one end is a drive; ok is false if none is.
func planDrive(src, dst string) (job copyJob, ok bool, err error) {
	isFrom, isTo := strings.HasPrefix(src, driveScheme), strings.HasPrefix(dst, driveScheme)
	if !isFrom && !isTo {
		return nil, false, nil
	}
	if isFrom && isTo {
		return nil, true, usageError{errors.New("one of SOURCE and DEST must be a file of this host")}
	}
	c := &driveCopy{URL: src, File: dst, Write: isTo}
	if isTo {
		c.URL, c.File = dst, src
	}
	if err := c.parse(); err != nil {
		return nil, true, err
	}
	if st, err := os.Stat(c.File); err == nil && st.IsDir() {
		return nil, true, fmt.Errorf("%s is a directory: a drive is copied to and from a file", c.File)
	}
	return c, true, nil
}

// parse reads nvme://DRIVE?ns=N&offset=BYTES&size=BYTES. DRIVE is taken literally.
func (c *driveCopy) parse() error {
	if err := c.parseURL(); err != nil {
		return usageError{fmt.Errorf("%s: %w (want %sDRIVE?ns=1&offset=BYTES&size=BYTES; culvert nvme list has drives)", c.URL, err, driveScheme)}
	}
	return nil
}

func (c *driveCopy) parseURL() error {
	name, query, _ := strings.Cut(strings.TrimPrefix(c.URL, driveScheme), "?")
	if kind, rest, _ := strings.Cut(name, ":"); kind == "" || rest == "" {
		return fmt.Errorf("invalid drive %q", name)
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return err
	}
	c.name, c.nsid = name, 1
	for key, list := range values {
		text := list[len(list)-1]
		switch key {
		case "ns":
			n, perr := strconv.ParseUint(text, 10, 32)
			c.nsid, err = uint32(n), perr
		case "offset":
			c.offset, err = human.ParseSize(text)
		case "size":
			c.size, err = human.ParseSize(text)
		default:
			err = errors.New("unknown option")
		}
		if err != nil {
			return fmt.Errorf("%s=%s: %w", key, text, err)
		}
	}
	return nil
}

func (c *driveCopy) String() string {
	src, dst := c.URL, c.File
	if c.Write {
		src, dst = dst, src
	}
	return fmt.Sprintf("%-8s %s -> %s", "copy", human.Name(src), human.Name(dst))
}

func (c *driveCopy) paths() []string { return []string{c.File} }

func (c *driveCopy) on(m *machine.Machine) { c.machine = m }

func (c *driveCopy) run(ctx context.Context, drv *cufile.Driver, opts transfer.TreeOptions, v verbosity) (transferResult, error) {
	if opts.Preserve {
		return nil, usageError{errors.New("--preserve needs both files on this host")}
	}
	d, err := c.drive(drv, opts.GPU)
	if err != nil {
		return nil, err
	}
	var res transfer.Result
	err = d.use(func() error {
		if c.Write && d.readOnly != nil {
			return d.readOnly
		}
		end, err := c.open(d, &opts.Options)
		if err != nil {
			return err
		}
		defer metered(&opts.Options, v)()
		if c.Write {
			res, err = transfer.Push(ctx, drv, c.File, end, opts.Options)
		} else {
			res, err = transfer.Fetch(ctx, drv, end, c.File, opts.Options)
		}
		return err
	})
	return res, err
}

// drive is the drive, which is not open yet.
func (c *driveCopy) drive(drv *cufile.Driver, gpu int) (*drive, error) {
	dev, err := drv.Device(gpu)
	if err != nil {
		return nil, err
	}
	return &drive{name: c.name, via: "gpu:" + strconv.Itoa(gpu), m: c.machine, dev: dev}, nil
}

// open makes the range of the drive an end of the copy. A file must fit into it, and if
// the drive must move all of it, be whole blocks: found out later, that would leave the
// drive half written.
func (c *driveCopy) open(d *drive, o *transfer.Options) (*driveEnd, error) {
	ns, err := d.namespace(c.nsid)
	if err != nil {
		return nil, err
	}
	s, err := nvme.NewSource(ns, nvme.SourceOptions{Name: c.URL, Offset: c.offset, Size: c.size})
	if err != nil || !c.Write {
		return &driveEnd{s}, err
	}
	st, err := os.Stat(c.File)
	if err != nil {
		return nil, err
	}
	if room, _ := s.Size(); st.Size() > room {
		return nil, fmt.Errorf("%s has %d bytes, and %s room for %d", c.File, st.Size(), c.URL, room)
	}
	need := max(o.Route, o.Require)
	if need.Direct() && st.Size()%int64(ns.BlockSize()) != 0 {
		return nil, &route.RequireError{Want: need, Got: route.Host, Declined: []*route.Decline{{
			Route: route.NVMe, Test: "alignment",
			Evidence: fmt.Sprintf("%s has %d bytes, which are not whole blocks of %d", c.File, st.Size(), ns.BlockSize()),
			Fix:      "do not require the route: the end of the file then uses another",
		}}}
	}
	return &driveEnd{s}, nil
}

// A driveEnd is a range of a drive as one end of a copy.
type driveEnd struct{ *nvme.Source }

// Fresh is false: what is not written keeps its bytes.
func (e *driveEnd) Fresh() bool { return false }

// Abort does nothing: commands to a drive end soon, or time out.
func (e *driveEnd) Abort() {}

// Sum reads through host memory.
func (e *driveEnd) Sum(ctx context.Context, n int64) (uint32, error) {
	sum, _, err := crc32c.File(ctx, io.NewSectionReader(e.Source, 0, n))
	return sum, err
}

// Commit makes writes durable.
func (e *driveEnd) Commit(context.Context) error { return e.Sync() }

// Close frees the memory of the source.
func (e *driveEnd) Close(context.Context) error { return e.Source.Close() }
