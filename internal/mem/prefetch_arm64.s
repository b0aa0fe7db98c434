#include "textflag.h"

// func Prefetch(p unsafe.Pointer)
TEXT ·Prefetch(SB), NOSPLIT, $0-8
	MOVD p+0(FP), R0
	PRFM (R0), PLDL1KEEP
	RET

// func PrefetchLines(p unsafe.Pointer, n int)
TEXT ·PrefetchLines(SB), NOSPLIT, $0-16
	MOVD p+0(FP), R0
	MOVD n+8(FP), R1
	ADD  R0, R1, R1 // the end
	AND  $~63, R0, R0
	CMP  R1, R0
	BGE  done

loop:
	PRFM (R0), PLDL2KEEP
	ADD  $64, R0, R0
	CMP  R1, R0
	BLT  loop

done:
	RET
