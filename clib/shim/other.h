/* Another libcufile in the process. */
#ifndef CULVERT_OTHER_H
#define CULVERT_OTHER_H

#include <stdbool.h>
#include <stdint.h>

#include "../include/cufile.h"

/* culvert_close_other closes another libcufile that is open, for a program that has not
 * opened this one. It returns false if there is none. */
bool culvert_close_other(int64_t *value);

/* culvert_file_word is both codes in one word, as the Go core returns them. */
static inline int64_t culvert_file_word(CUfileError_t e)
{
	return (int64_t)((uint64_t)(uint32_t)e.cu_err << 32 | (uint32_t)e.err);
}

#endif
