#include "dev_local.h"

#include <sys/mman.h>
#include <sys/syscall.h>

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

/* noted returns the address of a new mapping. */
static void *noted(ssize_t addr, size_t n)
{
	if (addr == -1)
		return MAP_FAILED;
	widen((uintptr_t)addr, (uintptr_t)addr + n);
	return (void *)addr;
}

static void *map_node(int fd, size_t n, int prot, int flags, off_t off)
{
	culvert_id id = culvert_used(fd);
	if (!id)
		return MAP_FAILED;
	void *at = noted(culvert_dev_mmap(id, n, prot, flags, off), n);
	if (at == MAP_FAILED && errno == ENODEV) /* no Go core, as in a forked child */
		errno = EACCES;
	return at;
}

/*
 * A dma-buf of the software CUDA is the reading end of a pipe (soft/gpu), which the kernel
 * refuses to map: for writing with EACCES, else with ENODEV. A program that has no Go core
 * has no dma-buf. For other pipes the kernel's answer stays.
 */
static void *map_refused(int fd, size_t n, int prot, int flags, off_t off)
{
	struct stat st;
	int refusal = errno;
	void *at = MAP_FAILED;
	if (syscall(SYS_fstat, fd, &st) == 0 && S_ISFIFO(st.st_mode) && culvert_core_runs())
		at = noted(culvert_dev_map_export(fd, n, prot, flags, off), n);
	if (at == MAP_FAILED && errno == ENODEV)
		errno = refusal;
	return at;
}

CULVERT_EXPORT void *mmap(void *addr, size_t n, int prot, int flags, int fd, off_t off)
{
	culvert_id id = flags & MAP_ANONYMOUS ? 0 : culvert_node(fd);
	if (id)
		return map_node(fd, n, prot, flags, off);
	void *at = culvert_libc.mmap(addr, n, prot, flags, fd, off);
	if (likely(at != MAP_FAILED || (errno != ENODEV && errno != EACCES)))
		return at;
	return map_refused(fd, n, prot, flags, off);
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
