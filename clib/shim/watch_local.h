/* What the generated watch.c needs: a libcufile that forwards every call to another one
 * and records it. */
#include "../include/cufile.h"
#include "gocore.h"

#undef cuFileDriverClose

/* watch_find returns the engine's function of a name, looked up once; NULL if it has
 * none. */
void *watch_find(void *_Atomic *found, const char *name);

/* watch_status counts a call and, if it failed, its code; it returns the status. */
CUfileError_t watch_status(const char *function, CUfileError_t status);

/* watch_call counts a call. */
void watch_call(void);
