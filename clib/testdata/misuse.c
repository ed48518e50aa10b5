/*
 * Wrong arguments, one line each. Nothing here may crash or hang.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cuda_runtime.h>
#include <cufile.h>

static void status(const char *what, CUfileError_t s)
{
	printf("%s: %d\n", what, (int)s.err);
}

static void count(const char *what, ssize_t n)
{
	if (n < 0)
		printf("%s: %zd errno %d\n", what, n, errno);
	else
		printf("%s: %zd\n", what, n);
}

static CUfileError_t reg(CUfileHandle_t *h, enum CUfileFileHandleType type, int fd)
{
	CUfileDescr_t d;
	memset(&d, 0, sizeof d);
	d.type = type;
	d.handle.fd = fd;
	return cuFileHandleRegister(h, &d);
}

int main(int argc, char **argv)
{
	CUfileHandle_t h = NULL, other = NULL, wronly = NULL, rdonly = NULL;
	CUfileDescr_t d;
	CUfileDrvProps_t props;
	char *dev = NULL, *managed = NULL, host[4096];
	(void)argc;
	setvbuf(stdout, NULL, _IOLBF, 0); // a crash shows how far it came

	status("close before open", cuFileDriverClose());
	status("deregister buffer before open", cuFileBufDeregister(host));
	status("open", cuFileDriverOpen());
	status("open again", cuFileDriverOpen());
	printf("use count: %ld\n", cuFileUseCount());
	status("close", cuFileDriverClose());
	status("properties NULL", cuFileDriverGetProperties(NULL));
	status("properties", cuFileDriverGetProperties(&props));
	printf("nvfs version is 0.0: %d\n", props.nvfs.major_version == 0 && props.nvfs.minor_version == 0);
	status("version NULL", cuFileGetVersion(NULL));

	int fd = open(argv[1], O_CREAT | O_TRUNC | O_RDWR, 0644);
	int dir = open("/", O_RDONLY), app = open(argv[1], O_RDWR | O_APPEND);
	int wr = open(argv[1], O_WRONLY), rd = open(argv[1], O_RDONLY), pipes[2];
	if (fd < 0 || dir < 0 || app < 0 || wr < 0 || rd < 0 || pipe(pipes) != 0 || write(fd, "0123456789", 10) != 10)
		return 1;
	memset(&d, 0, sizeof d);
	d.type = CU_FILE_HANDLE_TYPE_OPAQUE_FD;
	status("register into NULL", cuFileHandleRegister(NULL, &d));
	status("register NULL", cuFileHandleRegister(&h, NULL));
	status("register -1", reg(&h, CU_FILE_HANDLE_TYPE_OPAQUE_FD, -1));
	status("register a closed descriptor", reg(&h, CU_FILE_HANDLE_TYPE_OPAQUE_FD, 999));
	status("register a Windows handle", reg(&h, CU_FILE_HANDLE_TYPE_OPAQUE_WIN32, fd));
	status("register a type that is none", reg(&h, (enum CUfileFileHandleType)77, fd));
	status("register a user-space file system", reg(&h, CU_FILE_HANDLE_TYPE_USERSPACE_FS, fd));
	status("register a directory", reg(&h, CU_FILE_HANDLE_TYPE_OPAQUE_FD, dir));
	status("register a pipe", reg(&h, CU_FILE_HANDLE_TYPE_OPAQUE_FD, pipes[0]));
	status("register O_APPEND", reg(&h, CU_FILE_HANDLE_TYPE_OPAQUE_FD, app));
	status("register", reg(&h, CU_FILE_HANDLE_TYPE_OPAQUE_FD, fd));
	status("register again", reg(&other, CU_FILE_HANDLE_TYPE_OPAQUE_FD, fd));
	status("register write-only", reg(&wronly, CU_FILE_HANDLE_TYPE_OPAQUE_FD, wr));
	status("register read-only", reg(&rdonly, CU_FILE_HANDLE_TYPE_OPAQUE_FD, rd));

	if (cudaMalloc((void **)&dev, 1 << 20) || cudaMallocManaged((void **)&managed, 1 << 20, cudaMemAttachGlobal))
		return 1;
	status("buffer NULL", cuFileBufRegister(NULL, 4096, 0));
	status("buffer of 0 bytes", cuFileBufRegister(dev, 0, 0));
	status("buffer past the allocation", cuFileBufRegister(dev, (1 << 20) + 1, 0));
	status("buffer with flags that are none", cuFileBufRegister(dev, 4096, 0x40));
	status("and back", cuFileBufDeregister(dev));
	status("buffer managed", cuFileBufRegister(managed, 4096, 0));
	status("buffer on the heap", cuFileBufRegister(host, sizeof host, 0));
	status("buffer", cuFileBufRegister(dev, 65536, 0));
	status("buffer again", cuFileBufRegister(dev, 4096, 0));
	status("buffer inside another", cuFileBufRegister(dev + 4096, 4096, 0));
	status("deregister NULL", cuFileBufDeregister(NULL));
	status("deregister an unknown base", cuFileBufDeregister(dev + 64));
	status("deregister", cuFileBufDeregister(dev + 4096));
	status("deregister again", cuFileBufDeregister(dev + 4096));

	errno = 0;
	count("read NULL handle", cuFileRead(NULL, dev, 10, 0, 0));
	count("read NULL buffer", cuFileRead(h, NULL, 10, 0, 0));
	count("read with a handle that was made up", cuFileRead((CUfileHandle_t)0x7fff12345678, dev, 10, 0, 0));
	count("read with a handle on the stack", cuFileRead(&d, dev, 10, 0, 0));
	count("read at a negative offset", cuFileRead(h, dev, 10, -1, 0));
	count("read before the buffer", cuFileRead(h, dev, 10, 0, -1));
	count("read past the registered range", cuFileRead(h, dev, 65537, 0, 0));
	count("read past the allocation", cuFileRead(h, dev + 4096, 1 << 20, 0, 0));
	count("read 0 bytes", cuFileRead(h, dev, 0, 0, 0));
	count("read across the end", cuFileRead(h, dev, 100, 5, 0));
	count("read at the end", cuFileRead(h, dev, 100, 10, 0));
	count("read into managed memory", cuFileRead(h, managed, 10, 0, 0));
	printf("it is there: %.10s\n", managed);
	count("read into host memory", cuFileRead(h, host, 10, 0, 8));
	printf("it is there: %.10s\n", host + 8);
	count("read into nowhere", cuFileRead(h, (void *)0x10000, 10, 0, 0));
	count("read a write-only file", cuFileRead(wronly, dev, 10, 0, 0));
	count("write a read-only file", cuFileWrite(rdonly, dev, 10, 0, 0));
	count("write from nowhere", cuFileWrite(h, (void *)0x10000, 10, 0, 0));
	count("write unaligned", cuFileWrite(h, dev, 5000, 3, 0));
#ifndef NO_VECTOR /* releases before 1.19 do not have it */
	count("readv NULL", cuFileReadv(h, NULL, 1, 0, 0));
	CUfileIOVec_t iov[2] = {{dev, 4}, {host, 4}};
	count("readv", cuFileReadv(h, iov, 2, 0, 0));
	count("writev", cuFileWritev(h, iov, 2, 0, 0));
