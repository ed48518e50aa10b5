/*
 * What the shims share: the way to the Go core, and how a library says that a
 * function is not there.
 *
 * The core (libculvert.so) is loaded by the first call, not with the library:
 * `import torch` loads libcufile in every process, and a Go runtime that
 * nobody asked for must not start there.
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

/* A public function that the software machine does not have. */
#define CULVERT_MISSING(name, code)                      \
	CULVERT_EXPORT int name(void);                   \
	CULVERT_EXPORT int name(void)                    \
	{                                                \
		static atomic_flag said = ATOMIC_FLAG_INIT; \
		culvert_missing(#name, &said);           \
		return code;                             \
	}

/*
 * culvert_call asks the core. It is false when there is none to ask: it cannot
 * be loaded, or this process is a forked child of one that had loaded it, in
 * which a Go runtime would hang. errno is then fail_errno, unless that is 0;
 * otherwise errno is what the core says, or untouched.
 */
bool culvert_call(enum culvert_entry fn, const uint64_t *args, int64_t *value, int fail_errno);

/* culvert_leases is where the core keeps leases; NULL where there is no core yet,
 * and in a forked child. */
struct culvert_lease *culvert_leases(void);

/* culvert_missing prints the name, the first time. */
void culvert_missing(const char *name, atomic_flag *said);

/*
 * The Go core's side. It is entered through one symbol, so that the
 * version is checked before anything else can go wrong.
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
