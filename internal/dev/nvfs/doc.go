// Package nvfs is a client of nvidia-fs, the kernel module under cuFile. It moves bytes
// between files and GPU memory without a copy in host memory.
//
// The client avoids known faults of the module:
//
//   - A second transfer of a buffer would make the module give the buffer up. The client
//     runs them one after the other.
//   - The errno of the call is not the error; that is in the argument.
//   - A READ may succeed and have moved nothing: the end-fence page then lists the range
//     as a hole. The client clears the page before every READ and checks it after. It
//     zeroes holes that the file has, and refuses others: [ErrNotDirect].
//   - A WRITE through a storage driver without support writes the bytes of the shadow
//     buffer to the file. The client writes only if a driver has registered, and returns
//     an error if nothing came from the GPU.
//   - Linux 6.12 can panic if a task is rescheduled while the module maps a buffer for its
//     first READ. The client issues one first READ at a time, which makes it rarer: it was
//     also seen with a single READ beside programs that kept all processors busy.
//   - A transfer whose memory is freed ends with EIO or EBUSY before the module says so. The
//     client waits for that.
//
// It cannot see everything: bytes that a layer below the file changes, or that arrive
// elsewhere, are reported as moved. Its caller proves the arrival.
package nvfs
