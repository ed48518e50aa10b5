/* What all parts share. */
#ifndef PLAY_H
#define PLAY_H

#include <cuda.h>
#include <cufile.h>

struct range {
	long long off, len;
};

/* A call of a case. The names are those of package cufiletest. */
struct step {
	char label[32]; /* how the call is named in outcomes */
	char call[32];
	char fd[16];
	long long at;
	unsigned long long wild;
	int null;
	size_t len;
	long long off, buf;
	int succeeds; /* or is expected to fail */
};

struct item {
	char name[128], place[8], kind[16];
	long long size;
	int flags;
	size_t memory;
	struct range *holes;
	int hole_count;
	struct step *steps;
	int step_count;
};

struct outcomes {
	char text[64][160];
	int count;
};

/* The functions of the library that is tried. */
extern struct engine {
	CUfileError_t (*open)(void);
	CUfileError_t (*version)(int *);
	CUfileError_t (*reg)(CUfileHandle_t *, CUfileDescr_t *);
	void (*dereg)(CUfileHandle_t);
	CUfileError_t (*buf_reg)(const void *, size_t, int);
	CUfileError_t (*buf_dereg)(const void *);
	ssize_t (*read)(CUfileHandle_t, void *, size_t, off_t, off_t);
	ssize_t (*write)(CUfileHandle_t, const void *, size_t, off_t, off_t);
	int ours;
} engine;

void die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* symbol is a function of the library by name. */
void *symbol(const char *name);
int has(const char *name);

/* A case written in C. */
struct call_case {
	const char *name;
	void (*play)(void);
	const char *needs; /* a function that older libraries lack, or NULL */
};

/* Each up to one without a name. */
extern const struct call_case queue_cases[], life_cases[], newer_cases[];
const struct call_case *call_case(int i);    /* or NULL, when there are no more */
void make_calls(const struct call_case *c, const char *directory, struct outcomes *o);

/* play plays one case with its file in a directory. */
void play(const struct item *c, const char *directory, struct outcomes *o);

#endif
