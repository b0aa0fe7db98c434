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

// func newestAVX2(p *probe, hash uint64, n int) (address int64)
TEXT ·newestAVX2(SB), NOSPLIT, $0-32
	MOVQ p+0(FP), R8
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
	CMPQ AX, probe_head(R8)
	JLT done
	MOVQ probe_ringMask(R8), BX
	ANDQ AX, BX
	ADDQ probe_frames(R8), BX

line:
	PREFETCHT0 (BX)
	ADDQ $64, BX
	SUBQ $64, SI
	JGT line

done:
	MOVQ AX, address+24(FP)
	RET

// func hashWordsAMD64(p *probe, ops **Op, hashes *uint64, n int) int
TEXT ·hashWordsAMD64(SB), NOSPLIT, $0-40
	MOVQ p+0(FP), R8
	MOVQ ops+8(FP), R9
	MOVQ hashes+16(FP), R10
	MOVQ n+24(FP), R11
	XORL R12, R12
	MOVQ probe_mask(R8), R13
	MOVQ probe_table(R8), R8

next:
	CMPQ R12, R11
	JGE done
	MOVQ (R9)(R12*8), DI
	CMPQ (Op_Key+8)(DI), $8
	JNE done
	MOVQ Op_Key(DI), SI
	MOVQ (SI), SI
	HASH
	MOVQ BX, (R10)(R12*8)
	ANDQ R13, BX
	SHLQ $6, BX
	PREFETCHT0 (R8)(BX*1)
	INCQ R12
	JMP next

done:
	MOVQ R12, ret+32(FP)
	RET

// func scanAVX2(p *probe, hashes *uint64, slots *slot, n int) (absent int)
TEXT ·scanAVX2(SB), NOSPLIT, $0-40
	MOVQ p+0(FP), R8
	MOVQ hashes+8(FP), SI
	MOVQ slots+16(FP), DI
	MOVQ n+24(FP), R9
	MOVQ probe_last(R8), R10 // of a record to ask for
	XORL R11, R11
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
	MOVQ R11, absent+32(FP)
	RET

none:
	MOVQ $0, (DI)
	INCQ R11
	JMP next

// The bits of an entry beside its address.
DATA entryBits<>+0(SB)/8, $0xffff000000000000
GLOBL entryBits<>(SB), RODATA|NOPTR, $8

// func scanAVX512(p *probe, hashes *uint64, slots *slot, n int) (absent int)
TEXT ·scanAVX512(SB), NOSPLIT, $0-40
	MOVQ p+0(FP), R8
	MOVQ hashes+8(FP), SI
	MOVQ slots+16(FP), DI
	MOVQ n+24(FP), R9
	VPBROADCASTQ entryBits<>(SB), Z18
	MOVQ probe_tagUp(R8), CX
	MOVQ probe_mask(R8), R10
	MOVQ probe_table(R8), R11
	MOVQ probe_headUp(R8), R12
	MOVQ probe_ringMask(R8), R13
	MOVQ probe_last(R8), DX // of a record to ask for
	MOVQ probe_frames(R8), R8
	XORL R15, R15
	TESTQ R9, R9
	JZ done

loop:
	MOVQ (SI), BX
	SHLXQ CX, BX, AX
	ANDQ R10, BX
	BTSQ $62, AX
	SHLQ $6, BX
	BTRQ $63, AX
	ADDQ R11, BX
	VPBROADCASTQ AX, Z16
	VPXORQ (BX), Z16, Z17
	VPTESTNMQ Z18, Z17, K1
	KMOVB K1, AX
	TESTQ AX, AX
	JZ none
	TZCNTQ AX, AX
	LEAQ (BX)(AX*8), BX
	MOVQ BX, (DI)
	MOVQ (BX), AX
	MOVQ AX, BX
	SHLQ $16, BX
	CMPQ BX, R12
	JCS next
	ANDQ R13, AX
	ADDQ R8, AX
	PREFETCHT0 (AX)
	PREFETCHT0 (AX)(DX*1)

next:
	ADDQ $8, SI
	ADDQ $8, DI
	DECQ R9
	JNZ loop

done:
	MOVQ R15, absent+32(FP)
	RET

none:
	MOVQ $0, (DI)
	INCQ R15
	JMP next
