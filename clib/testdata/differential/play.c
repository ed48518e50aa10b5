/*
 * Plays the cases of package cufiletest on a libcufile, NVIDIA's or ours, and
 * writes down what every call answered and what it left in memory and file.
 *
 *	play LIBRARY CASES DISK SHM OUT
 *
 * LIBRARY is loaded by that path. CASES is what "go run ./clib/differential
 * cases" writes. Files are made in DISK and, for cases that say so, in SHM. OUT
 * becomes JSON of the form that package cufiletest reads.
 *
 * The cases are played by a child. Where one kills it, or takes longer than
 * half a minute, that is the outcome of the case, and another child goes on
 * with the next.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "play.h"

struct engine engine;

static struct {
	struct item *cases;
	int count;
	char suite[32];
} table;

void die(const char *format, ...)
{
	va_list ap;
	va_start(ap, format);
	vfprintf(stderr, format, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(1);
}

/* grow makes room for one more of n things, in powers of two. */
static void *grow(void *list, int n, size_t size)
{
	if (n & (n - 1))
		return list;
	list = realloc(list, (n ? 2 * (size_t)n : 1) * size);
	if (!list)
		die("no memory");
	return list;
}

static void read_line(char *line)
{
	struct item *c = table.count ? &table.cases[table.count - 1] : NULL;
	if (sscanf(line, "suite %31s", table.suite) == 1)
		return;
	if (strncmp(line, "case ", 5) == 0) {
		table.cases = grow(table.cases, table.count, sizeof *c);
		c = &table.cases[table.count++];
		memset(c, 0, sizeof *c);
		if (sscanf(line, "case %127s %7s %lld %d %15s %zu", c->name, c->place, &c->size, &c->flags, c->kind, &c->memory) != 6)
			die("bad case: %s", line);
	} else if (c && strncmp(line, "hole ", 5) == 0) {
		struct range *r;
		c->holes = grow(c->holes, c->hole_count, sizeof *r);
		r = &c->holes[c->hole_count++];
		if (sscanf(line, "hole %lld %lld", &r->off, &r->len) != 2)
			die("bad hole: %s", line);
	} else if (c && strncmp(line, "step ", 5) == 0) {
		struct step *s;
		c->steps = grow(c->steps, c->step_count, sizeof *s);
		s = &c->steps[c->step_count++];
		if (sscanf(line, "step %31s %31s %15s %lld %llu %d %zu %lld %lld %d", s->label, s->call, s->fd, &s->at, &s->wild,
			   &s->null, &s->len, &s->off, &s->buf, &s->succeeds) != 10)
			die("bad step: %s", line);
	} else {
		die("bad line: %s", line);
	}
}

static void read_cases(const char *path)
{
	char line[1024];
	FILE *f = fopen(path, "r");
	if (!f)
		die("%s: %s", path, strerror(errno));
	while (fgets(line, sizeof line, f))
		read_line(line);
	fclose(f);
}

static void *need(void *lib, const char *name)
{
	void *p = dlsym(lib, name);
	if (!p)
		die("%s", dlerror());
	return p;
}

static void load(const char *path)
{
	void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!lib)
		die("%s", dlerror());
	engine.open = need(lib, "cuFileDriverOpen");
	engine.version = need(lib, "cuFileGetVersion");
	engine.reg = need(lib, "cuFileHandleRegister");
	engine.dereg = need(lib, "cuFileHandleDeregister");
	engine.buf_reg = need(lib, "cuFileBufRegister");
	engine.buf_dereg = need(lib, "cuFileBufDeregister");
	engine.read = need(lib, "cuFileRead");
	engine.write = need(lib, "cuFileWrite");
	engine.ours = dlsym(lib, "culvert_marker") != NULL;
}

/* describe writes what the record says about engine and machine. */
static void describe(FILE *out)
{
	struct utsname u;
	CUdevice dev;
	CUcontext ctx;
	char name[128] = "";
	int version = 0, driver = 0;
	size_t memory = 0;
	if (cuInit(0) || cuDeviceGet(&dev, 0) || cuDevicePrimaryCtxRetain(&ctx, dev) || cuCtxSetCurrent(ctx))
		die("no GPU");
	cuDeviceGetName(name, sizeof name, dev);
	cuDeviceTotalMem(&memory, dev);
	cuDriverGetVersion(&driver);
	CUfileError_t e = engine.open();
	if (e.err)
		die("cuFileDriverOpen: %d", (int)e.err);
	engine.version(&version);
	uname(&u);
	fprintf(out, "\t\"engine\": \"%s %d.%d\",\n", engine.ours ? "culvert, as libcufile" : "libcufile", version / 1000, version % 1000 / 10);
	fprintf(out, "\t\"driver\": \"CUDA %d.%d\",\n", driver / 1000, driver % 1000 / 10);
	fprintf(out, "\t\"device\": {\"index\": 0, \"name\": \"%s\", \"memory\": %zu},\n", name, memory);
	fprintf(out, "\t\"kernel\": \"%s\",\n", u.release);
}

