#include "dev_local.h"

#include <stdarg.h>
#include <sys/mman.h>
#include <sys/syscall.h>

/*
 * The descriptors that are open for nodes. A descriptor is a placeholder, an empty file in
 * memory (internal/devapi). It is ours as long as the file is the same: a program can close
 * it in ways that are not seen here, such as close_range.
 *
 * An entry belongs to the process that made it. A forked child has the table and no Go
 * core; a child of vfork even writes into the memory of its parent.
 */
enum { DESCRIPTORS = 1 << 16 };

struct entry {
	_Atomic culvert_id id; /* 0 if there is none; stored last, cleared first */
	ino_t inode;
	dev_t device;
	pid_t process;
	int flags; /* of the open, for CULVERT_LATE */
};

/* The table is made for the first node. As a variable it would be one more mapping in each
 * process that is started. */
static struct entry *_Atomic made;

static struct entry *table(void)
{
	return atomic_load_explicit(&made, memory_order_acquire);
}

static bool make_table(void)
{
	size_t size = DESCRIPTORS * sizeof(struct entry);
	if (table())
		return true;
	void *new = (void *)syscall(SYS_mmap, NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0L);
	if (new == MAP_FAILED)
		return false;
	struct entry *none = NULL;
	if (!atomic_compare_exchange_strong(&made, &none, new))
		syscall(SYS_munmap, new, size);
	return true;
}

_Atomic int culvert_nodes;

static int status(int fd, struct stat *st)
{
	return (int)syscall(SYS_fstat, fd, st);
}

/* forget takes a descriptor out of the table and returns its node. */
static culvert_id forget(int fd)
{
	culvert_id id = atomic_exchange(&table()[fd].id, 0);
	if (id)
		atomic_fetch_sub(&culvert_nodes, 1);
	return id;
}

/* put closes a node for one descriptor. */
static void put(culvert_id id)
{
	if (id && id != CULVERT_LATE)
		culvert_dev_close(id);
}

/* is_placeholder reports whether a descriptor is still the file it was. */
static bool is_placeholder(int fd, const struct entry *e)
{
	struct stat st;
	int saved = errno;
	bool same = status(fd, &st) == 0 && st.st_ino == e->inode && st.st_dev == e->device;
	errno = saved;
	return same;
}

/* entered reports whether a descriptor is in the table for this process. */
static bool entered(int fd)
{
	struct entry *t = table();
	return t && fd >= 0 && fd < DESCRIPTORS && atomic_load_explicit(&t[fd].id, memory_order_acquire) && t[fd].process == getpid();
}

culvert_id culvert_node_of(int fd)
{
	if (fd < 0 || fd >= DESCRIPTORS)
		return 0;
	struct entry *e = &table()[fd];
	culvert_id id = atomic_load_explicit(&e->id, memory_order_acquire);
	if (!id || is_placeholder(fd, e))
		return id;
	if (e->process == getpid())
		put(forget(fd));
	return 0;
}

culvert_id culvert_used(int fd)
{
	culvert_id id = culvert_node(fd), late = CULVERT_LATE;
	if (likely(id != CULVERT_LATE))
		return id;
	if (!entered(fd)) {
		errno = EACCES;
		return 0;
	}
	struct entry *e = &table()[fd];
	if (!(id = culvert_open_now(e->flags)) || atomic_compare_exchange_strong(&e->id, &late, id))
		return id;
	culvert_dev_close(id); /* another thread was first */
	return late;
}

int culvert_enter_fd(int fd, culvert_id id, int flags)
{
	struct stat st;
	if (fd >= DESCRIPTORS || !make_table() || status(fd, &st) < 0) {
		culvert_libc.close(fd);
		put(id);
		return culvert_fail(EMFILE);
	}
	if (entered(fd)) /* closed where it was not seen */
		put(forget(fd));
	struct entry *e = &table()[fd];
	e->inode = st.st_ino;
	e->device = st.st_dev;
	e->process = getpid();
	e->flags = flags;
	if (!atomic_exchange(&e->id, id)) /* a forked child replaces what its parent had */
		atomic_fetch_add(&culvert_nodes, 1);
	return fd;
}

/* duplicated enters the second descriptor of a node, if there is one. */
static int duplicated(culvert_id id, int fd)
{
	if (fd < 0 || !id)
		return fd;
	int err = culvert_dev_dup(id);
	if (err == ENODEV) /* a forked child: the descriptor is no node there */
		return fd;
	if (err) {
		culvert_libc.close(fd);
		return culvert_fail(err);
	}
	return culvert_enter_fd(fd, id, 0);
}

