/*
 * Stream I/O is enqueued and happens later. Every stream here first waits for a word
 * that the program writes after all calls have returned; a library that transfers
 * inside the call never returns.
 *
 *	later FILE
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cuda.h>
#include <cuda_runtime.h>
#include <cufile.h>

enum { BLOCK = 4096, STREAMS = 8, EACH = 3, KINDS = 3 };

static int check(const char *what, int code)
{
	if (code)
		printf("%s: %d\n", what, code);
	return code;
}
#define TRY(call)                                \
	do {                                     \
		if (check(#call, (int)(call)))   \
			return 1;                \
	} while (0)
#define FILE_TRY(call) TRY((call).err)

static size_t size[STREAMS][EACH];
static off_t file_offset[STREAMS][EACH], buf_offset[STREAMS][EACH];
static ssize_t done[STREAMS][EACH];

int main(int argc, char **argv)
{
	static unsigned char data[STREAMS * EACH * BLOCK], back[sizeof data];
	CUfileDescr_t d = {.type = CU_FILE_HANDLE_TYPE_OPAQUE_FD};
	CUfileHandle_t file, gone;
	CUstream stream[STREAMS];
	CUdeviceptr word;
	atomic_uint *gate;
	void *dev;
	if (argc != 2)
		return 2;
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (size_t i = 0; i < sizeof data; i++)
		data[i] = (unsigned char)(i * 7 + i / BLOCK);
	d.handle.fd = open(argv[1], O_CREAT | O_RDWR, 0600);
	if (pwrite(d.handle.fd, data, sizeof data, 0) != sizeof data)
		return 2;
	TRY(cudaMalloc(&dev, sizeof data));
	TRY(cudaMemset(dev, 0, sizeof data));
	TRY(cudaMallocHost((void **)&gate, sizeof *gate));
	TRY(cuMemHostGetDevicePointer(&word, gate, 0));
	atomic_store(gate, 0);
	FILE_TRY(cuFileHandleRegister(&file, &d));
	d.handle.fd = open(argv[1], O_RDONLY);
	FILE_TRY(cuFileHandleRegister(&gone, &d));
	FILE_TRY(cuFileBufRegister(dev, sizeof data, 0));

	for (int i = 0; i < STREAMS; i++) {
		/* The first three are the default streams; the others block and do not. */
		if (i < KINDS)
			stream[i] = (CUstream)(size_t)i;
		else
			TRY(cuStreamCreate(&stream[i], i % 2 ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
		TRY(cuStreamWaitValue32(stream[i], word, 1, CU_STREAM_WAIT_VALUE_EQ));
	}
	for (int i = 0; i < STREAMS; i++)
		for (int k = 0; k < EACH; k++) {
			done[i][k] = -77;
			FILE_TRY(cuFileReadAsync(file, dev, &size[i][k], &file_offset[i][k], &buf_offset[i][k], &done[i][k], stream[i]));
		}
	/* An error in the middle, and a file that is gone when its turn comes. */
	size_t whole = BLOCK, much = 2 * sizeof data;
	off_t zero = 0;
	ssize_t too_much = -77, of_gone = -77, after = -77;
	FILE_TRY(cuFileReadAsync(file, dev, &much, &zero, &zero, &too_much, stream[4]));
	FILE_TRY(cuFileReadAsync(gone, dev, &whole, &zero, &zero, &of_gone, stream[4]));
	FILE_TRY(cuFileWriteAsync(file, dev, &whole, &zero, &zero, &after, stream[4]));
	cuFileHandleDeregister(gone);
	TRY(cuStreamDestroy(stream[7])); /* its work is still done */
	puts("enqueued");

	for (int i = 0; i < STREAMS; i++)
		for (int k = 0; k < EACH; k++) {
			size[i][k] = BLOCK;
			file_offset[i][k] = buf_offset[i][k] = (i * EACH + k) * BLOCK;
			if (done[i][k] != -77)
				printf("stream %d did not wait\n", i);
		}
	atomic_store(gate, 1);
	TRY(cudaDeviceSynchronize());

	for (int i = 0; i < STREAMS; i++)
		for (int k = 0; k < EACH; k++)
			if (done[i][k] != BLOCK)
				printf("stream %d, read %d: %zd\n", i, k, done[i][k]);
	printf("too much %zd, deregistered %zd, after both %zd\n", too_much, of_gone, after);
	TRY(cudaMemcpy(back, dev, sizeof back, cudaMemcpyDeviceToHost));
	printf("data %s\n", memcmp(back, data, sizeof data) ? "differ" : "agree");

	/* A closed driver does not wait for what is in streams either. */
	atomic_store(gate, 0);
	TRY(cuStreamWaitValue32(stream[5], word, 1, CU_STREAM_WAIT_VALUE_EQ));
	after = -77;
	FILE_TRY(cuFileReadAsync(file, dev, &whole, &zero, &zero, &after, stream[5]));
	FILE_TRY(cuFileDriverClose());
	atomic_store(gate, 1);
	TRY(cuStreamSynchronize(stream[5]));
	printf("closed %zd\n", after);
	return 0;
}
