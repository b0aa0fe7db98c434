//go:build !race

#include "textflag.h"

// A function that looks into buckets is there twice: for processors with AVX2, and
// for those with AVX-512 as well, which need a third of the instructions for a
// bucket.

// MATCH sets a bit of AX for each word of the bucket at BX whose top 16 bits are
// AX. It uses DX.
#define MATCH_AVX2 \
	VMOVQ AX, X0         \
	VPBROADCASTQ X0, Y0  \
	VMOVDQU (BX), Y1     \
	VMOVDQU 32(BX), Y2   \
	VPSRLQ $48, Y1, Y1   \
	VPSRLQ $48, Y2, Y2   \
	VPCMPEQQ Y0, Y1, Y1  \
	VPCMPEQQ Y0, Y2, Y2  \
	VMOVMSKPD Y1, AX     \
	VMOVMSKPD Y2, DX     \
	SHLQ $4, DX          \
	ORQ DX, AX

// MATCH_LAST is MATCH_AVX2 with nothing of its kind to come.
#define MATCH_LAST \
	MATCH_AVX2 \
	VZEROUPPER

#define MATCH_AVX512 \
	VPBROADCASTQ AX, Z16    \
	VPSRLQ $48, (BX), Z17   \
	VPCMPEQQ Z16, Z17, K1   \
	KMOVB K1, AX

// BUCKET leads from the hash in BX, with the probe in R8, to its bucket in BX and
// the top of its entry in AX. It uses CX.
#define BUCKET \
	MOVQ 56(R8), CX   \
	BEXTRQ CX, BX, AX \
	ORQ $0x4000, AX   \
	ANDQ 8(R8), BX    \
	SHLQ $6, BX       \
	ADDQ 0(R8), BX

// HASH is hashWord of SI, in BX.
#define HASH \
	MOVQ $0x9e3779b97f4a7c15, AX \
	MOVQ $0x9fb21c651e98df25, CX \
	XORQ SI, AX                  \
	MULQ CX                      \
	XORQ DX, AX                  \
	MOVQ AX, BX                  \
	SHRQ $32, BX                 \
	XORQ AX, BX

// RECORD leads from the match in AX and the bucket in BX to the record in AX, if
// it lies at or above floor and its key is SI. Else it goes to absent.
#define RECORD(floor) \
	TESTQ AX, AX        \
	JZ absent           \
	TZCNTQ AX, AX       \
	MOVQ (BX)(AX*8), AX \
	SHLQ $16, AX        \
	SHRQ $16, AX        \
	CMPQ AX, floor      \
	JLT absent          \
	ANDQ 24(R8), AX     \
	ADDQ 16(R8), AX     \
	CMPQ SI, 8(AX)      \
	JNE absent

// ENTER enters the epoch that the session has seen, and keeps its slot in R9; if
// that epoch is over, it goes to absent.
#define ENTER \
	MOVQ 64(R8), R9  \
	MOVQ 72(R8), R10 \
	MOVQ 80(R8), R11 \
	MOVQ R11, (R9)   \
	CMPQ R11, (R10)  \
	JNE absent

// DIRECT is a whole plain call: it enters the epoch, finds the record of the key, at
// or above floor, and ends with END, or returns false.
#define DIRECT(MATCH, floor, END) \
	MOVQ p+0(FP), R8    \
	MOVQ key+8(FP), SI  \
	ENTER               \
	MOVQ (SI), SI       \
	HASH                \
	BUCKET              \
	MATCH               \
	RECORD(floor)       \
	END                 \
absent: \
	MOVQ $0, (R9)       \
	MOVB $0, ret+32(FP) \
	RET

// READ and STORE are the ends of readDirect and storeDirect: the record is in AX.
// Tombstones and records that expire are not read; those, sealed and locked ones
// not written.
#define READ \
	MOVQ $0x2800000000000000, CX \
	TESTQ CX, (AX)               \
	JNE absent                   \
	MOVQ 16(AX), AX              \
	MOVQ dst+16(FP), DX          \
	MOVQ count+24(FP), CX        \
	MOVQ AX, (DX)                \
	INCQ (CX)                    \
	MOVQ $0, (R9)                \
	MOVB $1, ret+32(FP)          \
	RET

#define STORE \
	MOVQ $0x2e00000000000000, CX \
	TESTQ CX, (AX)               \
	JNE absent                   \
	MOVQ value+16(FP), DX        \
	MOVQ count+24(FP), CX        \
	MOVQ (DX), DX                \
	MOVQ DX, 16(AX)              \
	INCQ (CX)                    \
	MOVQ $0, (R9)                \
	MOVB $1, ret+32(FP)          \
	RET

// func matchAVX2(bucket unsafe.Pointer, want uint64) uint64
TEXT ·matchAVX2(SB), NOSPLIT, $0-24
	MOVQ bucket+0(FP), BX
	MOVQ want+8(FP), AX
	MATCH_LAST
	MOVQ AX, ret+16(FP)
	RET

// func lookupAVX2(p *probe, key uint64, floor int64) unsafe.Pointer
TEXT ·lookupAVX2(SB), NOSPLIT, $0-32
	MOVQ p+0(FP), R8
	MOVQ key+8(FP), SI
	HASH
	BUCKET
	MATCH_LAST
	RECORD(floor+16(FP))
	MOVQ AX, ret+24(FP)
	RET

absent:
	MOVQ $0, ret+24(FP)
	RET

// func readAVX2(p *probe, key, dst unsafe.Pointer, count *counter) bool
TEXT ·readAVX2(SB), NOSPLIT, $0-33
	DIRECT(MATCH_LAST, 32(R8), READ)

// func readAVX512(p *probe, key, dst unsafe.Pointer, count *counter) bool
TEXT ·readAVX512(SB), NOSPLIT, $0-33
	DIRECT(MATCH_AVX512, 32(R8), READ)

// func storeAVX2(p *probe, key, value unsafe.Pointer, count *counter) bool
TEXT ·storeAVX2(SB), NOSPLIT, $0-33
	DIRECT(MATCH_LAST, 48(R8), STORE)

// func storeAVX512(p *probe, key, value unsafe.Pointer, count *counter) bool
TEXT ·storeAVX512(SB), NOSPLIT, $0-33
	DIRECT(MATCH_AVX512, 48(R8), STORE)

// func scanAVX2(p *probe, hashes *uint64, slots *slot, n int)
TEXT ·scanAVX2(SB), NOSPLIT, $0-32
	MOVQ p+0(FP), R8
	MOVQ hashes+8(FP), SI
	MOVQ slots+16(FP), DI
	MOVQ n+24(FP), R9
	MOVQ 40(R8), R10 // last byte of a record to ask for
	TESTQ R9, R9
	JZ done

loop:
	MOVQ (SI), BX
	BUCKET
	MATCH_AVX2
	TESTQ AX, AX
	JZ none
	TZCNTQ AX, AX
	LEAQ (BX)(AX*8), BX
	MOVQ BX, (DI)
	MOVQ (BX), AX
	SHLQ $16, AX
	SHRQ $16, AX
	CMPQ AX, 32(R8) // head
	JLT next
	ANDQ 24(R8), AX
	ADDQ 16(R8), AX
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
