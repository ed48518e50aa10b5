/*
 * A program that opens the libraries at run time, closes and opens them again, has
 * signal handlers, and gets faults.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include <cufile.h>

static volatile sig_atomic_t alarms, users;
static volatile sig_atomic_t sent; /* all signals that threads shall get */
static sigjmp_buf back;

static void on_signal(int sig)
{
	if (sig == SIGALRM)
		alarms++;
	else
		users++;
}

static void on_fault(int sig)
{
	(void)sig;
	siglongjmp(back, 1);
}

static CUfileError_t (*open_driver)(void);
static CUfileError_t (*get_version)(int *);

static int load(void)
{
	void *lib = dlopen("libcufile.so.0", RTLD_NOW | RTLD_LOCAL);
	if (!lib) {
		puts(dlerror());
		return 0;
	}
	*(void **)&open_driver = dlsym(lib, "cuFileDriverOpen");
	*(void **)&get_version = dlsym(lib, "cuFileGetVersion");
	int version = 0;
	int ok = open_driver && get_version && get_version(&version).err == CU_FILE_SUCCESS && version == 1150;
	return dlclose(lib) == 0 && ok;
}

static void *hammer(void *arg)
{
	int version = 0;
	(void)arg;
	for (int i = 0; i < 20000 || !sent; i++)
		get_version(&version);
	return NULL;
}

// An address that the compiler does not recognise as a mistake.
static volatile char *volatile nowhere = (volatile char *)16;

int main(int argc, char **argv)
{
	struct sigaction sa;
	struct itimerval often = {{0, 1000}, {0, 1000}};
	(void)argc, (void)argv;
	memset(&sa, 0, sizeof sa);
	sa.sa_handler = on_signal; /* without SA_ONSTACK, as most programs have it */
	sigaction(SIGALRM, &sa, NULL);
	sigaction(SIGUSR1, &sa, NULL);
	printf("load %d\n", load());
	printf("load again %d\n", load());
	printf("open %d\n", (int)open_driver().err);

	setitimer(ITIMER_REAL, &often, NULL);
	pthread_t t[4];
	for (int i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, hammer, NULL);
	for (int i = 0; i < 200; i++) {
		pthread_kill(t[i % 4], SIGUSR1);
		usleep(50);
	}
	sent = 1;
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	memset(&often, 0, sizeof often);
	setitimer(ITIMER_REAL, &often, NULL);
	printf("signals arrived: %d %d\n", users > 0, alarms >= 0);

	sa.sa_handler = on_fault;
	sa.sa_flags = SA_NODEFER;
	sigaction(SIGSEGV, &sa, NULL);
	if (sigsetjmp(back, 1) == 0) {
		*nowhere = 1;
		puts("not reached");
	} else {
		puts("the program's own fault is its own");
	}
	printf("load after that %d\n", load());
	signal(SIGSEGV, SIG_DFL);
	fflush(stdout);
	*nowhere = 1;
	return 0;
}
