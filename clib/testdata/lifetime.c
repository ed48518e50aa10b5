/*
 * Plays calls that begin, use and end the library, each a letter, and prints what
 * they answer and the use count:
 *
 *	lifetime FILE CALLS [AT-EXIT [IN-DESTRUCTOR]]
 *
 * F forks a child that plays the calls at exit, too; T plays the rest in a thread.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cuda_runtime.h>
#include <cufile.h>

static CUfileHandle_t file;
static CUfileBatchHandle_t batch;
static char *dev;
static int fd;
static const char *at_exit = "", *in_destructor = "";

/* old_close is the name that programs look up, which the header redefines. */
static CUfileError_t old_close(void)
{
	CUfileError_t (*close)(void);
	*(void **)&close = dlsym(RTLD_DEFAULT, "cuFileDriverClose");
	return close();
}

static void play(const char *where, char c)
{
	CUfileDescr_t d = {.type = CU_FILE_HANDLE_TYPE_OPAQUE_FD, .handle.fd = fd};
	CUfileDrvProps_t props;
	cudaStream_t s;
	size_t n;
	bool b;
	int v;
	switch (c) {
	case 'o': printf("%sopen %d", where, (int)cuFileDriverOpen().err); break;
	case 'c': printf("%sclose %d", where, (int)cuFileDriverClose().err); break;
	case 'C': printf("%sold close %d", where, (int)old_close().err); break;
	case 'h': printf("%shandle %d", where, (int)cuFileHandleRegister(&file, &d).err); break;
	case 'H': cuFileHandleDeregister(file), printf("%shandle ends", where); break;
	case 'b': printf("%sbuffer %d", where, (int)cuFileBufRegister(dev, 65536, 0).err); break;
	case 'B': printf("%sbuffer ends %d", where, (int)cuFileBufDeregister(dev).err); break;
	case 'r': printf("%sread %zd", where, cuFileRead(file, dev, 4096, 0, 0)); break;
	case 'p': printf("%sproperties %d", where, (int)cuFileDriverGetProperties(&props).err); break;
	case 'g': printf("%sparameter %d", where, (int)cuFileGetParameterSizeT(CUFILE_PARAM_PROPERTIES_MAX_DIRECT_IO_SIZE_KB, &n).err); break;
	case 'G': printf("%sswitch %d", where, (int)cuFileGetParameterBool(CUFILE_PARAM_PROPERTIES_USE_POLL_MODE, &b).err); break;
	case 's': printf("%slimit %d", where, (int)cuFileDriverSetMaxDirectIOSize(1024).err); break;
	case 'P': printf("%spoll %d", where, (int)cuFileDriverSetPollMode(false, 4).err); break;
	case 'v': printf("%sversion %d", where, (int)cuFileGetVersion(&v).err); break;
	case 'S': cudaStreamCreate(&s), printf("%sstream %d", where, (int)cuFileStreamRegister((CUstream)s, 0).err); break;
	case 't': printf("%sbatch %d", where, (int)cuFileBatchIOSetUp(&batch, 4).err); break;
	case 'D': cuFileBatchIODestroy(batch), printf("%sbatch ends", where); break;
	case 'R': printf("%sreset %d", where, (int)cudaDeviceReset()); break;
	default: printf("%s%c is no call", where, c);
	}
	printf(", count %ld\n", cuFileUseCount());
}

static void exiting(void)
{
	for (; *at_exit; at_exit++)
		play("exit: ", *at_exit);
}

__attribute__((destructor)) static void destructor(void)
{
	for (; *in_destructor; in_destructor++)
		play("destructor: ", *in_destructor);
}

static void *thread(void *calls)
{
	for (const char *c = calls; *c; c++)
		play("thread: ", *c);
	return NULL;
}

int main(int argc, char **argv)
{
	static char text[65536];
	pthread_t t;
	int status;
	setvbuf(stdout, NULL, _IOLBF, 0);
	alarm(60); /* a hang is a failure */
	fd = open(argv[1], O_CREAT | O_TRUNC | O_RDWR, 0644);
	if (write(fd, text, sizeof text) != sizeof text || cudaMalloc((void **)&dev, sizeof text))
		return 1;
	if (argc > 3)
		at_exit = argv[3];
	if (argc > 4)
		in_destructor = argv[4];
	atexit(exiting);
	for (const char *c = argv[2]; *c; c++) {
		if (*c == 'F') {
			pid_t pid = fork();
			if (pid == 0)
				exit(0);
			waitpid(pid, &status, 0);
			printf("child %#x\n", (unsigned)status);
		} else if (*c == 'T') {
			pthread_create(&t, NULL, thread, (void *)(c + 1));
			pthread_join(t, NULL);
			break;
		} else {
			play("", *c);
		}
	}
	return 0;
}
