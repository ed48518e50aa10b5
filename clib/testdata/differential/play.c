/*
 * Runs the cases of package cufiletest on a libcufile, NVIDIA's or ours, and records
 * the result of every call and its effects on memory and file.
 *
 *	play LIBRARY CASES DISK SHM OUT [SECONDS]
 *
 * LIBRARY is loaded by that path. CASES is what "go run ./clib/differential
 * cases" writes. Files are made in DISK and, for cases that say so, in SHM. OUT
 * becomes JSON of the form that package cufiletest reads. After SECONDS no other child
 * begins, and the cases that are left are missing.
 *
 * A child runs the cases. If one kills it, or takes longer than 15 seconds, that is
 * the outcome of the case, and another child continues with the next.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
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

static void *library;

void *symbol(const char *name)
{
	void *p = dlsym(library, name);
	if (!p)
		die("%s", dlerror());
	return p;
}

/* The functions that the library lacks. The parent, which does not load it, learns
 * them from its first child. */
static struct lacking {
	char names[16][64];
	int count;
} *lacking;

int has(const char *name)
{
	for (int i = 0; i < lacking->count; i++)
		if (strcmp(lacking->names[i], name) == 0)
			return 0;
	if (!library || dlsym(library, name))
		return 1;
	if (lacking->count == (int)(sizeof lacking->names / sizeof *lacking->names))
		die("too many functions are missing");
	snprintf(lacking->names[lacking->count++], sizeof lacking->names[0], "%s", name);
	return 0;
}

static void load(const char *path)
{
	library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!library)
		die("%s", dlerror());
	engine.open = symbol("cuFileDriverOpen");
	engine.version = symbol("cuFileGetVersion");
	engine.reg = symbol("cuFileHandleRegister");
	engine.dereg = symbol("cuFileHandleDeregister");
	engine.buf_reg = symbol("cuFileBufRegister");
	engine.buf_dereg = symbol("cuFileBufDeregister");
	engine.read = symbol("cuFileRead");
	engine.write = symbol("cuFileWrite");
	engine.ours = dlsym(library, "culvert_marker") != NULL;
}

static CUdevice use_gpu(void)
{
	CUdevice dev;
	CUcontext ctx;
	if (cuInit(0) || cuDeviceGet(&dev, 0) || cuDevicePrimaryCtxRetain(&ctx, dev) || cuCtxSetCurrent(ctx))
		die("no GPU");
	return dev;
}

static void open_driver(void)
{
	CUfileError_t e = engine.open();
	if (e.err)
		die("cuFileDriverOpen: %d", (int)e.err);
}

/* describe writes what the record says about engine and machine. */
static void describe(CUdevice dev, FILE *out)
{
	struct utsname u;
	char name[128] = "";
	int version = 0, driver = 0;
	size_t memory = 0;
	cuDeviceGetName(name, sizeof name, dev);
	cuDeviceTotalMem(&memory, dev);
	cuDriverGetVersion(&driver);
	engine.version(&version);
	uname(&u);
	fprintf(out, "\t\"engine\": \"%s %d.%d\",\n", engine.ours ? "culvert, as libcufile" : "libcufile", version / 1000, version % 1000 / 10);
	fprintf(out, "\t\"driver\": \"CUDA %d.%d\",\n", driver / 1000, driver % 1000 / 10);
	fprintf(out, "\t\"device\": {\"index\": 0, \"name\": \"%s\", \"memory\": %zu},\n", name, memory);
	fprintf(out, "\t\"kernel\": \"%s\",\n", u.release);
}

/* What a child reports to its parent, a line each. */
static const char begun[] = "begun", ended[] = "ended";

/* Exit statuses of a child. AGAIN: the library was confused by what came before,
 * the case is to be played again, first in a new child. NEXT: what follows wants
 * a new child in any case. */
enum { AGAIN = 18, NEXT = 19, PATIENCE = 15 };

/* The cases of the table come first, then those written in C. */
static int total(void)
{
	int n = table.count;
	while (call_case(n - table.count))
		n++;
	return n;
}

static const char *case_name(int i)
{
	return i < table.count ? table.cases[i].name : call_case(i - table.count)->name;
}

/* The outcomes of the case that is being played. The parent sees them, too: what
 * came before a death is worth knowing. */
static struct outcomes *now;

