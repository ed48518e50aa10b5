// Package nvfs is a client of nvidia-fs, the kernel module under cuFile: it moves
// bytes between files and GPU memory without a copy in host memory.
//
// The module has traps, and the client stays out of them:
//
//   - One transfer at a time per buffer: a second would make the module give the
//     buffer up. The client lines them up.
//   - The true error is not the one that the call returns.
//   - A READ may report success and have moved nothing: then the end-fence page
//     lists the range as a hole. The client looks at the page after every READ,
//     and clears it before. It zeroes what is a hole in the file too, and refuses
//     to take the rest for data: [ErrNotDirect].
//   - A WRITE through a storage driver that does not know the module writes the
//     bytes of the shadow buffer to the file. The client writes only when a driver
//     has registered, and says so when nothing came from the GPU.
package nvfs
