#include "dev_local.h"

#include <linux/stat.h>
#include <stdarg.h>
#include <string.h>
#include <sys/syscall.h>

/*
 * Paths of the software kernel begin with these. Those that it does not have do not exist,
 * also where the computer has such a device: the program runs on the software machine.
 */
static const char *const prefixes[] = {
	"/dev/gdrdrv", "/dev/gpumem", "/dev/libnvm", "/dev/nvidia-fs",
	"/proc/driver/gdrdrv/", "/proc/driver/nvidia-fs/", "/proc/driver/nvidia/", "/proc/gpumem",
	"/sys/kernel/mm/memory_peers/",
};

static bool begins(const char *path, const char *prefix)
{
	while (*prefix)
		if (*path++ != *prefix++)
			return false;
	return true;
}

/* Most paths are told from ours by a few bytes. */
static bool ours(const char *path)
{
	if (likely(!path || path[0] != '/' || !(path[1] == 'd' || path[1] == 'p' || path[1] == 's')))
		return false;
	for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
		if (begins(path, prefixes[i]))
			return true;
	return false;
}

/* open_ours opens a path that is ours. */
static int open_ours(const char *path, int flags)
{
	culvert_id id = 0;
	if (culvert_opens_late(path, flags))
		return culvert_open_late(flags);
	int fd = (int)culvert_dev_open(path, flags, &id);
	return fd >= 0 && id ? culvert_enter_fd(fd, id, flags) : fd;
}

CULVERT_EXPORT int open(const char *path, int flags, ...)
{
	va_list ap;
	va_start(ap, flags);
	int mode = va_arg(ap, int); /* not there without O_CREAT; then nothing reads it */
	va_end(ap);
	return likely(!ours(path)) ? culvert_libc.open(path, flags, mode) : open_ours(path, flags);
}
CULVERT_ALIAS(open64, open)

CULVERT_EXPORT int openat(int dir, const char *path, int flags, ...)
{
	va_list ap;
	va_start(ap, flags);
	int mode = va_arg(ap, int);
	va_end(ap);
	return likely(!ours(path)) ? culvert_libc.openat(dir, path, flags, mode) : open_ours(path, flags);
}
CULVERT_ALIAS(openat64, openat)

/* What programs built with _FORTIFY_SOURCE call. */
CULVERT_EXPORT int __open_2(const char *path, int flags);
CULVERT_EXPORT int __open_2(const char *path, int flags)
{
	return likely(!ours(path)) ? culvert_libc.open_2(path, flags) : open_ours(path, flags);
}
CULVERT_ALIAS(__open64_2, __open_2)

CULVERT_EXPORT int __openat_2(int dir, const char *path, int flags);
CULVERT_EXPORT int __openat_2(int dir, const char *path, int flags)
{
	return likely(!ours(path)) ? culvert_libc.openat_2(dir, path, flags) : open_ours(path, flags);
}
CULVERT_ALIAS(__openat64_2, __openat_2)

/* fopen opens files by a function inside of the C library, so it needs one here. */
static FILE *fopen_ours(const char *path, const char *mode)
{
	int flags = strchr(mode, '+') ? O_RDWR : mode[0] == 'r' ? O_RDONLY : O_WRONLY;
	int fd = open_ours(path, flags | (strchr(mode, 'e') ? O_CLOEXEC : 0));
	if (fd < 0)
		return NULL;
	FILE *f = fdopen(fd, mode);
	if (!f)
		close(fd);
	return f;
}

CULVERT_EXPORT FILE *fopen(const char *path, const char *mode)
{
	return likely(!ours(path)) ? culvert_libc.fopen(path, mode) : fopen_ours(path, mode);
}
CULVERT_ALIAS(fopen64, fopen)

/* The modes are 0666 of nodes and 0444 of files, for every user. */
static int access_ours(const char *path, int how)
{
	ssize_t mode = culvert_dev_mode(path);
	if (mode < 0)
		return -1;
	return culvert_fail(((int)mode & how) == how ? 0 : EACCES);
}

CULVERT_EXPORT int access(const char *path, int how)
{
	return likely(!ours(path)) ? culvert_libc.access(path, how) : access_ours(path, how);
}

