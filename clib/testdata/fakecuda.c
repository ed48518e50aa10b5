/* A libcuda.so.1 with the functions that the shim calls, which the shim takes for
 * NVIDIA's: for ordered.c. */
void *fake_context;
int fake_busy;
long fake_queries, fake_waits, fake_sets;
void (*fake_on_wait)(void);

int cuCtxGetCurrent(void **ctx)
{
	*ctx = fake_context;
	return 0;
}

int cuCtxSetCurrent(void *ctx)
{
	fake_context = ctx;
	fake_sets++;
	return 0;
}

int cuStreamQuery(void *stream)
{
	fake_queries++;
	return stream || fake_busy ? 600 : 0; /* CUDA_ERROR_NOT_READY */
}

int cuStreamSynchronize(void *stream)
{
	(void)stream;
	fake_waits++;
	if (fake_on_wait)
		fake_on_wait();
	fake_busy = 0;
	return 0;
}
