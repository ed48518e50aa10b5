#include "dev_local.h"

#include <sys/mman.h>

/*
 * All mappings of nodes are between these addresses, which only move apart: what is outside
 * is the C library's to unmap.
 */
static _Atomic uintptr_t lowest = UINTPTR_MAX, highest;

static void widen(uintptr_t from, uintptr_t to)
{
	uintptr_t old = atomic_load(&lowest);
	while (from < old && !atomic_compare_exchange_weak(&lowest, &old, from))
		;
	old = atomic_load(&highest);
	while (to > old && !atomic_compare_exchange_weak(&highest, &old, to))
		;
}

static void *map_node(culvert_id id, size_t n, int prot, int flags, off_t off)
{
	ssize_t addr = culvert_dev_mmap(id, n, prot, flags, off);
	if (addr == -1) {
		if (errno == ENODEV) /* no Go core, as in a forked child */
			errno = EACCES;
		return MAP_FAILED;
	}
	widen((uintptr_t)addr, (uintptr_t)addr + n);
	return (void *)addr;
}

CULVERT_EXPORT void *mmap(void *addr, size_t n, int prot, int flags, int fd, off_t off)
{
	culvert_id id = flags & MAP_ANONYMOUS ? 0 : culvert_node(fd);
	return likely(!id) ? culvert_libc.mmap(addr, n, prot, flags, fd, off) : map_node(id, n, prot, flags, off);
}
CULVERT_ALIAS(mmap64, mmap)

CULVERT_EXPORT int munmap(void *addr, size_t n)
{
	uintptr_t from = (uintptr_t)addr, to = from + n;
	if (likely(from >= atomic_load_explicit(&highest, memory_order_relaxed) || to <= atomic_load_explicit(&lowest, memory_order_relaxed)))
		return culvert_libc.munmap(addr, n);
	int err = culvert_dev_munmap(from, n);
	return err == ENODEV ? culvert_libc.munmap(addr, n) : culvert_fail(err); /* in a forked child it is all the kernel's */
}
