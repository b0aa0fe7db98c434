// What the assembly of view_amd64.s and plain_amd64.s shares.

// HASH puts wordHash.Of of SI into BX, with the view at R8 + at. It uses AX and DX.
#define HASH(at) \
	MOVQ (at+view_hash+wordHash_Salt)(R8), AX   \
	XORQ SI, AX                                  \
	MULQ (at+view_hash+wordHash_First)(R8)      \
	XORQ DX, AX                                  \
	MULQ (at+view_hash+wordHash_Second)(R8)     \
	XORQ DX, AX                                  \
	MOVQ AX, BX

// MATCH_AVX2 sets a bit of AX for each word of the bucket at BX whose top 16 bits
// are AX. It uses DX.
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

// The bits of an entry besides its address.
DATA entryBits<>+0(SB)/8, $0xffff000000000000
GLOBL entryBits<>(SB), RODATA|NOPTR, $8

// MATCH_AVX512 is MATCH_AVX2 in fewer instructions.
#define MATCH_AVX512 \
	SHLQ $48, AX                            \
	VPBROADCASTQ AX, Z16                    \
	VPXORQ (BX), Z16, Z17                   \
	VPTESTNMQ.BCST entryBits<>(SB), Z17, K1 \
	KMOVB K1, AX

// MATCH_LAST is MATCH_AVX2 as the last vector instructions of a function.
#define MATCH_LAST \
	MATCH_AVX2 \
	VZEROUPPER

// BUCKET turns the hash in BX, with the view at R8 + at, into the address of its bucket in
// BX and the top bits of its entry in AX. It uses CX.
#define BUCKET(at) \
	MOVQ (at+view_tag)(R8), CX   \
	BEXTRQ CX, BX, AX             \
	ORQ $0x4000, AX               \
	ANDQ (at+view_mask)(R8), BX  \
	SHLQ $6, BX                   \
	ADDQ (at+view_buckets)(R8), BX

// SCAN is the body of scanAVX2 and scanAVX512.
#define SCAN(MATCH) \
	MOVQ v+0(FP), R8            \
	MOVQ hashes+8(FP), SI       \
	MOVQ places+16(FP), DI       \
	MOVQ n+24(FP), R9           \
	MOVQ view_last(R8), R10    \
	XORL R11, R11               \
	TESTQ R9, R9                \
	JZ done                     \
loop:                        \
	MOVQ (SI), BX               \
	BUCKET(0)                   \
	MATCH                       \
	TESTQ AX, AX                \
	JZ none                     \
	TZCNTQ AX, AX               \
	LEAQ (BX)(AX*8), BX         \
	MOVQ BX, (DI)               \
	MOVQ (BX), AX               \
	MOVQ AX, BX                 \
	SHLQ $16, BX                \
	CMPQ BX, view_headUp(R8)   \
	JCS next                    \
	ANDQ view_ringMask(R8), AX \
	ADDQ view_frames(R8), AX   \
	PREFETCHT0 (AX)             \
	PREFETCHT0 (AX)(R10*1)      \
next:                        \
	ADDQ $8, SI                 \
	ADDQ $8, DI                 \
	DECQ R9                     \
	JNZ loop                    \
done:                        \
	VZEROUPPER                  \
	MOVQ R11, absent+32(FP)     \
	RET                         \
none:                        \
	MOVQ $0, (DI)               \
	INCQ R11                    \
	JMP next
