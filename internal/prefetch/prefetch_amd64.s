#include "textflag.h"

// func Line(p unsafe.Pointer)
TEXT ·Line(SB), NOSPLIT, $0-8
	MOVQ p+0(FP), AX
	PREFETCHT0 (AX)
	RET

// func Lines(p unsafe.Pointer, n int)
TEXT ·Lines(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), AX
	MOVQ n+8(FP), CX
	ADDQ AX, CX     // the end
	ANDQ $~63, AX
	CMPQ AX, CX
	JGE  done

loop:
	PREFETCHT1 (AX)
	ADDQ $64, AX
	CMPQ AX, CX
	JLT  loop

done:
	RET
