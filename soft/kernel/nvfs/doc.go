// Package nvfs is the twin of nvidia-fs, the kernel module under cuFile: it lets
// a file system read and write GPU memory by giving it pages that only look
// like memory of the program. It takes the same bytes as the module, version
// 2.28.4, and gives the same answers, as recorded conversations with the module
// show.
//
// # How bytes get to the GPU
//
// A program maps a shadow buffer (an mgroup) from the node and ties it to GPU
// memory with MAP. READ calls the file system with the pages of the shadow
// buffer. A storage module that has registered ([Storage]) asks the module's
// table ([Ops]) what its device should be given in the place of those pages,
// and gets bus addresses of the GPU. One that has not registered fills the
// shadow pages themselves: then every block is reported as a hole, and the GPU's
// memory is untouched.
//
// # Where the twin is safer
//
//   - MAP of no blocks, or of an address inside the shadow buffer, is EINVAL.
//     The module ends in an oops or a BUG.
//   - A refused MAP, a second MAP, a second transfer and munmap under a transfer
//     leave no pin behind. The module leaks it, and a free callback for it
//     oopses or spins for ever.
//   - An asynchronous transfer of 0 bytes completes. The module's never does,
//     and keeps the mgroup busy.
//   - A READ that meets more holes than the page can list ends before them.
//
// And where it knows less: the end-fence page is not pinned, so that a program
// that unmaps it loses the answers, and the page cache, which is the host's, is
// not counted.
//
// # Sync points
//
// nvfs.map.pinned; nvfs.io, nvfs.chunk, nvfs.io.end, nvfs.async; nvfs.callback,
// nvfs.callback.end; nvfs.munmap, nvfs.free. The id is the mgroup's number.
//
// # Lock order
//
// Module.mu, then mgroup.mu. Neither is held while pages are pinned or put, a
// file is accessed, or a sync point is passed.
package nvfs