#endif
	errno = EDOM;
	if (cuFileRead(h, dev, 10, 0, 0) == 10)
		printf("errno kept: %d\n", errno == EDOM);

	cuFileHandleDeregister(h);
	cuFileHandleDeregister(h);
	cuFileHandleDeregister(NULL);
	cuFileHandleDeregister((CUfileHandle_t)0x123);
	count("read after deregistration", cuFileRead(h, dev, 10, 0, 0));
	status("register after deregistration", reg(&other, CU_FILE_HANDLE_TYPE_OPAQUE_FD, fd));
	printf("handles differ: %d\n", h != other);
	status("properties into nowhere", cuFileDriverGetProperties((CUfileDrvProps_t *)0x10000));
	status("register from nowhere", cuFileHandleRegister(&h, (CUfileDescr_t *)0x10000));

	int again = dup(fd);
	status("register into nowhere", reg((CUfileHandle_t *)0x10000, CU_FILE_HANDLE_TYPE_OPAQUE_FD, again));
	status("and properly", reg(&h, CU_FILE_HANDLE_TYPE_OPAQUE_FD, again));

	status("last close", cuFileDriverClose());
	status("close once more", cuFileDriverClose());
	count("read after the last close", cuFileRead(other, dev, 10, 0, 0));
	status("open after close", cuFileDriverOpen());
	count("read with a handle of before", cuFileRead(other, dev, 10, 0, 0));
	return 0;
}
