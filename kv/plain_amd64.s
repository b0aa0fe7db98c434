//go:build !race

#include "textflag.h"
#include "go_asm.h"
#include "probe_amd64.h"

// Plain calls of 8-byte keys and values, from the first look at the arguments to the
// result. Each is there twice: in a wide form for processors with AVX-512, and in a
// narrow one for those with AVX2. Of the two words of the probe that say whether a
// plain call may go straight to the record at most one is not zero: the wide form
// goes to the narrow one where it may not, and that to the general way in Go.
//
// A processor has room for so many instructions at once, 512 on the machine of the
// measurements, and for so many loads, 192, and stores, 112. What a call and its
// caller need of each decides how many calls wait for memory together. One more than
// fits shows as a step: with 80 instructions from one call's first missing line to
// the next one's it was 76 ns, with 105 to 120 97, with 160 115, with 240 150.

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

// ENTER enters the epoch in the word that says whether the session in R8 may, and
// keeps its slot in R9; if that is not the epoch, it goes to absent.
#define ENTER(word, absent) \
	MOVQ (Session_probe+probe_slot)(R8), R9   \
	MOVQ (Session_probe+probe_epoch)(R8), R10 \
	MOVQ (Session_probe+word)(R8), R11        \
	MOVQ R11, (R9)                            \
	CMPQ R11, (R10)                           \
	JNE absent

// LEAVE leaves it.
#define LEAVE MOVQ $0, (R9)

// The words that entries are compared in: used, and tag.
DATA entryTop<>+0(SB)/8, $0x7fff000000000000
GLOBL entryTop<>(SB), RODATA|NOPTR, $8

// WIDE leads from the hash in BX to its bucket in BX and the number of its slot in
// AX; if it has none, to absent. That a slot is being filled need not be looked at:
// the address in it is 0.
#define WIDE(absent) \
	MOVQ (Session_probe+probe_tagUp)(R8), CX \
	SHLXQ CX, BX, AX                         \
	BTSQ $62, AX                             \
	VPBROADCASTQ AX, Z16                     \
	ANDQ (Session_probe+probe_mask)(R8), BX  \
	SHLQ $6, BX                              \
	ADDQ (Session_probe+probe_table)(R8), BX \
	VPXORQ (BX), Z16, Z17                    \
	VPTESTNMQ.BCST entryTop<>(SB), Z17, K1   \
	KMOVB K1, AX                             \
	TESTQ AX, AX                             \
	JZ absent                                \
	TZCNTQ AX, AX

// NARROW is the same.
#define NARROW(absent) \
	BUCKET(Session_probe) \
	MATCH_LAST            \
	TESTQ AX, AX          \
	JZ absent             \
	TZCNTQ AX, AX

// RECORD leads from the slot to the record, in AX, if it lies at or above floor and
// its key is SI; else to absent. floor, as addresses are compared, is 16 bits to the
// left: what stands above the address falls out.
#define RECORD(floor, absent) \
	MOVQ (BX)(AX*8), CX                         \
	MOVQ (Session_probe+probe_ringMask)(R8), AX \
	ANDQ CX, AX                                 \
	SHLQ $16, CX                                \
	CMPQ CX, (Session_probe+floor)(R8)          \
	JCS absent                                  \
	ADDQ (Session_probe+probe_frames)(R8), AX   \
	CMPQ SI, 8(AX)                              \
	JNE absent

// HEADER goes to absent if the record has a bit of mask in its header.
#define HEADER(mask, absent) \
	MOVQ $mask, CX \
	TESTQ CX, (AX) \
	JNE absent

// Tombstones and records that expire are not read; those, sealed and locked ones
// not written.
#define UNREADABLE 0x2800000000000000
#define UNWRITABLE 0x2e00000000000000

#define COUNT(kind) INCQ (Session_counts+counts_ops+8*kind)(R8)