static void tell(FILE *out, int i)
{
	fprintf(out, "\t\t\"%s\": [", case_name(i));
	for (int k = 0; k < now->count; k++)
		fprintf(out, "%s\"%s\"", k ? ", " : "", now->text[k]);
	fprintf(out, "]\n");
	fflush(out);
}

static void play_table(int first, const char *disk, const char *shm, FILE *out)
{
	CUdevice dev = use_gpu();
	open_driver();
	describe(dev, out);
	fprintf(out, "%s\n", begun);
	for (int i = first; i < table.count; i++) {
		struct item *c = &table.cases[i];
		alarm(PATIENCE);
		play(c, strcmp(c->place, "shm") == 0 ? shm : disk, now);
		if (i > first && now->count == 1 && strcmp(now->text[0], "register: error 5028") == 0)
			_exit(AGAIN);
		tell(out, i);
	}
}

static void play_calls(int i, const char *disk, FILE *out)
{
	use_gpu();
	fprintf(out, "%s\n", begun);
	fflush(out);
	alarm(PATIENCE);
	make_calls(call_case(i - table.count), disk, now);
	tell(out, i);
}

/* child plays cases until it has to leave the rest to another. */
static void child(int first, const char *disk, const char *shm, FILE *out)
{
	int next = table.count;
	if (first < table.count)
		play_table(first, disk, shm, out);
	else
		play_calls(first, disk, out), next = first + 1;
	if (next < total())
		_exit(NEXT);
	fprintf(out, "%s\n", ended);
	fflush(out);
	_exit(0);
}

/* The lines that a child has reported. */
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
	while (getline(&line, &room, in) > 0) {
		line[strcspn(line, "\n")] = 0;
		struct told *t = in_cases ? cases : head;
		if (!in_cases && head->done)
			t = NULL;
		if (strcmp(line, begun) == 0) {
			in_cases = head->done = 1;
		} else if (strcmp(line, ended) == 0) {
			cases->done = 1;
		} else if (t) {
			t->lines = grow(t->lines, t->count, sizeof *t->lines);
			t->lines[t->count++] = strdup(line);
		}
	}
	free(line);
	if (!in_cases)
		die("the child could not begin");
}

/* note_death adds the death of the child to the outcomes of the case. */
static void note_death(struct told *cases, int status)
{
	char *line = NULL;
	size_t size = 0;
	if (now->count < (int)(sizeof now->text / sizeof *now->text))
		snprintf(now->text[now->count++], sizeof now->text[0], "died: %s %d", WIFSIGNALED(status) ? "signal" : "exit status",
			 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	FILE *text = open_memstream(&line, &size);
	tell(text, cases->count);
	fclose(text);
	line[strcspn(line, "\n")] = 0;
	fprintf(stderr, "%s\n", line);
	cases->lines = grow(cases->lines, cases->count, sizeof *cases->lines);
	cases->lines[cases->count++] = line;
}

/* look_up fills the list of missing functions. */
static void look_up(const char *path)
{
	pid_t pid = fork();
	if (pid < 0)
		die("fork: %s", strerror(errno));
	if (pid == 0) {
		load(path);
		total();
		_exit(0);
	}
	int status = 0;
	waitpid(pid, &status, 0);
	if (status != 0)
		die("%s cannot be used", path);
}

static void *shared(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		die("mmap: %s", strerror(errno));
	return p;
}

static void play_all(const char *library, const char *disk, const char *shm, time_t end, struct told *head, struct told *cases)
{
	while (!cases->done && cases->count < total() && time(NULL) < end) {
		int pipes[2], status = 0;
		memset(now, 0, sizeof *now);
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
		if (!cases->done && !(WIFEXITED(status) && (WEXITSTATUS(status) == AGAIN || WEXITSTATUS(status) == NEXT)))
			note_death(cases, status);
	}
}

int main(int argc, char **argv)
{
	struct told head = {0}, cases = {0};
	if (argc < 6 || argc > 7) {
		fprintf(stderr, "usage: %s LIBRARY CASES DISK SHM OUT [SECONDS]\n", argv[0]);
		return 2;
	}
	now = shared(sizeof *now);
	lacking = shared(sizeof *lacking);
	read_cases(argv[2]);
	look_up(argv[1]);
	play_all(argv[1], argv[3], argv[4], time(NULL) + (argc > 6 ? atol(argv[6]) : 3600), &head, &cases);
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
