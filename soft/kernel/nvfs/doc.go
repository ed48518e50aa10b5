// Package nvfs emulates nvidia-fs 2.28.4, the kernel module under cuFile, and is
// checked against recordings.
//
// MAP binds a shadow buffer (mgroup) to GPU memory. READ gives its pages to the file
// system; a registered storage module ([Storage]) replaces them by GPU bus addresses
// ([Ops]). Without one, every block is reported as a hole, and GPU memory does not
// change.
//
// # Safer than the module
//
//   - MAP of no blocks, or of an address inside the shadow buffer, is EINVAL. The
//     module ends in an oops or a BUG.
//   - A refused MAP, a second MAP, a second transfer and munmap under a transfer leave
//     no pin. The module leaks it, and its free callback oopses or spins forever.
//   - An asynchronous transfer of 0 bytes completes. In the module it never does and
//     keeps the mgroup busy.
//
// # Less than the module
//
// The end-fence page is not pinned: a process that unmaps it loses the results. The
// page cache, which is the host's, is not counted. A READ that the file system fails
// counts as an error, and not as a wrong state.
//
// # Sync points
//
// nvfs.map.pinned; nvfs.io, nvfs.chunk, nvfs.io.end, nvfs.async; nvfs.callback,
// nvfs.callback.drained, nvfs.callback.end; nvfs.munmap, nvfs.free. The id is the mgroup's number.
//
// # Lock order
//
// Module.mu, mgroup.mu. Neither is held while pages are pinned or put, a file is
// accessed, or a sync point is passed.
package nvfs
