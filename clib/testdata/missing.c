/* An unsupported call prints its name, once, and is the last error of the runtime. */
#include <stdio.h>

#include <cuda.h>
#include <cuda_runtime.h>

int cuGraphCreate(void *graph, unsigned flags);
int cudaGraphCreate(void *graph, unsigned flags);

/* What nvcc writes for kernel<<<1, 1>>>(): CUDA 12's form and CUDA 13's. */
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void *stream);
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream);
cudaError_t __cudaGetKernel(void **kernel, const void *entry);
cudaError_t __cudaLaunchKernel(void *kernel, dim3 grid, dim3 block, void **args, size_t shared, void *stream);
cudaError_t __cudaLaunchKernel_ptsz(void *kernel, dim3 grid, dim3 block, void **args, size_t shared, void *stream);

static void kernel(void)
{
}

static void launch(void)
{
	dim3 one = {1, 1, 1};
	size_t shared;
	void *stream;
	if (__cudaPushCallConfiguration(one, one, 0, NULL) == 0)
		__cudaPopCallConfiguration(&one, &one, &shared, &stream);
}

static void launch13(void)
{
	dim3 one = {1, 1, 1};
	void *handle = NULL;
	if (__cudaGetKernel(&handle, (const void *)kernel) == cudaSuccess && handle) {
		__cudaLaunchKernel(handle, one, one, NULL, 0, NULL);
		__cudaLaunchKernel_ptsz(handle, one, one, NULL, 0, NULL);
	}
}

int main(void)
{
	void *graph, *stub = NULL;
	CUdriverProcAddressQueryResult found;
	const void *table;
	CUuuid id = {{0}};
	for (int i = 0; i < 3; i++)
		printf("%d %d\n", cuGraphCreate(&graph, 0), cudaGraphCreate(&graph, 0));
	printf("last error %d", cudaGetLastError());
	printf(", then %d\n", cudaGetLastError());
	launch();
	printf("last error of a launch %d\n", cudaGetLastError());
	launch13();
	printf("last error of a launch %d\n", cudaGetLastError());
	cuGetProcAddress("cuGraphCreate", &stub, 13000, 0, &found);
	printf("stub %d %d\n", found, stub == (void *)cuGraphCreate);
	printf("table %d\n", cuGetExportTable(&table, &id));
	cuGetExportTable(&table, &id);
	return 0;
}
