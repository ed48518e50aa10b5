// Package gpumem is the twin of the kernel module of the gpudma project: it
// pins GPU memory for a program and tells it the physical addresses, with which
// the program maps the memory or programs a device of its own. It takes the same
// bytes as the module and gives the same answers, as a recorded conversation
// with the module shows.
//
// # Where the twin is safer
//
// The module trusts every program with every address. The twin does not:
//
//   - Only pages can be mapped that the process has locked, and still has. The
//     module maps any physical address.
//   - A lock is known to the process that made it. To others its handle is
//     unknown; the module keeps one list for all.
//   - When the owner frees the memory, mappings are zapped, STATE is ENODEV and
//     UNLOCK succeeds. The module reads a table that was freed.
//   - Memory that is unlocked while it is mapped stays pinned until it is
//     unmapped. In the module the mapping outlives the pin.
//   - What a process leaves locked is unlocked when the process ends. In the
//     module it stays for good. (Closing the node unlocks nothing in either;
//     the client does.)
//   - Address and size that wrap around are EINVAL, and a lock whose handle
//     cannot be told to the program is undone.
//   - A mapping of several pages must follow the order of one lock.
package gpumem
