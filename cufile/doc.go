// Package cufile is the cuFile API for Go: sessions, registered files and
// buffers, reads and writes between storage and GPU memory, each with a receipt
// that says which way the bytes went.
//
//	m, _ := machine.Open()              // a real machine, or the software one
//	drv, _ := cufile.Open(m)
//	defer drv.Close()
//	f, _ := drv.Register(file)          // any regular file or block device
//	buf, _ := drv.RegisterBuffer(addr, n)
//	receipt, err := f.ReadAt(ctx, buf.Span(), 0)
//	fmt.Println(&receipt)               // read route=ring bytes=… host_bytes=…(counted) …
//
// # Names
//
// What C calls, and what it is here:
//
//	cuFileDriverOpen, cuFileDriverClose    Open, Driver.Open, Driver.Close
//	cuFileUseCount                         Driver.UseCount
//	cuFileHandleRegister                   Driver.Register, Driver.RegisterFD
//	cuFileHandleDeregister                 File.Close
//	cuFileBufRegister                      Driver.RegisterBuffer
//	cuFileBufDeregister                    Buffer.Close
//	cuFileRead, cuFileWrite                File.ReadAt, File.WriteAt
//	CUfileOpError                          Code, inside *Error
//
// # Differences on purpose
//
// Registration needs no udev database and works on every file system that can
// pread. There is no silent compatibility mode: the receipt names the route and
// why each better one was declined, and File.Require refuses instead of falling
// back. A handle owns a duplicate of the descriptor. No log file is written.
package cufile
