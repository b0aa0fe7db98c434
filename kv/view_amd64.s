//go:build !race

#include "textflag.h"
#include "go_asm.h"
#include "view_amd64.h"

// func newestAVX2(v *view, hash uint64, n int) (address int64)
TEXT ·newestAVX2(SB), NOSPLIT, $0-32
	MOVQ v+0(FP), R8
	MOVQ hash+8(FP), BX
	MOVQ n+16(FP), SI
	BUCKET(0)
	MATCH_LAST
	TESTQ AX, AX
	JZ done
	TZCNTQ AX, AX
	MOVQ (BX)(AX*8), AX
	SHLQ $16, AX
	SHRQ $16, AX
	CMPQ AX, view_head(R8)
	JLT done
	MOVQ view_ringMask(R8), BX
	ANDQ AX, BX
	ADDQ view_frames(R8), BX

line:
	PREFETCHT0 (BX)
	ADDQ $64, BX
	SUBQ $64, SI
	JGT line

done:
	MOVQ AX, address+24(FP)
	RET

// func hashWordsAMD64(v *view, ops **Op, hashes *uint64, n int) int
TEXT ·hashWordsAMD64(SB), NOSPLIT, $0-40
	MOVQ v+0(FP), R8
	MOVQ ops+8(FP), R9
	MOVQ hashes+16(FP), R10
	MOVQ n+24(FP), R11
	XORL R12, R12
	MOVQ view_mask(R8), R13
	MOVQ view_buckets(R8), CX

next:
	CMPQ R12, R11
	JGE done
	MOVQ (R9)(R12*8), DI
	CMPQ (Op_Key+8)(DI), $8
	JNE done
	MOVQ Op_Key(DI), SI
	MOVQ (SI), SI
	HASH(0)
	MOVQ BX, (R10)(R12*8)
	ANDQ R13, BX
	SHLQ $6, BX
	PREFETCHT0 (CX)(BX*1)
	INCQ R12
	JMP next

done:
	MOVQ R12, ret+32(FP)
	RET

// func scanAVX2(v *view, hashes *uint64, places *index.Place, n int) (absent int)
TEXT ·scanAVX2(SB), NOSPLIT, $0-40
	SCAN(MATCH_AVX2)

// func scanAVX512(v *view, hashes *uint64, places *index.Place, n int) (absent int)
TEXT ·scanAVX512(SB), NOSPLIT, $0-40
	SCAN(MATCH_AVX512)