/* What a child tells its parent, a line each. */
static const char begun[] = "begun", ended[] = "ended";

/* The exit status of a child that found the library confused by what came
 * before: the case is to be played again, first in a new child. */
enum { AGAIN = 18, PATIENCE = 30 };

static void child(int first, const char *disk, const char *shm, FILE *out)
{
	struct outcomes o;
	describe(out);
	fprintf(out, "%s\n", begun);
	for (int i = first; i < table.count; i++) {
		struct item *c = &table.cases[i];
		alarm(PATIENCE);
		play(c, strcmp(c->place, "shm") == 0 ? shm : disk, &o);
		if (i > first && o.count == 1 && strcmp(o.text[0], "register: error 5028") == 0)
			_exit(AGAIN);
		fprintf(out, "\t\t\"%s\": [", c->name);
		for (int k = 0; k < o.count; k++)
			fprintf(out, "%s\"%s\"", k ? ", " : "", o.text[k]);
		fprintf(out, "]\n");
		fflush(out);
	}
	fprintf(out, "%s\n", ended);
	fflush(out);
	_exit(0);
}

/* A child that died told these lines before. */
struct told {
	char **lines;
	int count;
	int done;
};

static void listen_to(FILE *in, struct told *head, struct told *cases)
{
	char *line = NULL;
	size_t room = 0;
	int in_cases = 0;
	head->count = 0;
	while (getline(&line, &room, in) > 0) {
		line[strcspn(line, "\n")] = 0;
		struct told *t = in_cases ? cases : head;
		if (strcmp(line, begun) == 0) {
			in_cases = 1;
		} else if (strcmp(line, ended) == 0) {
			cases->done = 1;
		} else {
			t->lines = grow(t->lines, t->count, sizeof *t->lines);
			t->lines[t->count++] = strdup(line);
		}
	}
	free(line);
	if (!in_cases)
		die("the child could not begin");
}

static void note_death(struct told *cases, int status)
{
	char line[256];
	snprintf(line, sizeof line, "\t\t\"%s\": [\"died: %s %d\"]", table.cases[cases->count].name,
		 WIFSIGNALED(status) ? "signal" : "exit status", WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	fprintf(stderr, "%s\n", line);
	cases->lines = grow(cases->lines, cases->count, sizeof *cases->lines);
	cases->lines[cases->count++] = strdup(line);
}

static void play_all(const char *library, const char *disk, const char *shm, struct told *head, struct told *cases)
{
	while (!cases->done && cases->count < table.count) {
		int pipes[2], status = 0;
		if (pipe(pipes) != 0)
			die("pipe: %s", strerror(errno));
		pid_t pid = fork();
		if (pid < 0)
			die("fork: %s", strerror(errno));
		if (pid == 0) {
			close(pipes[0]);
			load(library);
			child(cases->count, disk, shm, fdopen(pipes[1], "w"));
		}
		close(pipes[1]);
		FILE *in = fdopen(pipes[0], "r");
		listen_to(in, head, cases);
		fclose(in);
		waitpid(pid, &status, 0);
		if (!cases->done && !(WIFEXITED(status) && WEXITSTATUS(status) == AGAIN))
			note_death(cases, status);
	}
}

int main(int argc, char **argv)
{
	struct told head = {0}, cases = {0};
	if (argc != 6) {
		fprintf(stderr, "usage: %s LIBRARY CASES DISK SHM OUT\n", argv[0]);
		return 2;
	}
	read_cases(argv[2]);
	play_all(argv[1], argv[3], argv[4], &head, &cases);
	FILE *out = fopen(argv[5], "w");
	if (!out)
		die("%s: %s", argv[5], strerror(errno));
	fprintf(out, "{\n");
	for (int i = 0; i < head.count; i++)
		fprintf(out, "%s\n", head.lines[i]);
	fprintf(out, "\t\"suite\": \"%s\",\n\t\"cases\": {\n", table.suite);
	for (int i = 0; i < cases.count; i++)
		fprintf(out, "%s%s\n", cases.lines[i], i + 1 < cases.count ? "," : "");
	fprintf(out, "\t}\n}\n");
	return fclose(out) != 0;
}
