/*
 * Cases of functions that releases after 1.15 have, in the form of calls.c. A library
 * that lacks the function leaves its cases out.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"

enum { SIZE = 64 << 10, TARGETS = 16 };

static int get_flags(int target)
{
	CUfileP2PFlags_t flags = (CUfileP2PFlags_t)77;
	int code = (int)F(cuFileDriverGetP2PFlags)((CUfileDriverStatusFlags_t)target, &flags).err;
	return code ? -code : (int)flags;
}

static void p2p_closed(void)
{
	say("cuFileDriverGetP2PFlags", "closed: %d", get_flags(CU_FILE_NVME_SUPPORTED));
	STATUS(cuFileDriverSetP2PFlags, "closed", CU_FILE_NVME_SUPPORTED, (CUfileP2PFlags_t)1);
	say("cuFileDriverGetP2PFlags", "closed and set: %d", get_flags(CU_FILE_NVME_SUPPORTED));
	say("cuFileUseCount", "%ld", F(cuFileUseCount)());
	STATUS(cuFileDriverOpen, "");
	say("cuFileDriverGetP2PFlags", "opened: %d", get_flags(CU_FILE_NVME_SUPPORTED));
}

static void p2p_get(void)
{
	STATUS(cuFileDriverOpen, "");
	for (int i = -1; i <= TARGETS; i++)
		say("cuFileDriverGetP2PFlags", "target %d: %d", i, get_flags(i));
	STATUS(cuFileDriverGetP2PFlags, "NULL", CU_FILE_NVME_SUPPORTED, NULL);
}

static void p2p_set(void)
{
	STATUS(cuFileDriverOpen, "");
	for (int i = -1; i <= TARGETS; i++) {
		int code = (int)F(cuFileDriverSetP2PFlags)((CUfileDriverStatusFlags_t)i, (CUfileP2PFlags_t)1).err;
		say("cuFileDriverSetP2PFlags", "target %d = %d then %d", i, code, get_flags(i));
	}
	for (int flags = 0; flags <= 32; flags = flags < 4 ? flags + 1 : 2 * flags) {
		int code = (int)F(cuFileDriverSetP2PFlags)(CU_FILE_NVME_SUPPORTED, (CUfileP2PFlags_t)flags).err;
		say("cuFileDriverSetP2PFlags", "flags %d = %d then %d", flags, code, get_flags(CU_FILE_NVME_SUPPORTED));
	}
}

/* exported says what is in a file of topology. */
static void exported(const char *when, const char *path)
{
	char bytes[64] = "";
	int fd = open(path, O_RDONLY);
	ssize_t n = read(fd, bytes, sizeof bytes);
	close(fd);
	say("cuFileExportPCIeTopology", "%s: the file %s", when, fd < 0 ? "is missing" : n > 0 && (bytes[0] == '{' || bytes[0] == '[') ? "is JSON" : "is something else");
}

static void topology(void)
{
	char path[4200];
	path_of(path, sizeof path, "topology");
	unlink(path);
	STATUS(cuFileExportPCIeTopology, "closed", path);
	exported("closed", path);
	say("cuFileUseCount", "%ld", F(cuFileUseCount)());
	unlink(path);
	STATUS(cuFileDriverOpen, "");
	STATUS(cuFileExportPCIeTopology, "NULL", NULL);
	STATUS(cuFileExportPCIeTopology, "empty", "");
	STATUS(cuFileExportPCIeTopology, "no such directory", "/nonexistent/topology.json");
	STATUS(cuFileExportPCIeTopology, "a directory", "/");
	STATUS(cuFileExportPCIeTopology, "open", path);
	exported("open", path);
	STATUS(cuFileExportPCIeTopology, "again", path);
}

static void say_slabs(const char *when, int n)
{
	size_t kb[8] = {77, 77, 77, 77}, count[8] = {77, 77, 77, 77};
	int code = (int)F(cuFileGetParameterGpuBounceBufferSlabArray)(kb, count, n).err;
	say("cuFileGetParameterGpuBounceBufferSlabArray", "%s %d = %d: %zu x %zu and %zu x %zu", when, n, code, kb[0], count[0], kb[1], count[1]);
}

