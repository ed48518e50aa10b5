package cards

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/soft/internal/shared"
)

// A Config describes the cards. All processes must have the same.
type Config struct {
	Sizes []uint64 // bytes of each card, multiples of Unit
	Unit  uint64   // what is taken at a time
	Frame uint64   // what Card.Used counts
	// Settings is the text of all that processes must agree on.
	Settings string
}

// Cards are the cards of a machine, opened by a process. They are safe for concurrent use.
type Cards struct {
	path string
	// fd is the memory, which others open through /proc. It is not an os.File: a program
	// may close it, and use its number for a file of its own.
	fd     int
	inode  uint64
	mem    []byte
	head   *header
	places []place
	events []eventSlot
	cards  []*Card
	me     int // the place of this process
	serial uint64

	mu sync.Mutex // of the goroutines of this process; the lock is between processes
}

// A Card is the memory of a GPU. Units and objects are guarded by the lock of the cards.
type Card struct {
	Memory []byte
	Used   []byte // 1 for each frame that was ever used; of a process that holds the unit
	// Units are who uses which unit.
	Units Units

	cards   *Cards
	objects []object
	next    []uint32 // the unit that follows in a shared object
}

// Open opens the cards that processes share by the file at path, or creates them.
func Open(path string, cfg Config) (*Cards, error) {
	c, err := open(path, cfg)
	if err != nil {
		return nil, fmt.Errorf("shared GPU memory: %w", err)
	}
	return c, nil
}

func open(path string, cfg Config) (*Cards, error) {
	if len(cfg.Sizes) > maxCards || len(cfg.Settings) > len(header{}.Settings) {
		return nil, fmt.Errorf("%d cards with %d bytes of settings are too many", len(cfg.Sizes), len(cfg.Settings))
	}
	who, err := self()
	if err != nil {
		return nil, fmt.Errorf("processes find each other by /proc: %w", err)
	}
	d, err := openDirectory(path)
	if err != nil {
		return nil, err
	}
	defer d.close()
	c := &Cards{path: path, fd: -1, me: -1}
	err = c.find(d, cfg)
	if err == nil {
		err = c.attach(d, who)
	}
	if err != nil {
		return nil, errors.Join(err, c.release())
	}
	return c, nil
}

// find opens the memory of the processes in d, or creates it if none of them lives.
func (c *Cards) find(d *directory, cfg Config) error {
	space, err := namespace()
	if err != nil {
		return err
	}
	living := d.living()
	if len(living) > 0 && d.namespace != space {
		return fmt.Errorf("%s: its processes are in another PID namespace (fix: share memory inside one container)", d.path)
	}
	l := newLayout(cfg)
	if len(living) == 0 {
		return c.create(d, l, cfg, space)
	}
	errs := []error{fmt.Errorf("%s: no process that uses it lets others open its memory", d.path)}
	for _, p := range living {
		if c.fd, err = p.open(d.inode); err == nil {
			c.inode = d.inode
			return c.use(d, l, cfg)
		}
		errs = append(errs, fmt.Errorf("process %d: %w", p.pid, err))
	}
	return errors.Join(errs...)
}

// open opens the memory of another process, which must be the file with an inode number.
func (p line) open(inode uint64) (int, error) {
	path := fmt.Sprintf("/proc/%d/fd/%d", p.pid, p.fd)
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: path, Err: err}
	}
	if st, err := stat(fd); err != nil || st.Ino != inode {
		_ = unix.Close(fd) // nothing was written
		return -1, errors.Join(fmt.Errorf("descriptor %d is another file: the program closed the memory", p.fd), err)
	}
	return fd, nil
}

func stat(fd int) (st unix.Stat_t, err error) {
	err = os.NewSyscallError("fstat", unix.Fstat(fd, &st))
	return st, err
}

// seals keep any process from making the memory smaller than what others have mapped.
const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// create creates the memory.
func (c *Cards) create(d *directory, l layout, cfg Config, space uint64) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &limit); err == nil && limit.Cur < l.size {
		return fmt.Errorf("%d bytes exceed the limit on the size of files, %d (fix: ulimit -f unlimited, or a smaller memory= in CULVERT_SOFT)", l.size, limit.Cur)
	}
	fd, err := unix.MemfdCreate("culvert-cards", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return os.NewSyscallError("memfd_create", err)
	}
	c.fd = fd
	if err := unix.Ftruncate(fd, int64(l.size)); err != nil {
		return os.NewSyscallError("ftruncate", err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		return os.NewSyscallError("F_ADD_SEALS", err)
	}
	st, err := stat(fd)
	if err == nil {
		c.inode = st.Ino
		err = c.mapAll(l)
	}
	if err != nil {
		return err
	}
	h := c.head
	h.Magic, h.Version, h.ID = magic, memoryVersion, random()
	copy(h.Settings[:], cfg.Settings)
	for i, card := range c.cards {
		h.Free[i] = int64(card.Units.Len())
	}
	return d.reset(directoryHead{h.ID, c.inode, space})
}

