/* GDRCopy's API from C, call by call: pins, mappings, copies, and what is refused. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cuda.h>
#include <gdrapi.h>

_Static_assert(sizeof(gdr_info_v2_t) == 48 && offsetof(gdr_info_v2_t, mapping_type) == 40, "the layout of GDRCopy 2.6");

enum { size = 2 * GPU_PAGE_SIZE };

/* show prints a call and its answer. */
#define SHOW(call) \
	do { \
		int e_ = (call); \
		printf("%s: %s\n", #call, e_ ? strerror(e_) : "done"); \
	} while (0)

static void attributes(gdr_t g)
{
	static const char *const names[] = {"", "persistent", "force PCIe", "dma-buf"};
	int v, major = 0, minor = 0;
	for (int i = 1; i < GDR_ATTR_MAX; i++)
		if (gdr_get_attribute(g, (gdr_attr_t)i, &v) == 0)
			printf("attribute %s: %d\n", names[i], v);
	SHOW(gdr_get_attribute(g, GDR_ATTR_MAX, &v));
	gdr_runtime_get_version(&major, &minor);
	printf("library %d.%d\n", major, minor);
	SHOW(gdr_driver_get_version(g, &major, &minor));
	const char *name = "";
	for (int i = 0; i < GDR_MAPPING_TYPE_MAX && gdr_get_mapping_type_string((gdr_mapping_type_t)i, &name) == 0; i++)
		printf("type %d: %s\n", i, name);
	SHOW(gdr_get_mapping_type_string(GDR_MAPPING_TYPE_MAX, &name));
}

static void print_info(gdr_t g, gdr_mh_t mh, CUdeviceptr d)
{
	gdr_info_t i;
	if (gdr_get_info(g, mh, &i))
		return;
	printf("info: offset %lld, %llu bytes in pages of %u, mapped %u, WC %u, type %d\n", (long long)(i.va - d), (unsigned long long)i.mapped_size,
	       i.page_size, i.mapped, i.wc_mapping, i.mapping_type);
}

/* The function that programs built before 2.4 import, by its own name. */
#undef gdr_get_info
struct info_v1 {
	uint64_t va, mapped_size;
	uint32_t page_size;
	uint64_t tm_cycles;
	uint32_t cycles_per_ms;
	unsigned mapped : 1, wc_mapping : 1;
};
int gdr_get_info(gdr_t g, gdr_mh_t handle, struct info_v1 *info);

int main(void)
{
	CUcontext context;
	CUdeviceptr d;
	static unsigned char in[size], out[size];
	gdr_mh_t mh = {0}, other = {0}, none = {0};
	void *va = NULL, *again = NULL;
	int flag = 9;
	if (cuInit(0) || cuCtxCreate(&context, 0, 0) || cuMemAlloc(&d, 2 << 20))
		return 1;
	gdr_t g = gdr_open(), second = gdr_open();
	if (!g || !second)
		return 2;
	attributes(g);

	SHOW(gdr_pin_buffer(g, d, size, 0, 0, &mh));
	print_info(g, mh, d);
	SHOW(gdr_get_callback_flag(g, mh, &flag));
	printf("flag %d\n", flag);
	SHOW(gdr_copy_to_mapping(mh, &d, in, 1));
	SHOW(gdr_unmap(g, mh, va, size));
	SHOW(gdr_map(g, mh, &va, size));
	print_info(g, mh, d);
	SHOW(gdr_map(g, mh, &again, size));
	struct info_v1 old = {0};
	SHOW(gdr_get_info(g, mh, &old));
	printf("info of old programs: %s\n", old.va == d && old.mapped && old.wc_mapping ? "the same" : "another");

	for (size_t i = 0; i < size; i++)
		in[i] = (unsigned char)(i * 7 + i / 251);
	SHOW(gdr_copy_to_mapping(mh, va, in, size));
	SHOW(gdr_copy_to_mapping(mh, (char *)va + 3, in + 3, 1001));
	if (cuMemcpyDtoH(out, d, size))
		return 3;
	printf("the GPU has %s\n", memcmp(in, out, size) ? "other bytes" : "what was copied");
	memset(out, 0, size);
	SHOW(gdr_copy_from_mapping(mh, out + 5, (char *)va + 5, size - 5));
	printf("read back %s\n", memcmp(in + 5, out + 5, size - 5) ? "other bytes" : "the same");
	((volatile unsigned char *)va)[7] = 200;
	if (cuMemcpyDtoH(out, d, 8) || out[7] != 200)
		return 4;
	SHOW(gdr_copy_to_mapping(mh, va, in, 0));
	SHOW(gdr_copy_to_mapping(mh, (char *)va + size, in, 1));
	SHOW(gdr_copy_to_mapping(mh, (char *)va - 1, in, 1));
	SHOW(gdr_copy_from_mapping(none, out, va, 1));

	SHOW(gdr_unmap(second, mh, va, size));
	SHOW(gdr_unmap(g, mh, (char *)va + 4096, size));
	SHOW(gdr_unmap(g, mh, va, size));
	SHOW(gdr_map_v2(g, mh, &va, size, GDR_MAP_FLAG_REQ_CACHE_MAPPING));
	SHOW(gdr_map_v2(g, mh, &va, size, 4));
	SHOW(gdr_map_v2(g, mh, &va, size + 1, 0));
	SHOW(gdr_map_v2(g, mh, &va, size, GDR_MAP_FLAG_REQ_WC_MAPPING));

	SHOW(gdr_pin_buffer(g, d + 100, 8, 0, 0, &other));
	SHOW(gdr_map(g, other, &again, 8));
	SHOW(gdr_unpin_buffer(g, other));
	SHOW(gdr_unpin_buffer(g, other));
	SHOW(gdr_pin_buffer(g, d, 0, 0, 0, &other));
	SHOW(gdr_pin_buffer(g, (unsigned long)in, 64, 0, 0, &other));
	SHOW(gdr_pin_buffer_v2(g, d, size, 2, &other));
	SHOW(gdr_pin_buffer_v2(g, d, size, GDR_PIN_FLAG_FORCE_PCIE, &other));
	SHOW(gdr_pin_buffer(g, d, size, 0, 0, NULL));
	SHOW(gdr_close(second));
	SHOW(gdr_close(second));

	unsigned char there;
	int status = -1;
	fflush(stdout);
	pid_t child = fork();
	if (child == 0)
		_exit(mincore(va, 4096, &there) == 0);
	printf("a forked child: %s\n", waitpid(child, &status, 0) == child && status == 0 ? "no mapping" : "the mapping");

	/* A persistent pin outlives the free. */
	((volatile unsigned char *)va)[9] = 201;
	if (cuMemFree(d))
		return 5;
	printf("after the free: %d\n", ((volatile unsigned char *)va)[9]);
	SHOW(gdr_unpin_buffer(g, mh));
	SHOW(gdr_close(g));
	fflush(stdout);
	child = fork();
	if (child == 0)
		_exit(gdr_open() || errno != ENODEV);
	printf("a forked child: %s\n", waitpid(child, &status, 0) == child && status == 0 ? "no session" : "a session");
	return 0;
}