static void gpu_slabs(void)
{
	size_t kb[2] = {1024, 8192}, count[2] = {16, 2}, odd[2] = {5, 0};
	for (int n = 0; n <= 5; n++)
		say_slabs("closed", n);
	STATUS(cuFileSetParameterGpuBounceBufferSlabArray, "NULL sizes", NULL, count, 2);
	STATUS(cuFileSetParameterGpuBounceBufferSlabArray, "NULL counts", kb, NULL, 2);
	STATUS(cuFileSetParameterGpuBounceBufferSlabArray, "0", kb, count, 0);
	STATUS(cuFileSetParameterGpuBounceBufferSlabArray, "-1", kb, count, -1);
	STATUS(cuFileSetParameterGpuBounceBufferSlabArray, "odd", odd, odd, 2);
	say_slabs("odd", 2);
	STATUS(cuFileSetParameterGpuBounceBufferSlabArray, "2", kb, count, 2);
	for (int n = 1; n <= 3; n++)
		say_slabs("set", n);
	STATUS(cuFileDriverOpen, "");
	for (int n = 1; n <= 5; n++)
		say_slabs("open", n);
	STATUS(cuFileSetParameterGpuBounceBufferSlabArray, "open", kb, count, 2);
	STATUS(cuFileGetParameterGpuBounceBufferSlabArray, "NULL", NULL, NULL, 2);
	STATUS(cuFileDriverClose_v2, "");
	say_slabs("closed again", 2);
}

static void gpu_slabs_open(void)
{
	STATUS(cuFileDriverOpen, "");
	for (int n = 0; n <= 5; n++)
		say_slabs("open", n);
}

static CUdeviceptr device_memory(void)
{
	CUdeviceptr p = 0;
	if (cuMemAlloc(&p, SIZE) || cuMemsetD8(p, 1, SIZE) || cuCtxSynchronize())
		die("no GPU memory");
	return p;
}

static int byte(CUdeviceptr p)
{
	unsigned char b = 0;
	cuMemcpyDtoH(&b, p, 1);
	return b;
}

static void vector(CUfileHandle_t h, const char *what, const CUfileIOVec_t *iov, size_t n, off_t off, unsigned flags)
{
	errno = 0;
	say_count("cuFileReadv", what, F(cuFileReadv)(h, iov, n, off, flags));
}

static void readv_case(void)
{
	char host[4096];
	STATUS(cuFileDriverOpen, "");
	CUfileHandle_t h = handle_of(scratch(SIZE));
	CUdeviceptr p = device_memory();
	CUfileIOVec_t iov[3] = {{(void *)p, 4096}, {(void *)(p + 8192), 4096}, {(void *)(p + 16384), 8192}};
	vector(h, "3", iov, 3, 0, 0);
	say("cuFileReadv", "bytes %d %d %d %d", byte(p), byte(p + 4096), byte(p + 8192), byte(p + 24575));
	vector(h, "1", iov, 1, 4096, 0);
	vector(h, "across the end", iov, 3, SIZE - 5000, 0);
	vector(h, "behind the end", iov, 3, 2 * SIZE, 0);
	CUfileIOVec_t odd[3] = {{(void *)(p + 1), 1000}, {(void *)(p + 3000), 3}, {(void *)(p + 5000), 5001}};
	vector(h, "unaligned", odd, 3, 5, 0);
	CUfileIOVec_t mixed[2] = {{(void *)p, 4096}, {host, 4096}};
	memset(host, 1, sizeof host);
	vector(h, "host memory too", mixed, 2, 0, 0);
	say("cuFileReadv", "host byte %d", host[4095]);
	STATUS(cuFileBufRegister, "", (void *)p, SIZE, 0);
	vector(h, "registered", iov, 3, 0, 0);
	STATUS(cuFileBufDeregister, "", (void *)p);
	F(cuFileHandleDeregister)(h);
	vector(h, "deregistered handle", iov, 3, 0, 0);
}

