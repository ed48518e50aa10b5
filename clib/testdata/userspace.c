/*
 * Tables of user-space file systems that are wrong, fail, or move less than asked for.
 * Each line is a call and its result; userspace.txt has what is expected.
 */
#define _GNU_SOURCE
#include <cuda_runtime.h>
#include <cufile.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

/* What the functions return, and how often they were called. */
static const char *name = "test";
static ssize_t result;
static int error, calls;

static const char *fs_type(const void *handle)
{
	(void)handle;
	return name;
}

static ssize_t fs_read(const void *handle, char *buf, size_t n, loff_t off, const cufileRDMAInfo_t *rdma)
{
	(void)handle, (void)off, (void)rdma;
	calls++;
	errno = error;
	if (result > 0 && (size_t)result < n)
		n = result;
	if (result > 0)
		memset(buf, 7, n);
	return result;
}

static ssize_t fs_write(const void *handle, const char *buf, size_t n, loff_t off, const cufileRDMAInfo_t *rdma)
{
	(void)handle, (void)buf, (void)n, (void)off, (void)rdma;
	calls++;
	errno = error;
	return result;
}

static CUfileFSOps_t table(void)
{
	CUfileFSOps_t t;
	memset(&t, 0, sizeof t);
	t.fs_type = fs_type;
	t.read = fs_read;
	t.write = fs_write;
	return t;
}

static void reg(const char *what, CUfileHandle_t *h, const CUfileFSOps_t *t)
{
	CUfileDescr_t d;
	memset(&d, 0, sizeof d);
	d.type = CU_FILE_HANDLE_TYPE_USERSPACE_FS;
	d.handle.handle = &d;
	d.fs_ops = t;
	printf("register %s: %d\n", what, (int)cuFileHandleRegister(h, &d).err);
}

static void moved(const char *what, ssize_t n, int err)
{
	printf("%s: %zd", what, n);
	if (n < 0)
		printf(" errno %d", err);
	printf(", %d calls\n", calls);
	calls = 0;
}

/* Both directions with functions that answer r and set errno to e. */
static void answers(const char *what, CUfileHandle_t h, void *mem, ssize_t r, int e)
{
	char text[64];
	result = r, error = e;
	snprintf(text, sizeof text, "read, %s", what);
	ssize_t n = cuFileRead(h, mem, 4096, 0, 0);
	moved(text, n, errno);
	snprintf(text, sizeof text, "write, %s", what);
	n = cuFileWrite(h, mem, 4096, 0, 0);
	moved(text, n, errno);
}

static void tables(void)
{
	CUfileHandle_t h = NULL;
	CUfileFSOps_t t;
	char text[80];
	reg("no table", &h, NULL);
	reg("a wild table", &h, (const CUfileFSOps_t *)0xdead0000);
	t = table(), t.fs_type = NULL, reg("without fs_type", &h, &t);
	t = table(), t.read = NULL, reg("without read", &h, &t);
	t = table(), t.write = NULL, reg("without write", &h, &t);
	t = table();
	name = NULL, reg("type NULL", &h, &t);
	name = "", reg("type without a name", &h, &t);
	name = "a\nb", reg("type of two lines", &h, &t);
	name = (const char *)0xdead0000, reg("wild type", &h, &t);
	memset(text, 'x', sizeof text);
	text[65] = 0, name = text, reg("type that is too long", &h, &t);
	name = "test";
}

int main(void)
{
	CUfileHandle_t h = NULL;
	char *dev, host[4096];
	if (cudaMalloc((void **)&dev, 1 << 20))
		return 1;
	tables();
	CUfileFSOps_t t = table();
	reg("a table", &h, &t);
	memset(&t, 0, sizeof t); /* the library has a copy */

	answers("all", h, dev, 4096, 0);
	answers("a quarter each", h, dev, 1024, 0);
	answers("host memory", h, host, 4096, 0);
	answers("nothing", h, dev, 0, 0);
	answers("errno", h, dev, -1, EREMOTEIO);
	answers("-1 without errno", h, dev, -1, 0);
	answers("negative errno", h, dev, -ESTALE, 0);
	answers("a number that is no errno", h, dev, -123456789, 0);
	answers("more than asked for", h, dev, 4097, 0);
	answers("errno in host memory", h, host, -1, EREMOTEIO);
	result = 4096;
	ssize_t n = cuFileRead(h, dev, 0, 0, 0);
	moved("read no bytes", n, errno);
	n = cuFileRead(h, dev, 4096, -1, 0);
	moved("read before the beginning", n, errno);
	cuFileHandleDeregister(h);
	n = cuFileRead(h, dev, 4096, 0, 0);
	moved("read, deregistered", n, errno);
	n = cuFileWrite(h, dev, 4096, 0, 0);
	moved("write, deregistered", n, errno);
	printf("close: %d\n", (int)cuFileDriverClose().err);
	return 0;
}
