#define _GNU_SOURCE /* RTLD_NEXT */
#include "dev_local.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/syscall.h>

/*
 * Until the constructor has found the C library's functions, system calls take their
 * place: constructors of the program's libraries, and allocators, come first. dlsym
 * allocates, so that a function that looks for itself when it is first called could call
 * itself. Only fopen may: it allocates anyway.
 */
static void find_libc(void);

static int early_open(const char *path, int flags, ...)
{
	va_list ap;
	va_start(ap, flags);
	int mode = va_arg(ap, int);
	va_end(ap);
	return (int)syscall(SYS_open, path, flags, mode);
}

static int early_openat(int dir, const char *path, int flags, ...)
{
	va_list ap;
	va_start(ap, flags);
	int mode = va_arg(ap, int);
	va_end(ap);
	return (int)syscall(SYS_openat, dir, path, flags, mode);
}

static int early_open_2(const char *path, int flags)
{
	return early_open(path, flags, 0);
}

static int early_openat_2(int dir, const char *path, int flags)
{
	return early_openat(dir, path, flags, 0);
}

static FILE *early_fopen(const char *path, const char *mode)
{
	find_libc();
	if (culvert_libc.fopen != early_fopen)
		return culvert_libc.fopen(path, mode);
	errno = ENOSYS;
	return NULL;
}

static int early_access(const char *path, int mode)
{
	return (int)syscall(SYS_access, path, mode);
}

static int early_faccessat(int dir, const char *path, int mode, int flags)
{
	(void)flags;
	return (int)syscall(SYS_faccessat, dir, path, mode);
}

static int early_close(int fd)
{
	return (int)syscall(SYS_close, fd);
}

static ssize_t early_read(int fd, void *buf, size_t n)
{
	return syscall(SYS_read, fd, buf, n);
}

static ssize_t early_pread(int fd, void *buf, size_t n, off_t off)
{
	return syscall(SYS_pread64, fd, buf, n, off);
}

static int early_ioctl(int fd, unsigned long req, ...)
{
	va_list ap;
	va_start(ap, req);
	void *arg = va_arg(ap, void *);
	va_end(ap);
	return (int)syscall(SYS_ioctl, fd, req, arg);
}

static int early_fcntl(int fd, int cmd, ...)
{
	va_list ap;
	va_start(ap, cmd);
	void *arg = va_arg(ap, void *);
	va_end(ap);
	return (int)syscall(SYS_fcntl, fd, cmd, arg);
}

static int early_dup(int fd)
{
	return (int)syscall(SYS_dup, fd);
}

static int early_dup2(int fd, int to)
{
	return (int)syscall(SYS_dup2, fd, to);
}

static int early_dup3(int fd, int to, int flags)
{
	return (int)syscall(SYS_dup3, fd, to, flags);
}

static void *early_mmap(void *addr, size_t n, int prot, int flags, int fd, off_t off)
{
	return (void *)syscall(SYS_mmap, addr, n, prot, flags, fd, off);
}

static int early_munmap(void *addr, size_t n)
{
	return (int)syscall(SYS_munmap, addr, n);
}

struct culvert_libc culvert_libc = {
	early_open, early_openat, early_open_2, early_openat_2, early_fopen, early_access, early_faccessat, early_close, early_read,
	early_pread, early_ioctl, early_fcntl, early_dup, early_dup2, early_dup3, early_mmap, early_munmap,
};

__attribute__((constructor(101))) static void find_libc(void)
{
	static const char *const names[] = {
		"open", "openat", "__open_2", "__openat_2", "fopen", "access", "faccessat", "close", "read",
		"pread", "ioctl", "fcntl", "dup", "dup2", "dup3", "mmap", "munmap",
	};
	void **to = (void **)&culvert_libc;
	_Static_assert(sizeof names / sizeof *names == sizeof culvert_libc / sizeof *to, "one name for each function");
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		void *fn = dlsym(RTLD_NEXT, names[i]);
		if (fn)
			to[i] = fn;
	}
}
