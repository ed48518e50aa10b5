/*
 * The way of a cache of key-value blocks: streams are registered with fixed arguments,
 * each stream has one buffer, and the blocks pass through it in the order of the
 * stream. 96 blocks of 2 MiB on 4 streams are stored, then loaded and compared.
 *
 *	blocks FILE
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cuda_runtime.h>
#include <cufile.h>

enum { BLOCKS = 96, STREAMS = 4, ALL_FIXED = 15 };
static const size_t BLOCK = 2 << 20;

#define TRY(call)                                             \
	do {                                                  \
		int code = (int)(call);                       \
		if (code) {                                   \
			printf("%s: %d\n", #call, code);      \
			exit(1);                              \
		}                                             \
	} while (0)
#define FILE_TRY(call) TRY((call).err)

static cudaStream_t stream[STREAMS];
static void *dev[STREAMS];
static size_t size[BLOCKS];
static off_t offset[BLOCKS], zero;
static ssize_t done[BLOCKS];
static unsigned char *loaded; /* the first and last byte of each block */

static int pattern(int block)
{
	return block * 37 % 251 + 1;
}

static int count(const char *what)
{
	int good = 0;
	for (int s = 0; s < STREAMS; s++)
		TRY(cudaStreamSynchronize(stream[s]));
	for (int i = 0; i < BLOCKS; i++)
		good += done[i] == (ssize_t)BLOCK;
	printf("%s %d blocks\n", what, good);
	return good;
}

int main(int argc, char **argv)
{
	CUfileDescr_t d = {.type = CU_FILE_HANDLE_TYPE_OPAQUE_FD};
	CUfileHandle_t file;
	if (argc != 2)
		return 2;
	d.handle.fd = open(argv[1], O_CREAT | O_RDWR, 0600);
	FILE_TRY(cuFileDriverOpen());
	FILE_TRY(cuFileHandleRegister(&file, &d));
	TRY(cudaMallocHost((void **)&loaded, 2 * BLOCKS));
	for (int s = 0; s < STREAMS; s++) {
		TRY(cudaStreamCreate(&stream[s]));
		FILE_TRY(cuFileStreamRegister((CUstream)stream[s], ALL_FIXED));
		TRY(cudaMalloc(&dev[s], BLOCK));
		FILE_TRY(cuFileBufRegister(dev[s], BLOCK, 0));
	}
	for (int i = 0; i < BLOCKS; i++) {
		int s = i % STREAMS;
		size[i] = BLOCK;
		offset[i] = (off_t)(i * BLOCK);
		TRY(cudaMemsetAsync(dev[s], pattern(i), BLOCK, stream[s]));
		FILE_TRY(cuFileWriteAsync(file, dev[s], &size[i], &offset[i], &zero, &done[i], (CUstream)stream[s]));
		size[i] = 0; /* it was read by the call, because it is fixed */
	}
	count("stored");
	memset(done, 0, sizeof done);
	for (int i = BLOCKS - 1; i >= 0; i--) {
		int s = i % STREAMS;
		size[i] = BLOCK;
		FILE_TRY(cuFileReadAsync(file, dev[s], &size[i], &offset[i], &zero, &done[i], (CUstream)stream[s]));
		TRY(cudaMemcpyAsync(loaded + 2 * i, dev[s], 1, cudaMemcpyDeviceToHost, stream[s]));
		TRY(cudaMemcpyAsync(loaded + 2 * i + 1, (char *)dev[s] + BLOCK - 1, 1, cudaMemcpyDeviceToHost, stream[s]));
	}
	count("loaded");
	int good = 0;
	for (int i = 0; i < BLOCKS; i++)
		good += loaded[2 * i] == pattern(i) && loaded[2 * i + 1] == pattern(i);
	printf("%d agree\n", good);
	for (int s = 0; s < STREAMS; s++) {
		FILE_TRY(cuFileStreamDeregister((CUstream)stream[s]));
		TRY(cudaStreamDestroy(stream[s]));
	}
	FILE_TRY(cuFileDriverClose());
	return 0;
}
