#define _GNU_SOURCE
#include "gocore.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static const struct culvert_core *_Atomic core;
static pthread_once_t once = PTHREAD_ONCE_INIT;
/* Loading has begun in this process; a child forked since then must not continue. */
static atomic_bool begun, forked;
/* The path of this library, read when it is loaded: the loader's path may be relative,
 * and the program may change its directory. Links in it are followed when they matter:
 * every program that is preloaded would pay for that. */
static const char *self = "";

/* is_self ends the search at the library that contains this function. */
static int is_self(struct dl_phdr_info *object, size_t size, void *unused)
{
	(void)size, (void)unused;
	for (int i = 0; i < object->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &object->dlpi_phdr[i];
		if (p->p_type != PT_LOAD || (uintptr_t)&is_self - object->dlpi_addr - p->p_vaddr >= p->p_memsz)
			continue;
		/* The loader keeps its text as long as the library. */
		const char *path = object->dlpi_name[0] == '/' ? object->dlpi_name : realpath(object->dlpi_name, NULL);
		if (path)
			self = path;
		return 1;
	}
	return 0;
}

/* dladdr would look for the nearest symbol, too, which takes 14 us at each start of a program. */
__attribute__((constructor)) static void find_self(void)
{
	dl_iterate_phdr(is_self, NULL);
}

/* find_directory returns where this library really is. */
static const char *find_directory(void)
{
	if (!*self) /* a constructor of the program's libraries calls */
		find_self();
	char *directory = realpath(self, NULL); /* kept: a buffer would be a page of each program */
	if (!directory && !(directory = strdup(self)))
		return "";
	char *slash = strrchr(directory, '/');
	if (slash)
		*slash = 0;
	return directory;
}

static void complain(const char *path, const char *what, const char *detail)
{
	fprintf(stderr, "culvert: %s: %s %s: %s\n", self, what, path, detail);
}

/* open_core loads the Go core from a path and checks its version. A missing file is
 * not reported: it returns false. */
static bool open_core(const char *path)
{
	char there[PATH_MAX];
	if (!realpath(path, there))
		return false;
	void *lib = dlopen(there, RTLD_NOW | RTLD_LOCAL);
	if (!lib) {
		complain(there, "cannot load", dlerror());
		return true;
	}
	culvert_core_open_fn open;
	*(void **)&open = dlsym(lib, CULVERT_CORE_SYMBOL);
	const char *have = "none";
	const struct culvert_core *c = open ? open(CULVERT_TABLE_VERSION, &have) : NULL;
	atomic_store(&core, c);
	if (!c) {
		char detail[256];
		snprintf(detail, sizeof detail, "its version is %s, this library needs %s; install both from one build", have, CULVERT_TABLE_VERSION);
		complain(there, "cannot use", detail);
	}
	return true;
}

static void child(void)
{
	if (atomic_load(&begun))
		atomic_store(&forked, true);
}

static void load(void)
{
	/* The Go core is in the directory of libcufile. The software machine's libcuda
	 * and libcudart are in a subdirectory, where programs do not find them by
	 * accident. */
	static const char *const places[] = {"%s/" CULVERT_CORE_FILE, "%s/../" CULVERT_CORE_FILE};
	pthread_atfork(NULL, NULL, child);
	atomic_store(&begun, true);
	const char *directory = find_directory();
	for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
		char path[2 * PATH_MAX];
		snprintf(path, sizeof path, places[i], directory);
		if (open_core(path))
			return;
	}
	complain(CULVERT_CORE_FILE, "cannot find", "install it in the directory of this library");
}

/* entered returns the Go core, which the first call loads; NULL if that failed. */
static const struct culvert_core *entered(void)
{
	const struct culvert_core *c = atomic_load_explicit(&core, memory_order_acquire);
	if (!c) {
		pthread_once(&once, load);
		c = atomic_load(&core);
	}
	return c;
}

bool culvert_call(enum culvert_entry fn, const uint64_t *args, int64_t *value, int fail_errno)
{
	int saved = errno, err = 0, cancel;
	/* A cancelled thread must not end inside of the Go core, with its locks held. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	const struct culvert_core *c = atomic_load_explicit(&forked, memory_order_relaxed) ? NULL : entered();
	bool answered = c && c->call(fn, args, value, &err);
	if (!answered)
		err = fail_errno;
	pthread_setcancelstate(cancel, NULL);
	errno = err ? err : saved;
	return answered;
}

bool culvert_core_runs(void)
{
	if (atomic_load_explicit(&core, memory_order_acquire))
		return true;
	void *lib = dlopen(CULVERT_CORE_FILE, RTLD_LAZY | RTLD_NOLOAD);
	if (lib)
		dlclose(lib);
	return lib;
}

struct culvert_lease *culvert_leases(void)
{
	const struct culvert_core *c = atomic_load_explicit(&core, memory_order_acquire);
	return c ? atomic_load_explicit(&c->leases, memory_order_relaxed) : NULL;
}

/* copied is the number of bytes copied by the kernel, whose part as the caller is the
 * memory of the program, or -1 where the kernel does not allow it. The system call is
 * a raw one: sanitizers replace that of the C library by one that reads the memory. */
static long copied(long copy, const void *theirs, const void *ours, size_t n)
{
	struct iovec local = {(void *)theirs, n}, remote = {(void *)ours, n};
	int saved = errno;
	long done = syscall(copy, getpid(), &local, 1, &remote, 1, 0);
	if (done < 0 && errno == EFAULT)
		done = 0;
	errno = saved;
	return done;
}

bool culvert_load(void *to, const void *from, size_t n)
{
	long done = copied(SYS_process_vm_writev, from, to, n);
	if (done < 0)
		memcpy(to, from, n);
	return done < 0 || done == (long)n;
}

bool culvert_store(void *to, const void *from, size_t n)
{
	long done = copied(SYS_process_vm_readv, to, from, n);
	if (done < 0)
		memcpy(to, from, n);
	return done < 0 || done == (long)n;
}

bool culvert_load_string(char *to, const char *from, size_t n)
{
	enum { PART = 64 }; /* ends at a multiple: the string may be the last of its page */
	for (size_t i = 0, part; i < n; i += part) {
		part = PART - (uintptr_t)(from + i) % PART;
		part = part < n - i ? part : n - i;
		if (!culvert_load(to + i, from + i, part))
			return false;
		if (memchr(to + i, 0, part))
			return true;
	}
	return false;
}

void culvert_missing(const char *name, atomic_flag *said)
{
	if (!atomic_flag_test_and_set(said))
		fprintf(stderr, "culvert: %s is not supported by the software machine\n", name);
}