// READ is a whole read.
#define READ(word, FIND, absent) \
	MOVQ s+0(FP), R8             \
	ENTER(word, absent)          \
	CMPQ key_len+16(FP), $8      \
	JNE absent                   \
	MOVQ dst_len+40(FP), R12     \
	MOVQ dst_cap+48(FP), R13     \
	ADDQ $8, R12                 \
	CMPQ R12, R13                \
	JGT absent                   \
	MOVQ key_base+8(FP), SI      \
	MOVQ dst_base+32(FP), DI     \
	MOVQ (SI), SI                \
	HASH                         \
	FIND(absent)                 \
	RECORD(probe_headUp, absent) \
	HEADER(UNREADABLE, absent)   \
	MOVQ 16(AX), AX              \
	MOVQ AX, -8(DI)(R12*1)       \
	COUNT(const_OpRead)          \
	LEAVE                        \
	MOVQ DI, value_base+56(FP)   \
	MOVQ R12, value_len+64(FP)   \
	MOVQ R13, value_cap+72(FP)   \
	MOVQ $0, err_itable+80(FP)   \
	MOVQ $0, err_data+88(FP)     \
	RET

// UPSERT is a whole upsert.
#define UPSERT(word, FIND, absent) \
	MOVQ s+0(FP), R8                 \
	ENTER(word, absent)              \
	CMPQ key_len+16(FP), $8          \
	JNE absent                       \
	CMPQ value_len+40(FP), $8        \
	JNE absent                       \
	MOVQ key_base+8(FP), SI          \
	MOVQ value_base+32(FP), DI       \
	MOVQ (SI), SI                    \
	MOVQ (DI), DI                    \
	HASH                             \
	FIND(absent)                     \
	RECORD(probe_readOnlyUp, absent) \
	HEADER(UNWRITABLE, absent)       \
	MOVQ DI, 16(AX)                  \
	COUNT(const_OpUpsert)            \
	LEAVE                            \
	MOVQ $0, err_itable+56(FP)       \
	MOVQ $0, err_data+64(FP)         \
	RET

// FORM makes of Session.update, 64 bytes, what Session.form is. Both are the
// session's own, and so is what form points to: the garbage collector need not
// know. As one store it lies in one cache line, or the Modifier, who loads it at
// once, would wait until it is in the cache.
#define FORM_WIDE \
	MOVQ Session_update(R8), DX     \
	VMOVDQU64 Session_form(R8), Z16 \
	VMOVDQU64 Z16, (DX)

#define FORM_NARROW \
	MOVQ Session_update(R8), DX       \
	VMOVDQU Session_form(R8), Y0      \
	VMOVDQU (Session_form+32)(R8), Y1 \
	VMOVDQU Y0, (DX)                  \
	VMOVDQU Y1, 32(DX)                \
	VZEROUPPER

// MODIFY is the first half of a read-modify-write.
#define MODIFY(word, FIND, FORM, absent) \
	MOVQ s+0(FP), R8                 \
	ENTER(word, absent)              \
	MOVQ key+8(FP), SI               \
	MOVQ (SI), SI                    \
	HASH                             \
	FIND(absent)                     \
	RECORD(probe_readOnlyUp, absent) \
	HEADER(UNWRITABLE, absent)       \
	MOVQ 16(AX), CX                  \
	MOVQ CX, Session_oldWord(R8)     \
	FORM                             \
	LEAVE                            \
	MOVQ AX, record+16(FP)           \
	RET

// func readPlain(s *Session, key, dst []byte) (value []byte, err error)
TEXT ·readPlain(SB), NOSPLIT, $0-96
	READ(probe_wide, WIDE, narrow)
narrow:
	LEAVE
	READ(probe_narrow, NARROW, anyhow)
anyhow:
	LEAVE
	JMP ·readAnyhow(SB)

// func upsertPlain(s *Session, key, value []byte) error
TEXT ·upsertPlain(SB), NOSPLIT, $0-72
	UPSERT(probe_wide, WIDE, narrow)
narrow:
	LEAVE
	UPSERT(probe_narrow, NARROW, anyhow)
anyhow:
	LEAVE
	JMP ·upsertAnyhow(SB)

// func modifyPlain(s *Session, key unsafe.Pointer) (record unsafe.Pointer)
TEXT ·modifyPlain(SB), NOSPLIT, $0-24
	MODIFY(probe_wide, WIDE, FORM_WIDE, narrow)
narrow:
	LEAVE
	MODIFY(probe_narrow, NARROW, FORM_NARROW, anyhow)
anyhow:
	LEAVE
	MOVQ $0, record+16(FP)
	RET
