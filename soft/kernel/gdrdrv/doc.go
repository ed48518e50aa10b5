// Package gdrdrv emulates GDRCopy's kernel module 2.6 and is checked against
// recordings. It pins GPU memory for a process and maps it into the process's address
// space.
//
// # Safer than the module
//
//   - An unknown handle is EINVAL. The module takes the oldest pin of the file instead,
//     and unpins that.
//   - A mapped handle does not change if a second mapping is refused. The module forgets
//     the first mapping, which then outlives the pin.
//   - A private mapping is EINVAL. The module allows it, and then regards the handle as
//     mapped forever.
//   - Address and size that overflow are EINVAL. The module pins the sum.
//   - A pin whose handle cannot be copied to the process is undone.
//
// # Lock order
//
// File.mu, buffer.mu, the resource manager's. The free callback takes only the
// buffer's, and unpin unlocks it before it puts the pages, because that waits for a
// running callback.
package gdrdrv
