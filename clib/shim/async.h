/* Stream I/O, for cufile_local.c. */
#ifndef CULVERT_ASYNC_H
#define CULVERT_ASYNC_H

#include <stdbool.h>
#include <stdint.h>

#include "../include/cufile.h"

/* culvert_in_stream does the transfer of cuFileReadAsync's or cuFileWriteAsync's
 * arguments, ordered with the stream. */
CUfileError_t culvert_in_stream(bool write, const uint64_t *args);

#endif
