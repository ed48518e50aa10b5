/* An unsupported call prints its name, once. */
#include <stdio.h>

#include <cuda.h>
#include <cuda_runtime.h>

int cuGraphCreate(void *graph, unsigned flags);
int cudaGraphCreate(void *graph, unsigned flags);

int main(void)
{
	void *graph;
	for (int i = 0; i < 3; i++)
		printf("%d %d\n", cuGraphCreate(&graph, 0), cudaGraphCreate(&graph, 0));
	return 0;
}
