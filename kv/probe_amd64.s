//go:build !race

#include "textflag.h"

// func matchVector(bucket unsafe.Pointer, want uint64) uint64
TEXT ·matchVector(SB), NOSPLIT, $0-24
	MOVQ bucket+0(FP), AX
	VPBROADCASTQ want+8(FP), Y0
	VMOVDQU (AX), Y1
	VMOVDQU 32(AX), Y2
	VPSRLQ $48, Y1, Y1
	VPSRLQ $48, Y2, Y2
	VPCMPEQQ Y0, Y1, Y1
	VPCMPEQQ Y0, Y2, Y2
	VMOVMSKPD Y1, BX
	VMOVMSKPD Y2, CX
	VZEROUPPER
	SHLQ $4, CX
	ORQ CX, BX
	MOVQ BX, ret+16(FP)
	RET

// LOOKUP leads from the key in SI, with the probe in R8, to its record in AX: the
// newest of its chain, found in the first bucket, at or above floor. Else it goes
// to absent.
#define LOOKUP(floor) \
	MOVQ $0x9e3779b97f4a7c15, AX \
	MOVQ $0x9fb21c651e98df25, CX \
	XORQ SI, AX                  \
	MULQ CX                      \
	XORQ DX, AX                  \
	MOVQ AX, BX                  \
	SHRQ $32, BX                 \
	XORQ AX, BX                  \
	MOVQ 56(R8), CX              \
	BEXTRQ CX, BX, AX            \
	ORQ $0x4000, AX              \
	ANDQ 8(R8), BX               \
	SHLQ $6, BX                  \
	ADDQ 0(R8), BX               \
	VMOVQ AX, X0                 \
	VPBROADCASTQ X0, Y0          \
	VMOVDQU (BX), Y1             \
	VMOVDQU 32(BX), Y2           \
	VPSRLQ $48, Y1, Y1           \
	VPSRLQ $48, Y2, Y2           \
	VPCMPEQQ Y0, Y1, Y1          \
	VPCMPEQQ Y0, Y2, Y2          \
	VMOVMSKPD Y1, AX             \
	VMOVMSKPD Y2, DX             \
	VZEROUPPER                   \
	SHLQ $4, DX                  \
	ORQ DX, AX                   \
	JZ absent                    \
	TZCNTQ AX, AX                \
	MOVQ (BX)(AX*8), AX          \
	SHLQ $16, AX                 \
	SHRQ $16, AX                 \
	CMPQ AX, floor               \
	JLT absent                   \
	ANDQ 24(R8), AX              \
	ADDQ 16(R8), AX              \
	CMPQ SI, 8(AX)               \
	JNE absent

// ENTER enters the epoch that the session has seen, and keeps its slot in R9; if
// it is over, it goes to absent.
#define ENTER \
	MOVQ 64(R8), R9  \
	MOVQ 72(R8), R10 \
	MOVQ 80(R8), R11 \
	MOVQ R11, (R9)   \
	CMPQ R11, (R10)  \
	JNE absent

// func lookupVector(p *probe, key uint64, floor int64) unsafe.Pointer
TEXT ·lookupVector(SB), NOSPLIT, $0-32
	MOVQ p+0(FP), R8
	MOVQ key+8(FP), SI
	LOOKUP(floor+16(FP))
	MOVQ AX, ret+24(FP)
	RET

absent:
	MOVQ $0, ret+24(FP)
	RET

// func readVector(p *probe, key, dst unsafe.Pointer, count *counter) bool
TEXT ·readVector(SB), NOSPLIT, $0-33
	MOVQ p+0(FP), R8
	MOVQ key+8(FP), SI
	ENTER
	MOVQ (SI), SI
	LOOKUP(32(R8)) // head
	MOVQ $0x2800000000000000, CX // tombstone, expires
	TESTQ CX, (AX)
	JNE absent
	MOVQ 16(AX), AX
	MOVQ dst+16(FP), DX
	MOVQ count+24(FP), CX
	MOVQ AX, (DX)
	INCQ (CX)
	MOVQ $0, (R9)
	MOVB $1, ret+32(FP)
	RET

absent:
	MOVQ $0, (R9)
	MOVB $0, ret+32(FP)
	RET

// func storeVector(p *probe, key, value unsafe.Pointer, count *counter) bool
TEXT ·storeVector(SB), NOSPLIT, $0-33
	MOVQ p+0(FP), R8
	MOVQ key+8(FP), SI
	ENTER
	MOVQ (SI), SI
	LOOKUP(48(R8)) // read-only
	MOVQ $0x2e00000000000000, CX // tombstone, expires, sealed, locked
	TESTQ CX, (AX)
	JNE absent
	MOVQ value+16(FP), DX
	MOVQ count+24(FP), CX
	MOVQ (DX), DX
	MOVQ DX, 16(AX)
	INCQ (CX)
	MOVQ $0, (R9)
	MOVB $1, ret+32(FP)
	RET

absent:
	MOVQ $0, (R9)
	MOVB $0, ret+32(FP)
	RET

// func scanVector(p *probe, hashes *uint64, slots *slot, n int)
TEXT ·scanVector(SB), NOSPLIT, $0-32
	MOVQ p+0(FP), AX
	MOVQ hashes+8(FP), SI
	MOVQ slots+16(FP), DI
	MOVQ n+24(FP), CX
	MOVQ 0(AX), R8  // table.base
	MOVQ 8(AX), R9  // table.mask
	MOVQ 16(AX), R10 // log base
	MOVQ 24(AX), R11 // ring mask
	MOVQ 32(AX), R12 // head
	MOVQ 40(AX), R13 // last byte of a record to ask for
	MOVQ 56(AX), R15 // where the tag is
	TESTQ CX, CX
	JZ done

loop:
	MOVQ (SI), AX // hash
	MOVQ AX, BX
	ANDQ R9, BX
	SHLQ $6, BX
	ADDQ R8, BX // bucket
	BEXTRQ R15, AX, AX
	ORQ $0x4000, AX // used and tag
	VMOVQ AX, X0
	VPBROADCASTQ X0, Y0
	VMOVDQU (BX), Y1
	VMOVDQU 32(BX), Y2
	VPSRLQ $48, Y1, Y1
	VPSRLQ $48, Y2, Y2
	VPCMPEQQ Y0, Y1, Y1
	VPCMPEQQ Y0, Y2, Y2
	VMOVMSKPD Y1, AX
	VMOVMSKPD Y2, DX
	SHLQ $4, DX
	ORQ DX, AX
	JZ none
	TZCNTQ AX, AX
	LEAQ (BX)(AX*8), BX // slot
	MOVQ BX, (DI)
	MOVQ (BX), AX
	SHLQ $16, AX
	SHRQ $16, AX // address
	CMPQ AX, R12
	JLT next
	ANDQ R11, AX
	ADDQ R10, AX
	PREFETCHT0 (AX)
	PREFETCHT0 (AX)(R13*1)

next:
	ADDQ $8, SI
	ADDQ $8, DI
	DECQ CX
	JNZ loop

done:
	VZEROUPPER
	RET

none:
	MOVQ $0, (DI)
	JMP next