CULVERT_EXPORT int close(int fd)
{
	if (likely(!culvert_node(fd)) || !entered(fd))
		return culvert_libc.close(fd);
	culvert_id id = forget(fd);
	int result = culvert_libc.close(fd), err = errno;
	put(id);
	errno = err;
	return result;
}

/* Nodes have no read: the kernel answers so for such devices. */
CULVERT_EXPORT ssize_t read(int fd, void *buf, size_t n)
{
	return likely(!culvert_node(fd)) ? culvert_libc.read(fd, buf, n) : culvert_fail(EINVAL);
}

CULVERT_EXPORT ssize_t pread(int fd, void *buf, size_t n, off_t off)
{
	return likely(!culvert_node(fd)) ? culvert_libc.pread(fd, buf, n, off) : culvert_fail(EINVAL);
}
CULVERT_ALIAS(pread64, pread)

/* What programs built with _FORTIFY_SOURCE call, with the size of the buffer. */
extern void __chk_fail(void) __attribute__((noreturn));

CULVERT_EXPORT ssize_t __read_chk(int fd, void *buf, size_t n, size_t size);
CULVERT_EXPORT ssize_t __read_chk(int fd, void *buf, size_t n, size_t size)
{
	if (n > size)
		__chk_fail();
	return read(fd, buf, n);
}

CULVERT_EXPORT ssize_t __pread_chk(int fd, void *buf, size_t n, off_t off, size_t size);
CULVERT_EXPORT ssize_t __pread_chk(int fd, void *buf, size_t n, off_t off, size_t size)
{
	if (n > size)
		__chk_fail();
	return pread(fd, buf, n, off);
}
CULVERT_ALIAS(__pread64_chk, __pread_chk)

/* In a forked child a node answers as gdrdrv does to processes that did not open it. */
CULVERT_EXPORT int ioctl(int fd, unsigned long req, ...)
{
	va_list ap;
	va_start(ap, req);
	void *arg = va_arg(ap, void *);
	va_end(ap);
	culvert_id id = culvert_node(fd);
	if (likely(!id))
		return culvert_libc.ioctl(fd, req, arg);
	if (!entered(fd))
		return culvert_fail(EACCES);
	if (id == CULVERT_LATE && culvert_answers_late(req))
		return culvert_fail(culvert_late_ioctl(arg));
	id = culvert_used(fd);
	return id ? culvert_fail(culvert_dev_ioctl(id, req, arg)) : -1;
}

CULVERT_EXPORT int fcntl(int fd, int cmd, ...)
{
	va_list ap;
	va_start(ap, cmd);
	void *arg = va_arg(ap, void *);
	va_end(ap);
	int result = culvert_libc.fcntl(fd, cmd, arg);
	if (likely(cmd != F_DUPFD && cmd != F_DUPFD_CLOEXEC))
		return result;
	return duplicated(culvert_used(fd), result);
}
CULVERT_ALIAS(fcntl64, fcntl)

CULVERT_EXPORT int dup(int fd)
{
	culvert_id id = culvert_used(fd);
	return duplicated(id, culvert_libc.dup(fd));
}

/* replaced is duplicated for a descriptor that was closed by being replaced. */
static int replaced(culvert_id id, int fd, int to, int result)
{
	if (result < 0 || fd == to || likely(!atomic_load_explicit(&culvert_nodes, memory_order_relaxed)))
		return result;
	if (entered(to))
		put(forget(to));
	return duplicated(id, result);
}

CULVERT_EXPORT int dup2(int fd, int to)
{
	culvert_id id = culvert_used(fd);
	return replaced(id, fd, to, culvert_libc.dup2(fd, to));
}

CULVERT_EXPORT int dup3(int fd, int to, int flags);
CULVERT_EXPORT int dup3(int fd, int to, int flags)
{
	culvert_id id = culvert_used(fd);
	return replaced(id, fd, to, culvert_libc.dup3(fd, to, flags));
}

static int fstat_any(int fd, struct stat *st)
{
	int result = status(fd, st);
	if (likely(!culvert_node(fd)) || result < 0)
		return result;
	st->st_mode = S_IFCHR | 0666;
	return 0;
}

#undef fstat
CULVERT_EXPORT int fstat(int fd, struct stat *st)
{
	return fstat_any(fd, st);
}
CULVERT_ALIAS(fstat64, fstat)

CULVERT_EXPORT int __fxstat(int layout, int fd, struct stat *st);
CULVERT_EXPORT int __fxstat(int layout, int fd, struct stat *st)
{
	(void)layout;
	return fstat_any(fd, st);
}
CULVERT_ALIAS(__fxstat64, __fxstat)
