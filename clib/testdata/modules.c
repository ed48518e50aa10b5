/*
 * Preloaded: an empty /proc/modules for a kernel that has none, where NVIDIA's libcufile
 * waits for ever. It is asked after libculvert-dev.so.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *instead(const char *path)
{
	return path && strcmp(path, "/proc/modules") == 0 ? "/dev/null" : path;
}

int access(const char *path, int how)
{
	int (*next)(const char *, int);
	*(void **)&next = dlsym(RTLD_NEXT, "access");
	return next(instead(path), how);
}

FILE *fopen(const char *path, const char *mode)
{
	FILE *(*next)(const char *, const char *);
	*(void **)&next = dlsym(RTLD_NEXT, "fopen");
	return next(instead(path), mode);
}

int open(const char *path, int flags, ...)
{
	int (*next)(const char *, int, ...);
	va_list ap;
	va_start(ap, flags);
	int mode = va_arg(ap, int); /* not there without O_CREAT; then nothing reads it */
	va_end(ap);
	*(void **)&next = dlsym(RTLD_NEXT, "open");
	return next(instead(path), flags, mode);
}
