#define _GNU_SOURCE
#include "other.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

#undef cuFileDriverClose

/* What is looked for: the first libcufile that does not begin at the address of ours. */
struct search {
	const void *ours;
	char path[PATH_MAX];
};

/* base is where the library that contains an address begins. */
static const void *base(const void *at)
{
	Dl_info info;
	return dladdr(at, &info) ? info.dli_fbase : NULL;
}

static int look(struct dl_phdr_info *info, size_t size, void *to)
{
	struct search *s = to;
	const char *slash = strrchr(info->dlpi_name, '/');
	(void)size;
	if (strncmp(slash ? slash + 1 : info->dlpi_name, "libcufile.so", 12) != 0 || (const void *)info->dlpi_addr == s->ours)
		return 0;
	snprintf(s->path, sizeof s->path, "%s", info->dlpi_name);
	return 1;
}

/* own is the library's own function of a name, not that of a library it depends on. */
static void *own(void *lib, const char *name, const void *known)
{
	void *fn = dlsym(lib, name);
	return fn && base(fn) != base(known) ? fn : NULL;
}

bool culvert_close_other(int64_t *value)
{
	struct search s = {.ours = base((void *)&culvert_close_other)};
	if (!dl_iterate_phdr(look, &s)) /* which must not load libraries itself */
		return false;
	void *lib = dlopen(s.path, RTLD_LAZY | RTLD_NOLOAD);
	if (!lib)
		return false;
	long (*count)(void);
	CUfileError_t (*end)(void);
	*(void **)&count = own(lib, "cuFileUseCount", (void *)&culvert_close_other);
	*(void **)&end = own(lib, "cuFileDriverClose_v2", (void *)&culvert_close_other);
	bool open = count && end && count() > 0;
	if (open)
		*value = culvert_file_word(end());
	dlclose(lib);
	return open;
}
