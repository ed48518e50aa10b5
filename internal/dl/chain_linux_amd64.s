//go:build !nodl

#include "textflag.h"

GLOBL ·chainPC(SB), NOPTR, $8
DATA ·chainPC(SB)/8, $·chainC(SB)

// chainC is void chainC(chainFrame *f) by the System V rules: it is called by C's
// side of a transition and calls C. At its entry the stack is 8 off a multiple
// of 16; three words put that right for the calls.
TEXT ·chainC(SB), NOSPLIT|NOFRAME, $0-0
	PUSHQ BX
	PUSHQ R12
	PUSHQ R13
	MOVQ  DI, BX         // f
	MOVQ  0(BX), R12     // f.left
	LEAQ  16(BX), R13    // &f.steps[0]

next:
	MOVQ 8(R13), DI
	MOVQ 16(R13), SI
	MOVQ 24(R13), DX
	MOVQ 32(R13), CX
	MOVQ 40(R13), R8
	MOVQ 48(R13), R9
	MOVQ 0(R13), AX
	CALL AX
	TESTL AX, AX
	JNE  done
	ADDQ $56, R13
	DECQ R12
	JNE  next

done:
	MOVQ R12, 0(BX)
	MOVL AX, 8(BX)
	POPQ R13
	POPQ R12
	POPQ BX
	RET