CULVERT_EXPORT int faccessat(int dir, const char *path, int how, int flags)
{
	return likely(!ours(path)) ? culvert_libc.faccessat(dir, path, how, flags) : access_ours(path, how);
}

static int stat_ours(const char *path, struct stat *st)
{
	ssize_t mode = culvert_dev_mode(path);
	if (mode < 0)
		return -1;
	memset(st, 0, sizeof *st);
	st->st_mode = (mode_t)mode;
	st->st_nlink = 1;
	st->st_blksize = 4096;
	return 0;
}

/* With what _GNU_SOURCE defines, the headers declare functions of other names here. */
#ifndef AT_EMPTY_PATH
#define AT_EMPTY_PATH 0x1000
#endif

/* of_node reports whether a status is that of a descriptor of a node, as programs in Rust ask
 * for it. */
static bool of_node(int fd, const char *path, int flags)
{
	return !likely(!(flags & AT_EMPTY_PATH)) && (!path || !*path) && culvert_node(fd);
}

/*
 * Status functions are no cancellation points: a system call does what the C library
 * does. One older than 2.33 has only the names with an x, whose first argument is the
 * layout of the struct; x86-64 has one layout, for files of all sizes.
 */
static int stat_at(int dir, const char *path, struct stat *st, int flags)
{
	if (ours(path))
		return stat_ours(path, st);
	int result = (int)syscall(SYS_newfstatat, dir, path, st, flags);
	if (of_node(dir, path, flags) && result == 0)
		st->st_mode = S_IFCHR | 0666;
	return result;
}

#undef stat
#undef lstat
#undef fstatat
CULVERT_EXPORT int stat(const char *path, struct stat *st)
{
	return stat_at(AT_FDCWD, path, st, 0);
}
CULVERT_ALIAS(stat64, stat)

CULVERT_EXPORT int lstat(const char *path, struct stat *st)
{
	return stat_at(AT_FDCWD, path, st, AT_SYMLINK_NOFOLLOW);
}
CULVERT_ALIAS(lstat64, lstat)

CULVERT_EXPORT int fstatat(int dir, const char *path, struct stat *st, int flags)
{
	return stat_at(dir, path, st, flags);
}
CULVERT_ALIAS(fstatat64, fstatat)

CULVERT_EXPORT int __xstat(int layout, const char *path, struct stat *st);
CULVERT_EXPORT int __xstat(int layout, const char *path, struct stat *st)
{
	(void)layout;
	return stat_at(AT_FDCWD, path, st, 0);
}
CULVERT_ALIAS(__xstat64, __xstat)

CULVERT_EXPORT int __lxstat(int layout, const char *path, struct stat *st);
CULVERT_EXPORT int __lxstat(int layout, const char *path, struct stat *st)
{
	(void)layout;
	return stat_at(AT_FDCWD, path, st, AT_SYMLINK_NOFOLLOW);
}
CULVERT_ALIAS(__lxstat64, __lxstat)

CULVERT_EXPORT int __fxstatat(int layout, int dir, const char *path, struct stat *st, int flags);
CULVERT_EXPORT int __fxstatat(int layout, int dir, const char *path, struct stat *st, int flags)
{
	(void)layout;
	return stat_at(dir, path, st, flags);
}
CULVERT_ALIAS(__fxstatat64, __fxstatat)

CULVERT_EXPORT int statx(int dir, const char *path, int flags, unsigned mask, struct statx *st);
CULVERT_EXPORT int statx(int dir, const char *path, int flags, unsigned mask, struct statx *st)
{
	if (likely(!ours(path))) {
		int result = (int)syscall(SYS_statx, dir, path, flags, mask, st);
		if (of_node(dir, path, flags) && result == 0)
			st->stx_mode = S_IFCHR | 0666;
		return result;
	}
	ssize_t mode = culvert_dev_mode(path);
	if (mode < 0)
		return -1;
	memset(st, 0, sizeof *st);
	st->stx_mask = STATX_TYPE | STATX_MODE | STATX_NLINK;
	st->stx_mode = (uint16_t)mode;
	st->stx_nlink = 1;
	st->stx_blksize = 4096;
	return 0;
}
