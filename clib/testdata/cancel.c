/*
 * A thread is cancelled before the first call, while the Go core is loaded.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include <cufile.h>

static int ask(void)
{
	int version = 0;
	return (int)cuFileGetVersion(&version).err;
}

static void *cancelled(void *arg)
{
	pthread_cancel(pthread_self());
	int err = ask();
	int state;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	printf("first call %d\n", err);
	pthread_setcancelstate(state, NULL);
	pthread_testcancel();
	puts("not reached");
	return arg;
}

int main(void)
{
	pthread_t t;
	void *result = NULL;
	alarm(300); /* a hang is a failure */
	pthread_create(&t, NULL, cancelled, NULL);
	pthread_join(t, &result);
	printf("cancelled %d\n", result == PTHREAD_CANCELED);
	fflush(stdout);
	printf("call of another thread %d\n", ask());
	return 0;
}