static void readv_bad(void)
{
	static CUfileIOVec_t many[2049];
	STATUS(cuFileDriverOpen, "");
	CUfileHandle_t h = handle_of(scratch(SIZE));
	CUdeviceptr p = device_memory();
	CUfileIOVec_t iov[2] = {{(void *)p, 4096}, {(void *)(p + 8192), 4096}};
	for (int i = 0; i < 2049; i++)
		many[i] = (CUfileIOVec_t){(void *)p, 1};
	vector(NULL, "NULL handle", iov, 2, 0, 0);
	vector(h, "NULL vector", NULL, 2, 0, 0);
	vector(h, "0", iov, 0, 0, 0);
	vector(h, "flags 1", iov, 2, 0, 1);
	vector(h, "flags 77", iov, 2, 0, 77);
	vector(h, "negative offset", iov, 2, -1, 0);
	vector(h, "1024", many, 1024, 0, 0);
	vector(h, "1025", many, 1025, 0, 0);
	vector(h, "2049", many, 2049, 0, 0);
	iov[1].base = NULL;
	vector(h, "NULL memory", iov, 2, 0, 0);
	iov[1].base = (void *)(p + 8192), iov[1].len = 0;
	vector(h, "an empty one", iov, 2, 0, 0);
	iov[0].len = 0;
	vector(h, "all empty", iov, 2, 0, 0);
	iov[0].len = 1ull << 63, iov[1].len = 1ull << 63;
	vector(h, "too long", iov, 2, 0, 0);
}

static void writev_case(void)
{
	char host[4096], back[4096];
	STATUS(cuFileDriverOpen, "");
	int fd = scratch(SIZE);
	CUfileHandle_t h = handle_of(fd);
	CUdeviceptr p = device_memory();
	CUfileIOVec_t iov[2] = {{(void *)p, 4096}, {(void *)(p + 8192), 4096}};
	say_count("cuFileWritev", "2", F(cuFileWritev)(h, iov, 2, 0, 0));
	ssize_t n = pread(fd, back, sizeof back, 4096);
	say("cuFileWritev", "wrote %zd bytes of %d", n, back[4095]);
	CUfileIOVec_t odd[2] = {{(void *)(p + 1), 1000}, {(void *)(p + 3000), 5}};
	say_count("cuFileWritev", "unaligned", F(cuFileWritev)(h, odd, 2, 20003, 0));
	n = pread(fd, back, 1010, 20000);
	say("cuFileWritev", "unaligned: %d %d %d %d", back[2], back[3], back[1007], back[1008]);
	memset(host, 5, sizeof host);
	CUfileIOVec_t mixed[2] = {{(void *)p, 4096}, {host, 4096}};
	say_count("cuFileWritev", "host memory too", F(cuFileWritev)(h, mixed, 2, 32768, 0));
	say_count("cuFileWritev", "behind the end", F(cuFileWritev)(h, iov, 2, 2 * SIZE, 0));
	say_count("cuFileWritev", "NULL vector", F(cuFileWritev)(h, NULL, 2, 0, 0));
	say_count("cuFileWritev", "0", F(cuFileWritev)(h, iov, 0, 0, 0));
	say_count("cuFileWritev", "flags 1", F(cuFileWritev)(h, iov, 2, 0, 1));
	say_count("cuFileWritev", "negative offset", F(cuFileWritev)(h, iov, 2, -1, 0));
	say_count("cuFileWritev", "NULL handle", F(cuFileWritev)(NULL, iov, 2, 0, 0));
}

const struct call_case newer_cases[] = {
	{"calls/p2p-closed", p2p_closed, "cuFileDriverSetP2PFlags"},
	{"calls/p2p-get", p2p_get, "cuFileDriverGetP2PFlags"},
	{"calls/p2p-set", p2p_set, "cuFileDriverSetP2PFlags"},
	{"calls/topology", topology, "cuFileExportPCIeTopology"},
	{"calls/gpu-slabs", gpu_slabs, "cuFileSetParameterGpuBounceBufferSlabArray"},
	{"calls/gpu-slabs-open", gpu_slabs_open, "cuFileGetParameterGpuBounceBufferSlabArray"},
	{"calls/readv", readv_case, "cuFileReadv"},
	{"calls/readv-bad", readv_bad, "cuFileReadv"},
	{"calls/writev", writev_case, "cuFileWritev"},
	{NULL, NULL, NULL},
};
