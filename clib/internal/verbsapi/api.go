package verbsapi

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"sync"
	"syscall"

	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/rdma"
)

// An API answers the calls of a process.
type API struct {
	machine func() (*machine.Machine, error)

	contexts *handle.Table[*device]
	domains  *handle.Table[*domain]
	regions  *handle.Table[*region]
	channels *handle.Table[*channel]
	queues   *handle.Table[*queue]
	pairs    *handle.Table[*pair]

	mu   sync.Mutex
	open map[string]*device // by name
}

// A device is open once per process, however often the program opens it: all its
// contexts have the same GID.
type device struct {
	rdma.Device
	name  string
	users int // guarded by API.mu
}

// An owned object belongs to a context, which ends it if the program did not.
type owned struct{ context handle.ID }

func (o owned) of(context handle.ID) bool { return o.context == context }

// New returns an API for the adapters of a machine.
func New(m func() (*machine.Machine, error)) *API {
	return &API{
		machine:  m,
		contexts: handle.NewTable[*device](0x20),
		domains:  handle.NewTable[*domain](0x21),
		regions:  handle.NewTable[*region](0x22),
		channels: handle.NewTable[*channel](0x23),
		queues:   handle.NewTable[*queue](0x24),
		pairs:    handle.NewTable[*pair](0x25),
		open:     map[string]*device{},
	}
}

// Errno is the errno of an error; 0 for none.
func Errno(err error) int32 {
	if err == nil {
		return 0
	}
	if e, ok := errors.AsType[syscall.Errno](err); ok {
		return int32(e)
	}
	return int32(syscall.EINVAL)
}

// find looks an object up.
func find[T any](t *handle.Table[T], id handle.ID, what string) (T, error) {
	v, ok := t.Get(id)
	if !ok {
		return v, fmt.Errorf("there is no such %s: %w", what, syscall.EINVAL)
	}
	return v, nil
}

// add gives an object an ID, or ends it if there are too many.
func add[T any](t *handle.Table[T], out cmem.Ptr, v T, end func() error) error {
	id, ok := t.Add(v)
	if !ok {
		return errors.Join(syscall.ENOMEM, end())
	}
	return cmem.Answer(out, id)
}

// remove ends an object and forgets it, unless that fails: what is in use stays.
func remove[T interface{ Close() error }](t *handle.Table[T], id handle.ID, what string) error {
	v, err := find(t, id, what)
	if err != nil {
		return err
	}
	if err := v.Close(); err != nil {
		return err
	}
	t.Remove(id)
	return nil
}

// sweep ends all objects of a context.
func sweep[T interface {
	Close() error
	of(handle.ID) bool
}](t *handle.Table[T], context handle.ID,
) (err error) {
	for _, v := range t.RemoveFunc(func(v T) bool { return v.of(context) }) {
		err = errors.Join(err, v.Close())
	}
	return err
}

func (a *API) provider() (rdma.Provider, error) {
	m, err := a.machine()
	if err != nil {
		return nil, err
	}
	if m.RDMA == nil {
		return nil, fmt.Errorf("this libibverbs.so.1 is the software machine's, but the process uses hardware: %w", syscall.ENODEV)
	}
	return m.RDMA, nil
}

// ReadFile reads a file of the machine's /sys, without the newline at its end.
func (a *API) ReadFile(dir, file, buf cmem.Ptr, size uint64) (int64, error) {
	const limit = 4096
	d, ok1 := cmem.String(dir, limit)
	f, ok2 := cmem.String(file, limit)
	if !ok1 || !ok2 {
		return 0, syscall.ENAMETOOLONG
	}
	m, err := a.machine()
	if err != nil {
		return 0, err
	}
	if _, err := a.provider(); err != nil {
		return 0, err
	}
	if _, err := m.RDMA.Devices(); err != nil { // their files appear with them
		return 0, err
	}
	text, err := fs.ReadFile(dev.Of(m).FS(), strings.TrimPrefix(path.Join("/", d, f), "/"))
	if err != nil {
		return 0, errors.Join(syscall.ENOENT, err)
	}
	text = []byte(strings.TrimSuffix(string(text), "\n"))
	cmem.PutString(buf, int(min(size, limit)), string(text))
	return int64(min(uint64(len(text)), size)), nil
}
