#define _GNU_SOURCE /* memfd_create */
#include "dev_local.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

/*
 * Programs open /dev/gdrdrv and ask for its version to learn whether it is there, and fork
 * afterwards: GDRCopy's own tests do. With gdrdrv their children can use CUDA. A Go core
 * would not survive the fork, so it starts with the first request that needs it.
 */
static const char gdrdrv[] = "/dev/gdrdrv";

/* As in gdrdrv.h, whose size is that of a pointer: version 2.6, for libraries from 2.0 on. */
struct version {
	uint32_t driver, minimum_library;
};
static const struct version version = {2 << 16 | 6, 2 << 16};
#define GET_VERSION _IOWR(0xDA, 255, struct version *)

static bool set(const char *variable, const char *part)
{
	const char *value = secure_getenv(variable);
	return value && strstr(value, part);
}

/* culvert_opens_late reports whether the node is there for sure: the Go core, which knows the
 * machine, is not asked. If it runs, it is. */
bool culvert_opens_late(const char *path, int flags)
{
	return strcmp(path, gdrdrv) == 0 && !(flags & O_DIRECTORY) && !set("CULVERT_SOFT", "without") && !set("CULVERT_MACHINE", "real") &&
	       !set("CULVERT_FAULT", "") && !culvert_core_runs();
}

/* culvert_open_late returns a descriptor as internal/devapi makes them. */
int culvert_open_late(int flags)
{
	unsigned how = MFD_ALLOW_SEALING | (flags & O_CLOEXEC ? MFD_CLOEXEC : 0);
	int fd = (int)syscall(SYS_memfd_create, gdrdrv, how);
	if (fd < 0)
		return -1;
	syscall(SYS_fcntl, fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL);
	syscall(SYS_fchmod, fd, 0444);
	return culvert_enter_fd(fd, CULVERT_LATE, flags);
}

/* culvert_open_now opens the node, and returns 0 with errno if it cannot. */
culvert_id culvert_open_now(int flags)
{
	culvert_id id = 0;
	int fd = (int)culvert_dev_open(gdrdrv, flags, &id);
	if (fd >= 0) /* the program has one */
		culvert_libc.close(fd);
	return fd >= 0 ? id : 0;
}

bool culvert_answers_late(unsigned long req)
{
	return req == GET_VERSION;
}

int culvert_late_ioctl(void *arg)
{
	return culvert_store(arg, &version, sizeof version) ? 0 : EFAULT;
}