// use maps memory that another process created, if it is of the same cards.
func (c *Cards) use(d *directory, l layout, cfg Config) error {
	st, err := stat(c.fd)
	if err != nil {
		return err
	}
	if st.Size < page {
		return fmt.Errorf("%s leads to memory of %d bytes", d.path, st.Size)
	}
	first, err := shared.Map(c.fd, page)
	if err != nil {
		return err
	}
	defer shared.Unmap(first)
	h := headerOf(first)
	settings := string(bytes.TrimRight(h.Settings[:], "\x00"))
	switch {
	case h.Magic != magic || h.ID != d.id:
		return fmt.Errorf("%s leads to memory that is not of GPUs", d.path)
	case h.Version != memoryVersion:
		return fmt.Errorf("%s: version %d of shared GPU memory, this is version %d (fix: use one release in all processes)", d.path, h.Version, memoryVersion)
	case settings != cfg.Settings:
		return fmt.Errorf("%s: the GPUs of the other processes differ: theirs %q, here %q (fix: the same CULVERT_SOFT in all processes, or CULVERT_SHARED= for GPUs of its own)", d.path, settings, cfg.Settings)
	case uint64(st.Size) != l.size:
		return fmt.Errorf("%s leads to memory of %d bytes, want %d", d.path, st.Size, l.size)
	}
	return c.mapAll(l)
}

// mapAll maps the memory.
func (c *Cards) mapAll(l layout) (err error) {
	if c.mem, err = shared.Map(c.fd, l.size); err != nil {
		return err
	}
	c.head = headerOf(c.mem)
	c.places = part[place](c.mem, l.places, maxProcesses)
	c.events = part[eventSlot](c.mem, l.events, maxEvents)
	for i, at := range l.cards {
		card := &Card{
			Memory:  part[byte](c.mem, at.bytes, int(at.size)),
			Used:    part[byte](c.mem, at.used, at.frames),
			cards:   c,
			objects: part[object](c.mem, at.objects, at.units),
			next:    part[uint32](c.mem, at.next, at.units),
		}
		card.Units = Units{bits: part[uint64](c.mem, at.holders, words*at.units), stride: words, free: &c.head.Free[i], freed: card.forget}
		c.cards = append(c.cards, card)
	}
	return nil
}

// attach gives the process a place.
func (c *Cards) attach(d *directory, who process) error {
	c.head.Attaching.set(who, 0)
	c.lock(attaching)
	c.reap()
	for i := range c.places {
		if c.places[i].Serial == 0 {
			c.me = i
			break
		}
	}
	if c.me >= 0 {
		c.head.Serial++
		c.serial = c.head.Serial
		c.places[c.me].set(who, c.serial)
	}
	c.unlock()
	if c.me < 0 {
		return fmt.Errorf("%s: %d processes use the memory, and more cannot", d.path, maxProcesses)
	}
	for _, card := range c.cards {
		card.Units.as(c.me)
	}
	return d.set(c.me, line{who, uint64(c.fd)})
}

// Lock takes the lock between the processes. It is held for moments, never while bytes
// move.
func (c *Cards) Lock() {
	c.mu.Lock()
	c.lock(uint32(c.me) + 1)
}

// Unlock releases the lock.
func (c *Cards) Unlock() {
	c.unlock()
	c.mu.Unlock()
}

// Card returns card i.
func (c *Cards) Card(i int) *Card { return c.cards[i] }

// Committed returns the count of bytes that were ever allocated, of all processes.
func (c *Cards) Committed() *uint64 { return &c.head.Committed }

// Reap frees the units of processes that have ended. Call with the lock held.
func (c *Cards) Reap() { c.reap() }

func (c *Cards) reap() {
	for i := range c.places {
		if p := &c.places[i]; i != c.me && p.Serial != 0 && !p.process().lives() {
			c.clear(i)
		}
	}
}

// clear frees a place and its units.
func (c *Cards) clear(i int) {
	for _, card := range c.cards {
		card.Units.clear(i)
	}
	for e := range c.events {
		if s := &c.events[e]; s.ID != 0 && s.usedBy(i) {
			s.drop(i)
		}
	}
	c.places[i] = place{}
}

// recount corrects what a process that was killed with the lock has not finished.
func (c *Cards) recount() {
	for _, card := range c.cards {
		card.Units.Recount()
	}
}

// Close frees what the process still uses of the memory. The last process removes the
// file.
func (c *Cards) Close() error {
	d, err := openDirectory(c.path)
	if err == nil {
		defer d.close()
	}
	c.Lock()
	id := c.head.ID
	c.clear(c.me)
	c.Unlock()
	err = errors.Join(err, c.release())
	if d != nil {
		err = errors.Join(err, c.leave(d, id))
	}
	return err
}

// Leave is for a process that is about to end, and in which threads may still use the
// memory: newcomers do not look for the memory in it any more. The last process removes
// the file.
func (c *Cards) Leave() error {
	d, err := openDirectory(c.path)
	if err != nil {
		return err
	}
	defer d.close()
	return c.leave(d, c.head.ID)
}

// leave removes the line of this process from the file of memory id, and the file if it was
// the last.
func (c *Cards) leave(d *directory, id uint64) (err error) {
	if d.id == id {
		err = d.set(c.me, line{})
	} else if d.lines != nil {
		return nil // the file was removed, and is that of other processes now
	}
	if len(d.living()) == 0 {
		err = errors.Join(err, os.Remove(c.path))
	}
	return err
}

// release unmaps the memory and closes its descriptor.
func (c *Cards) release() error {
	var errs []error
	if c.mem != nil {
		errs = append(errs, shared.Unmap(c.mem))
		c.mem, c.head, c.places, c.events, c.cards = nil, nil, nil, nil, nil
	}
	if st, err := stat(c.fd); err == nil && st.Ino == c.inode {
		errs = append(errs, os.NewSyscallError("close", unix.Close(c.fd)))
	}
	return errors.Join(errs...)
}
