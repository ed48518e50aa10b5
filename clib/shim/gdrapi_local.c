#include "gdrapi_local.h"

#include <string.h>

CULVERT_EXPORT gdr_t gdr_open(void)
{
	ssize_t session = culvert_gdr_open();
	return session == -1 ? NULL : (gdr_t)session;
}

/* What programs built before 2.4 import: the same struct without its last member. */
#undef gdr_get_info
CULVERT_EXPORT int gdr_get_info(gdr_t g, gdr_mh_t handle, void *info);
CULVERT_EXPORT int gdr_get_info(gdr_t g, gdr_mh_t handle, void *info)
{
	gdr_info_v2_t all;
	int err = gdr_get_info_v2(g, handle, &all);
	if (!err)
		memcpy(info, &all, offsetof(gdr_info_v2_t, mapping_type));
	return err;
}

CULVERT_EXPORT void gdr_runtime_get_version(int *major, int *minor)
{
	*major = GDR_API_MAJOR_VERSION;
	*minor = GDR_API_MINOR_VERSION;
}

CULVERT_EXPORT int gdr_get_mapping_type_string(gdr_mapping_type_t mapping_type, const char **pstr)
{
	static const char *const names[GDR_MAPPING_TYPE_MAX] = {"None", "Write Combining", "Caching", "Device"};
	if ((unsigned)mapping_type >= GDR_MAPPING_TYPE_MAX)
		return EINVAL;
	*pstr = names[mapping_type];
	return 0;
}
