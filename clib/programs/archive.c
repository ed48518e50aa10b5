/*
 * A file system in user space: an archive in memory, whose members cuFile reads into
 * GPU memory and writes from it without any file of the kernel.
 *
 *	archive
 *
 * The archive has two members. A member is a handle; cuFile calls the functions of its
 * table, from several threads at once and with parts of a range in any order. The last
 * argument of read and write is for RDMA: it is NULL, the buffer is host memory.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include <cuda_runtime.h>
#include <cufile.h>

struct member {
	const char *name;
	unsigned char *data;
	size_t size;
};

static const char *type(const void *handle)
{
	(void)handle;
	return "archive";
}

/* room is how many of n bytes at off are inside of the member. */
static size_t room(const struct member *m, size_t n, loff_t off)
{
	if ((size_t)off >= m->size)
		return 0;
	return n < m->size - off ? n : m->size - off;
}

static ssize_t member_read(const void *handle, char *buf, size_t n, loff_t off, const cufileRDMAInfo_t *rdma)
{
	const struct member *m = handle;
	(void)rdma;
	n = room(m, n, off);
	memcpy(buf, m->data + off, n);
	return n;
}

/* A member does not grow: like a full disk, which an errno tells. */
static ssize_t member_write(const void *handle, const char *buf, size_t n, loff_t off, const cufileRDMAInfo_t *rdma)
{
	const struct member *m = handle;
	(void)rdma;
	n = room(m, n, off);
	if (n == 0) {
		errno = ENOSPC;
		return -1;
	}
	memcpy(m->data + off, buf, n);
	return n;
}

static const CUfileFSOps_t table = {.fs_type = type, .read = member_read, .write = member_write};

static CUfileHandle_t open_member(struct member *m)
{
	CUfileDescr_t d;
	CUfileHandle_t h = NULL;
	memset(&d, 0, sizeof d);
	d.type = CU_FILE_HANDLE_TYPE_USERSPACE_FS;
	d.handle.handle = m;
	d.fs_ops = &table;
	CUfileError_t e = cuFileHandleRegister(&h, &d);
	if (e.err != CU_FILE_SUCCESS) {
		fprintf(stderr, "%s: cuFileHandleRegister failed: %s\n", m->name, cuFileGetErrorString(e));
		exit(1);
	}
	return h;
}

static void fill(struct member *m, unsigned seed)
{
	m->data = malloc(m->size);
	if (!m->data)
		exit(1);
	for (size_t i = 0; i < m->size; i++)
		m->data[i] = (unsigned char)((i + seed) * 2654435761u >> 13);
}

enum { PARTS = 4 };

struct part {
	CUfileHandle_t from;
	char *device;
	size_t off, n;
	ssize_t got;
	pthread_t thread;
};

static void *read_part(void *arg)
{
	struct part *p = arg;
	p->got = cuFileRead(p->from, p->device, p->n, p->off, p->off);
	return NULL;
}

/* read_all reads a member by several threads. */
static size_t read_all(CUfileHandle_t from, char *device, size_t size)
{
	struct part parts[PARTS];
	size_t total = 0, each = size / PARTS;
	for (int i = 0; i < PARTS; i++) {
		parts[i] = (struct part){.from = from, .device = device, .off = i * each, .n = i < PARTS - 1 ? each : size - i * each};
		if (pthread_create(&parts[i].thread, NULL, read_part, &parts[i]) != 0)
			exit(1);
	}
	for (int i = 0; i < PARTS; i++) {
		pthread_join(parts[i].thread, NULL);
		total += parts[i].got > 0 ? parts[i].got : 0;
	}
	return total;
}

int main(void)
{
	struct member in = {"in", NULL, (9 << 20) + 5}, out = {"out", NULL, (9 << 20) + 5};
	char *device;
	fill(&in, 1);
	fill(&out, 2);
	if (cudaMalloc((void **)&device, in.size + 100) != cudaSuccess || cuFileDriverOpen().err != CU_FILE_SUCCESS) {
		fprintf(stderr, "no GPU\n");
		return 1;
	}
	CUfileHandle_t from = open_member(&in), to = open_member(&out);

	printf("read %zu bytes\n", read_all(from, device, in.size));
	printf("wrote %zd bytes\n", cuFileWrite(to, device, out.size, 0, 0));
	printf("members are %s\n", memcmp(in.data, out.data, in.size) == 0 ? "equal" : "different");
	printf("read across the end: %zd bytes\n", cuFileRead(from, device, 200, in.size - 7, 0));
	ssize_t n = cuFileWrite(to, device, 4096, out.size, 0);
	printf("write behind the end: %zd, %s\n", n, strerror(errno));

	cuFileHandleDeregister(from);
	cuFileHandleDeregister(to);
	cuFileDriverClose();
	cudaFree(device);
	free(in.data);
	free(out.data);
	return 0;
}
