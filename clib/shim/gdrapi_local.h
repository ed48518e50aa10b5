/*
 * libgdrapi.so.2: GDRCopy's library on package gdrcopy, over gdrdrv or without a kernel
 * module. gdrapi.c is generated and calls the Go core (internal/gdrapi). A gdr_t and a
 * gdr_mh_t are handles of the Go core, not pointers.
 */
#ifndef CULVERT_GDRAPI_LOCAL_H
#define CULVERT_GDRAPI_LOCAL_H

#include <errno.h>
#include <sys/types.h>

#include "../include/gdrapi.h"
#include "gocore.h"

ssize_t culvert_gdr_open(void);

#endif
