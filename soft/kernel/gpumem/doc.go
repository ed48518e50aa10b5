// Package gpumem emulates the kernel module of the gpudma project and is checked against
// a recording. It pins GPU memory for a process and returns the physical addresses, for
// CPU mappings and for devices.
//
// # Safer than the module
//
//   - Only pages that the process has locked can be mapped. The module maps any physical
//     address.
//   - A lock belongs to the process that made it. The module keeps one list for all.
//   - When the owner frees the memory, mappings are revoked, STATE is ENODEV and UNLOCK
//     succeeds. The module reads a freed table.
//   - Memory that is unlocked while it is mapped stays pinned until it is unmapped. In
//     the module the mapping outlives the pin.
//   - Locks end with their process. In the module they stay. (Closing the device node
//     unlocks nothing in either; the client does.)
//   - Address and size that overflow are EINVAL. A lock whose handle cannot be copied to
//     the process is undone.
//   - A mapping of several pages must be contiguous in one lock.
package gpumem
