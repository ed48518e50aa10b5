/*
 * A child forked before the Go core was loaded works; one forked afterwards gets
 * codes at once from every library.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cuda.h>
#include <cuda_runtime.h>
#include <cufile.h>

static void in_child(void (*fn)(void))
{
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		alarm(300); /* a hang is a failure */
		fn();
		fflush(stdout);
		_exit(0);
	}
	int status = 0;
	waitpid(pid, &status, 0);
	if (status != 0)
		printf("child ended with %#x\n", (unsigned)status);
}

static CUfileHandle_t handle;
static void *memory;

static void fresh(void)
{
	void *p = NULL;
	printf("fresh child: open %d, malloc %d\n", (int)cuFileDriverOpen().err, (int)cudaMalloc(&p, 4096));
}

static void late(void)
{
	CUdeviceptr d = 0;
	void *p = NULL;
	int version = 0;
	errno = 0;
	ssize_t n = cuFileRead(handle, memory, 16, 0, 0);
	printf("late child: read %zd errno %d\n", n, errno);
	printf("late child: open %d, version %d, count %ld\n", (int)cuFileDriverOpen().err, (int)cuFileGetVersion(&version).err,
	       cuFileUseCount());
	cuFileHandleDeregister(handle);
	errno = EDOM;
	printf("late child: init %d, alloc %d, malloc %d, errno kept %d\n", (int)cuInit(0), (int)cuMemAlloc(&d, 16),
	       (int)cudaMalloc(&p, 16), errno == EDOM);
	const char *name;
	cuGetErrorName(CUDA_ERROR_NOT_INITIALIZED, &name);
	printf("late child: %s, %s\n", name, cudaGetErrorString(cudaErrorInitializationError));
	in_child(fresh);
}

int main(int argc, char **argv)
{
	CUfileDescr_t descr = {.type = CU_FILE_HANDLE_TYPE_OPAQUE_FD};
	(void)argc;
	in_child(fresh);
	descr.handle.fd = fileno(fopen(argv[1], "w+"));
	cudaMalloc(&memory, 4096);
	printf("parent: register %d\n", (int)cuFileHandleRegister(&handle, &descr).err);
	in_child(late);
	printf("parent: write %zd\n", cuFileWrite(handle, memory, 4096, 0, 0));
	return 0;
}
