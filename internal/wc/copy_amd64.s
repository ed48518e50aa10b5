#include "textflag.h"

// func fence()
TEXT ·fence(SB), NOSPLIT, $0-0
	SFENCE
	RET

// func loadFence()
TEXT ·loadFence(SB), NOSPLIT, $0-0
	MFENCE
	RET

// func storeStream(dst, src *byte, n int)
//
// The first and the last 32 bytes are stored as they lie; what is between
// begins at an aligned address and goes past the caches.
TEXT ·storeStream(SB), NOSPLIT, $0-24
	MOVQ    dst+0(FP), DI
	MOVQ    src+8(FP), SI
	MOVQ    n+16(FP), CX
	VMOVDQU (SI), Y0
	VMOVDQU -32(SI)(CX*1), Y1
	LEAQ    -32(DI)(CX*1), R8 // where the last 32 bytes go
	VMOVDQU Y0, (DI)
	LEAQ    32(DI), AX
	ANDQ    $~31, AX
	SUBQ    DI, SI            // AX+SI is the source of AX
	LEAQ    -96(R8), R9

blocks:
	CMPQ     AX, R9
	JGE      rest
	VMOVDQU  (AX)(SI*1), Y2
	VMOVDQU  32(AX)(SI*1), Y3
	VMOVDQU  64(AX)(SI*1), Y4
	VMOVDQU  96(AX)(SI*1), Y5
	VMOVNTDQ Y2, (AX)
	VMOVNTDQ Y3, 32(AX)
	VMOVNTDQ Y4, 64(AX)
	VMOVNTDQ Y5, 96(AX)
	ADDQ     $128, AX
	JMP      blocks

rest:
	CMPQ     AX, R8
	JGE      last
	VMOVDQU  (AX)(SI*1), Y2
	VMOVNTDQ Y2, (AX)
	ADDQ     $32, AX
	JMP      rest

last:
	VMOVDQU Y1, (R8)
	VZEROUPPER
	RET

// func loadStream(dst, src *byte, n int)
TEXT ·loadStream(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX

four:
	CMPQ      CX, $256
	JLT       one
	VMOVNTDQA (SI), Y0
	VMOVNTDQA 32(SI), Y1
	VMOVNTDQA 64(SI), Y2
	VMOVNTDQA 96(SI), Y3
	VMOVNTDQA 128(SI), Y4
	VMOVNTDQA 160(SI), Y5
	VMOVNTDQA 192(SI), Y6
	VMOVNTDQA 224(SI), Y7
	VMOVDQU   Y0, (DI)
	VMOVDQU   Y1, 32(DI)
	VMOVDQU   Y2, 64(DI)
	VMOVDQU   Y3, 96(DI)
	VMOVDQU   Y4, 128(DI)
	VMOVDQU   Y5, 160(DI)
	VMOVDQU   Y6, 192(DI)
	VMOVDQU   Y7, 224(DI)
	ADDQ      $256, SI
	ADDQ      $256, DI
	SUBQ      $256, CX
	JMP       four

one:
	TESTQ     CX, CX
	JZ        done
	VMOVNTDQA (SI), Y0
	VMOVNTDQA 32(SI), Y1
	VMOVDQU   Y0, (DI)
	VMOVDQU   Y1, 32(DI)
	ADDQ      $64, SI
	ADDQ      $64, DI
	SUBQ      $64, CX
	JMP       one

done:
	VZEROUPPER
	RET

// func loadLine(dst *[64]byte, src *byte)
TEXT ·loadLine(SB), NOSPLIT, $0-16
	MOVQ      dst+0(FP), DI
	MOVQ      src+8(FP), SI
	ANDQ      $~63, SI
	VMOVNTDQA (SI), Y0
	VMOVNTDQA 32(SI), Y1
	VMOVDQU   Y0, (DI)
	VMOVDQU   Y1, 32(DI)
	VZEROUPPER
	RET
