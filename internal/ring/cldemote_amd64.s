#include "textflag.h"

// func cldemoteLines(p *byte, n int)
//
// CLDEMOTE (0F 1C /0) on every line. Processors without it execute a NOP.
TEXT ·cldemoteLines(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), DI
	MOVQ n+8(FP), CX
	ADDQ DI, CX
	ANDQ $~63, DI

next:
	BYTE $0x0F; BYTE $0x1C; BYTE $0x07 // CLDEMOTE (DI)
	ADDQ $64, DI
	CMPQ DI, CX
	JB   next
	RET
