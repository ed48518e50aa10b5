/* Counts its threads before and after the first call of the libraries. */
#include <stdio.h>
#include <string.h>

#include <cuda.h>
#include <cuda_runtime.h>
#include <cufile.h>

static int threads(void)
{
	char line[256];
	int n = -1;
	FILE *f = fopen("/proc/self/status", "r");
	while (f && fgets(line, sizeof line, f))
		sscanf(line, "Threads: %d", &n);
	if (f)
		fclose(f);
	return n;
}

/* How many mappings of executable code the core has: one per copy of it. */
static int cores(void)
{
	char line[4096];
	int n = 0;
	FILE *f = fopen("/proc/self/maps", "r");
	while (f && fgets(line, sizeof line, f))
		n += strstr(line, "r-xp") && strstr(line, "libculvert.so");
	if (f)
		fclose(f);
	return n;
}

/* Keeps the linker from dropping libraries that nothing refers to. */
void *volatile keep[3];

int main(void)
{
	keep[0] = (void *)cuFileRead, keep[1] = (void *)cuInit, keep[2] = (void *)cudaMalloc;
	const char *name;
	cuGetErrorName(CUDA_ERROR_NOT_READY, &name); /* needs no core */
	printf("before: %d thread, %d core, %s, %s\n", threads(), cores(), name, cudaGetErrorName(cudaErrorNotReady));

	int version = 0, count = 0;
	void *p;
	cuFileGetVersion(&version);
	cuInit(0);
	cudaGetDeviceCount(&count);
	cudaMalloc(&p, 100);
	printf("after: %s, %d core, version %d, %d device\n", threads() > 1 ? "threads" : "no threads", cores(), version, count);
	return 0;
}
