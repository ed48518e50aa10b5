/* Stream I/O, for cufile_local.c. */
#ifndef CULVERT_ASYNC_H
#define CULVERT_ASYNC_H

#include <stdbool.h>
#include <stdint.h>

#include "../include/cufile.h"

/* culvert_in_stream does what the arguments of cuFileReadAsync say, in the order
 * of the stream. */
CUfileError_t culvert_in_stream(bool write, const uint64_t *args);

#endif
