/* A program that takes its alternate signal stack away before it ends, as Python does. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include <cuda.h>

int main(void)
{
	stack_t own = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16}, none = {.ss_flags = SS_DISABLE};
	if (sigaltstack(&own, NULL) || cuInit(0) || sigaltstack(&none, NULL))
		return 1;
	puts("ready");
	fflush(stdout);
	getchar();
	return 0;
}
