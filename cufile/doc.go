// Package cufile is the cuFile API for Go: sessions, registered files and
// buffers, reads and writes between storage and GPU memory, each with a receipt
// that says which way the bytes went.
//
//	m, _ := machine.Open()              // a real machine, or the software one
//	defer m.Close()
//	drv, _ := cufile.Open(m)
//	defer drv.Close()
//	f, _ := drv.Register(file)          // any regular file or block device
//	dev, _ := drv.Device(0)
//	addr, _ := dev.Alloc(gpu.KindDevice, n, 0)
//	buf, _ := drv.RegisterBuffer(addr, n)
//	receipt, err := f.ReadAt(ctx, buf.Span(), 0)
//	fmt.Println(receipt)                // read route=ring bytes=… host_bytes=…(counted) …
//
// # Names
//
// What C calls, and what it is here:
//
//	cuFileDriverOpen, cuFileDriverClose    Open, Driver.Open, Driver.Close
//	cuFileUseCount                         Driver.UseCount
//	cuFileDriverGetProperties              Driver.Properties
//	cuFileGetVersion                       Version
//	cuFileHandleRegister                   Driver.Register, Driver.RegisterFD
//	cuFileHandleDeregister                 File.Close
//	cuFileBufRegister                      Driver.RegisterBuffer
//	cuFileBufDeregister                    Buffer.Close, of Driver.Buffer(base)
//	cuFileRead, cuFileWrite                File.ReadAt, File.WriteAt
//	cuFileReadv, cuFileWritev              File.ReadvAt, File.WritevAt
//	cuFileBatchIOSetUp and the like        Driver.NewBatch, Batch; Driver.Do waits
//	cuFileSetParameter, cufile.json        Config, Driver.Configure
//	cuFileReadAsync, cuFileWriteAsync      File.ReadAsync, File.WriteAsync
//	CUfileOpError                          Code, inside *Error
//	cufile.log                             WithLogger
//
// # Ordering
//
// Transfers are not ordered with streams, except those of ReadAsync and WriteAsync. Before a write the work that produces
// the bytes must have finished, and before a read the work that still uses the
// memory: synchronise the stream. Work that is submitted after a read sees what
// it brought. (The C library waits for the default stream by itself, because
// programs rely on it.)
//
// # Contexts and errors
//
// A transfer whose context ends stops between two pieces and returns the
// context's error; its receipt says how far it came, and nothing touches the
// memory any more. Every other error of a transfer is an *Error.
//
// # Differences on purpose
//
// Registration needs no udev database and works on every file system that can
// pread. There is no silent compatibility mode: the receipt names the route and
// why each better one was declined, and File.Require refuses instead of falling
// back. A handle owns a duplicate of the descriptor. Memory that is freed while
// it is registered is noticed. No log file is written. Package cufiletest lists
// the differences that its cases find, with the reasons.
package cufile
