// Package gdrdrv is the twin of GDRCopy's kernel module: it pins GPU memory for
// a program and maps it into the program's address space. It takes the same
// bytes as the module, version 2.6, and gives the same answers, as recorded
// conversations with the module show.
//
// # Where the twin is safer
//
// The module has corners in which it harms the program that uses it. The twin
// refuses instead:
//
//   - A handle that the file does not know is EINVAL. The module takes the
//     oldest pin of the file for it, and unpins that.
//   - A handle that is mapped stays what it is when a second mapping is refused.
//     The module then forgets the first, which stays readable when the memory
//     is somebody else's.
//   - A private mapping is EINVAL. The module allows it, and believes the handle
//     mapped ever after.
//   - Address and size that wrap around are EINVAL. The module pins what comes
//     out of the sum.
//   - A pin whose handle cannot be told to the program is undone.
//
// # Lock order
//
// file.mu, buffer.mu, then the resource manager's. The free callback takes the
// buffer's lock alone, and unpin drops it before it puts the pages, because
// that waits for a callback that runs.
package gdrdrv
