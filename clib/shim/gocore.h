/*
 * What all shims share: loading and calling the Go core, and functions that are not
 * supported.
 *
 * The first call loads the Go core (libculvert.so), not the loading of the shim:
 * `import torch` loads libcufile in every process, and most of them need no Go
 * runtime.
 */
#ifndef CULVERT_GOCORE_H
#define CULVERT_GOCORE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "entries.h"
#include "lease.h"

#define CULVERT_EXPORT __attribute__((visibility("default")))

/* A second name for a function. */
#define CULVERT_ALIAS(other, name) \
	extern __typeof__(name) other __attribute__((alias(#name), visibility("default")));

/* A public function that the software machine does not support. */
#define CULVERT_MISSING(name, code)                      \
	CULVERT_EXPORT int name(void);                   \
	CULVERT_EXPORT int name(void)                    \
	{                                                \
		static atomic_flag said = ATOMIC_FLAG_INIT; \
		culvert_missing(#name, &said);           \
		return code;                             \
	}

/*
 * culvert_call calls the Go core. It returns false if the core cannot be loaded, or
 * if this process is a forked child of one that had loaded it, where Go would hang.
 * errno is then fail_errno, unless that is 0. Otherwise the core sets errno or keeps
 * it.
 */
bool culvert_call(enum culvert_entry fn, const uint64_t *args, int64_t *value, int fail_errno);

/* culvert_core_runs reports whether this library or another has loaded the Go core, of which
 * this process may be a forked child. */
bool culvert_core_runs(void);

/* culvert_leases returns the slots of leases; NULL before the Go core is loaded, and
 * in a forked child. */
struct culvert_lease *culvert_leases(void);

/*
 * culvert_load and culvert_store copy from and to memory that the program's arguments
 * point to. They return false if it is not there, whatever handler the program has for
 * SIGSEGV: package cmem says how.
 */
bool culvert_load(void *to, const void *from, size_t n);
bool culvert_store(void *to, const void *from, size_t n);

/* culvert_load_string copies a string that must fit into n bytes. */
bool culvert_load_string(char *to, const char *from, size_t n);

/* culvert_missing prints the name of an unsupported function, once. */
void culvert_missing(const char *name, atomic_flag *said);

/*
 * What the Go core gives to a shim, by one function that checks the version first.
 */
struct culvert_core {
	/* call is false in a forked child; err is the errno to set, or 0. */
	bool (*call)(int fn, const uint64_t *args, int64_t *value, int *err);
	/* leases is NULL in a forked child. */
	struct culvert_lease *_Atomic leases;
};

#define CULVERT_CORE_FILE "libculvert.so"
#define CULVERT_CORE_SYMBOL "culvert_core_open"
typedef const struct culvert_core *(*culvert_core_open_fn)(const char *version, const char **have);

#endif
