/* What the cases that are written in C share. */
#include <sys/types.h>
#include <unistd.h>

#include "play.h"

/* F is a function of the library that is tried. */
#define F(name) ((__typeof__(&name))symbol(#name))

/* say notes an outcome: the function, then what was asked and answered. */
void say(const char *function, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* STATUS notes a call that returns a status. */
#define STATUS(name, what, ...) say(#name, "%s%s%d", what, *what ? " = " : "", (int)F(name)(__VA_ARGS__).err)

/* say_count notes what a read or a write returned. */
void say_count(const char *function, const char *what, ssize_t n);

/* path_of is a name in the directory of the cases. */
void path_of(char *path, size_t room, const char *name);

/* handle_of registers a descriptor, and notes that. */
CUfileHandle_t handle_of(int fd);

/* scratch is a file of n bytes, each 7. */
int scratch(size_t n);
