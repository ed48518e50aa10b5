#include "textflag.h"

// func fence()
TEXT ·fence(SB), NOSPLIT, $0-0
	DSB $14 // st: stores, full system
	RET
