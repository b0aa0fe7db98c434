// What the assembly of probe_amd64.s and plain_amd64.s shares.

// HASH is hashWord of SI, in BX.
#define HASH \
	MOVQ $const_hashSeed, AX   \
	MOVQ $const_hashFactor, CX \
	XORQ SI, AX                \
	MULQ CX                    \
	XORQ DX, AX                \
	MOVQ AX, BX                \
	SHRQ $32, BX               \
	XORQ AX, BX

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

// MATCH_LAST is MATCH_AVX2 with nothing of its kind to come.
#define MATCH_LAST \
	MATCH_AVX2 \
	VZEROUPPER

// BUCKET leads from the hash in BX, with the probe at R8 + at, to its bucket in
// BX and the top of its entry in AX. It uses CX.
#define BUCKET(at) \
	MOVQ (at+probe_tag)(R8), CX   \
	BEXTRQ CX, BX, AX             \
	ORQ $0x4000, AX               \
	ANDQ (at+probe_mask)(R8), BX  \
	SHLQ $6, BX                   \
	ADDQ (at+probe_table)(R8), BX
