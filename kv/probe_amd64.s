//go:build !race

#include "textflag.h"
#include "go_asm.h"
#include "probe_amd64.h"

// func matchAVX2(bucket unsafe.Pointer, want uint64) uint64
TEXT ·matchAVX2(SB), NOSPLIT, $0-24
	MOVQ bucket+0(FP), BX
	MOVQ want+8(FP), AX
	MATCH_LAST
	MOVQ AX, ret+16(FP)
	RET

// func scanAVX2(p *probe, hashes *uint64, slots *slot, n int)
TEXT ·scanAVX2(SB), NOSPLIT, $0-32
	MOVQ p+0(FP), R8
	MOVQ hashes+8(FP), SI
	MOVQ slots+16(FP), DI
	MOVQ n+24(FP), R9
	MOVQ probe_last(R8), R10 // of a record to ask for
	TESTQ R9, R9
	JZ done

loop:
	MOVQ (SI), BX
	BUCKET(0)
	MATCH_AVX2
	TESTQ AX, AX
	JZ none
	TZCNTQ AX, AX
	LEAQ (BX)(AX*8), BX
	MOVQ BX, (DI)
	MOVQ (BX), AX
	SHLQ $16, AX
	SHRQ $16, AX
	CMPQ AX, probe_head(R8)
	JLT next
	ANDQ probe_ringMask(R8), AX
	ADDQ probe_frames(R8), AX
	PREFETCHT0 (AX)
	PREFETCHT0 (AX)(R10*1)

next:
	ADDQ $8, SI
	ADDQ $8, DI
	DECQ R9
	JNZ loop

done:
	VZEROUPPER
	RET

none:
	MOVQ $0, (DI)
	JMP next
