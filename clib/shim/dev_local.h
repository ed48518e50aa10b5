/*
 * libculvert-dev.so: the software machine's device nodes for C programs. It is preloaded,
 * and its functions take the place of the C library's. Paths and descriptors of the
 * software kernel go to the Go core (internal/devapi), all others to the C library.
 *
 *   dev_libc.c  the C library's functions
 *   dev_path.c  functions that take a path
 *   dev_late.c  /dev/gdrdrv, which is opened without the Go core
 *   dev_fd.c    functions that take a descriptor, and the table of our descriptors
 *   dev_map.c   mappings
 *
 * Nothing here allocates, locks or changes errno for what is not ours: programs call
 * these functions from signal handlers and from allocators of their own. The Go core
 * starts with the first path that is ours, or with the first use of /dev/gdrdrv.
 */
#ifndef CULVERT_DEV_LOCAL_H
#define CULVERT_DEV_LOCAL_H

/* The headers would define functions of these names in their place. */
#undef _FORTIFY_SOURCE

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include "gocore.h"

/* The C library's declarations have attributes that a second name need not repeat. */
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmissing-attributes"
#endif

typedef uint64_t culvert_id;

#define likely(x) __builtin_expect(!!(x), 1)

/* The C library's functions. */
struct culvert_libc {
	int (*open)(const char *path, int flags, ...);
	int (*openat)(int dir, const char *path, int flags, ...);
	int (*open_2)(const char *path, int flags);
	int (*openat_2)(int dir, const char *path, int flags);
	FILE *(*fopen)(const char *path, const char *mode);
	int (*access)(const char *path, int mode);
	int (*faccessat)(int dir, const char *path, int mode, int flags);
	int (*close)(int fd);
	ssize_t (*read)(int fd, void *buf, size_t n);
	ssize_t (*pread)(int fd, void *buf, size_t n, off_t off);
	int (*ioctl)(int fd, unsigned long req, ...);
	int (*fcntl)(int fd, int cmd, ...);
	int (*dup)(int fd);
	int (*dup2)(int fd, int to);
	int (*dup3)(int fd, int to, int flags);
	void *(*mmap)(void *addr, size_t n, int prot, int flags, int fd, off_t off);
	int (*munmap)(void *addr, size_t n);
};
extern struct culvert_libc culvert_libc;

/* culvert_node returns the ID of the node that a descriptor of this process is open for,
 * or 0. culvert_nodes is the number of descriptors in the table. */
extern _Atomic int culvert_nodes;
culvert_id culvert_node_of(int fd);

static inline culvert_id culvert_node(int fd)
{
	return likely(!atomic_load_explicit(&culvert_nodes, memory_order_relaxed)) ? 0 : culvert_node_of(fd);
}

/* CULVERT_LATE is the node of a descriptor whose node the Go core has not opened yet. Only
 * descriptors that were not duplicated have it: culvert_used is culvert_node for calls that
 * need the node itself, and opens it. It is 0 for such a descriptor of the parent process,
 * and after a failure, which errno tells. */
#define CULVERT_LATE ((culvert_id)-1)
culvert_id culvert_used(int fd);

/* culvert_enter_fd puts a new descriptor of a node, opened with flags, into the table and
 * returns it. */
int culvert_enter_fd(int fd, culvert_id id, int flags);

/* Opening /dev/gdrdrv and asking for its version needs no Go core: see dev_late.c. */
bool culvert_opens_late(const char *path, int flags);
int culvert_open_late(int flags);
culvert_id culvert_open_now(int flags);
bool culvert_answers_late(unsigned long req);
int culvert_late_ioctl(void *arg);

/* culvert_fail sets errno and returns -1, or returns 0 if there is no error. */
static inline int culvert_fail(int err)
{
	if (!err)
		return 0;
	errno = err;
	return -1;
}

/* Calls of the Go core, which dev.c has. */
ssize_t culvert_dev_open(const char *path, int flags, culvert_id *id);
ssize_t culvert_dev_mode(const char *path);
int culvert_dev_dup(culvert_id id);
int culvert_dev_close(culvert_id id);
int culvert_dev_ioctl(culvert_id id, unsigned long req, void *arg);
ssize_t culvert_dev_mmap(culvert_id id, size_t n, int prot, int flags, off_t off);
ssize_t culvert_dev_map_export(int fd, size_t n, int prot, int flags, off_t off);
int culvert_dev_munmap(uint64_t addr, size_t n);

#endif
