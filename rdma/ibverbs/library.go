package ibverbs

import (
	"cmp"
	"errors"
	"fmt"
	"syscall"

	"github.com/culvert-io/culvert/internal/dl"
	"github.com/culvert-io/culvert/internal/env"
)

var (
	// ErrNoLibrary means that libibverbs could not be loaded.
	ErrNoLibrary = errors.New("libibverbs is not installed")
	// ErrOwnLibrary means that the libibverbs found is Culvert's software one.
	ErrOwnLibrary = errors.New("this libibverbs is Culvert's software adapter")
)

// EnvLibrary is the environment variable that names the library to load.
const EnvLibrary = "CULVERT_LIBIBVERBS"

// ownMarker is exported by Culvert's own libraries.
const ownMarker = "culvert_soft_machine"

// library has the functions of libibverbs that have symbols.
type library struct {
	path string

	getDeviceList, freeDeviceList dl.Func
	getDeviceName, getDeviceGUID  dl.Func
	openDevice, closeDevice       dl.Func
	queryDevice, queryPort        dl.Func
	allocPD, deallocPD            dl.Func
	deregMR                       dl.Func
	createChannel, destroyChannel dl.Func
	createCQ, destroyCQ           dl.Func
	getCQEvent, ackCQEvents       dl.Func
	createQP, destroyQP           dl.Func
	modifyQP, queryQP             dl.Func
	getAsyncEvent, ackAsyncEvent  dl.Func
	regMR, regMRIova2, regDMABuf  dl.Func // one of the first two is needed
	queryGIDTable, queryGID       dl.Func // likewise
}

// load loads the library that the environment names, or the system's. One that is named
// may be Culvert's own.
func load(name string) (*library, error) {
	named := cmp.Or(name, env.Get(EnvLibrary))
	names := []string{"libibverbs.so.1"}
	if named != "" {
		names = []string{named}
	}
	lib, err := dl.Open(names...)
	if err != nil {
		return nil, fmt.Errorf("%w: %w (fix: apt install ibverbs-providers, or set %s to the path of the library)", ErrNoLibrary, err, EnvLibrary)
	}
	l := &library{path: lib.Path()}
	if err := l.resolve(lib, named != ""); err != nil {
		return nil, errors.Join(err, lib.Close())
	}
	return l, nil
}

func (l *library) resolve(lib *dl.Library, own bool) error {
	if lib.Has(ownMarker) && !own {
		return fmt.Errorf("%s: %w (fix: use the provider of the software machine, or set %s to the path of rdma-core's library)", l.path, ErrOwnLibrary, EnvLibrary)
	}
	for name, fn := range map[string]*dl.Func{
		"ibv_get_device_list": &l.getDeviceList, "ibv_free_device_list": &l.freeDeviceList,
		"ibv_get_device_name": &l.getDeviceName, "ibv_get_device_guid": &l.getDeviceGUID,
		"ibv_open_device": &l.openDevice, "ibv_close_device": &l.closeDevice,
		"ibv_query_device": &l.queryDevice, "ibv_query_port": &l.queryPort,
		"ibv_alloc_pd": &l.allocPD, "ibv_dealloc_pd": &l.deallocPD, "ibv_dereg_mr": &l.deregMR,
		"ibv_create_comp_channel": &l.createChannel, "ibv_destroy_comp_channel": &l.destroyChannel,
		"ibv_create_cq": &l.createCQ, "ibv_destroy_cq": &l.destroyCQ,
		"ibv_get_cq_event": &l.getCQEvent, "ibv_ack_cq_events": &l.ackCQEvents,
		"ibv_create_qp": &l.createQP, "ibv_destroy_qp": &l.destroyQP,
		"ibv_modify_qp": &l.modifyQP, "ibv_query_qp": &l.queryQP,
		"ibv_get_async_event": &l.getAsyncEvent, "ibv_ack_async_event": &l.ackAsyncEvent,
		"ibv_reg_mr": &l.regMR, "ibv_query_gid": &l.queryGID,
	} {
		f, err := lib.Sym(name)
		if err != nil {
			return fmt.Errorf("%w (fix: install rdma-core 28 or newer)", err)
		}
		*fn = f
	}
	// Absent in old releases.
	for name, fn := range map[string]*dl.Func{
		"ibv_reg_mr_iova2": &l.regMRIova2, "ibv_reg_dmabuf_mr": &l.regDMABuf, "_ibv_query_gid_table": &l.queryGIDTable,
	} {
		if lib.Has(name) {
			*fn, _ = lib.Sym(name)
		}
	}
	return nil
}

// status calls a function that returns 0, an errno, a negative errno, or -1 with errno
// set: libibverbs and its providers have all of them.
func status(f dl.Func, args ...uintptr) error {
	r, errno := f.CallErrno(args...)
	return result(int32(r), errno)
}

func result(r int32, errno syscall.Errno) error {
	switch {
	case r == 0:
		return nil
	case r > 0:
		return syscall.Errno(r)
	case r == -1 && errno != 0:
		return errno
	}
	return syscall.Errno(-r)
}

// object calls a function that returns a pointer, or null with errno set.
func object(f dl.Func, args ...uintptr) (uintptr, error) {
	p, errno := f.CallErrno(args...)
	switch {
	case p != 0:
		return p, nil
	case errno == 0:
		return 0, syscall.EIO
	}
	return 0, errno
}
