//go:build !race

#include "textflag.h"
#include "funcdata.h"
#include "go_asm.h"
#include "view_amd64.h"

// Plain calls of 8-byte keys and values, from the first look at the arguments to the
// result. Each is there twice: in a wide form for processors with AVX-512, and in a
// narrow one for those with AVX2. Of the two words of the probe that say whether a
// plain call may go straight to the record at most one is not zero: the wide form
// goes to the narrow one where it may not, and that to the general way in Go.
//
// A processor has room for so many instructions, loads and stores at once: what a
// call and its caller need of each decides how many calls wait for memory together.
// On the machine of the measurements that showed as steps: the fewer instructions
// from one call's first missing line to the next one's, the shorter a call took, but
// not evenly. Which room it was that ended there was not measured.

// ENTER enters the epoch in the word that says whether the session in R8 may; if
// that is not the epoch, it goes to absent.
#define ENTER(word, absent) \
	MOVQ (Session_view+word)(R8), R11 \
	REENTER(absent)

// REENTER enters the epoch in R11, if that is the present one.
#define REENTER(absent) \
	MOVQ (Session_view+view_current)(R8), R10 \
	MOVQ R11, Session_handle(R8)                \
	CMPQ R11, (R10)                           \
	JNE absent

// LEAVE leaves it.
#define LEAVE MOVQ $0, Session_handle(R8)

// The bits that entries are compared in: those of the tag.
DATA entryTag<>+0(SB)/8, $(((1<<const_tagBits)-1)<<const_addressBits)
GLOBL entryTag<>(SB), RODATA|NOPTR, $8

// WIDE leads from the hash in BX to its bucket in BX and the number of its slot in
// AX; if it has none, to absent. Whether the slot is used, or being filled, need not
// be looked at: where it holds no record, the address in it is below that of the first.
#define WIDE(absent) \
	MOVQ (Session_view+view_tagUp)(R8), CX \
	SHLXQ CX, BX, AX                         \
	VPBROADCASTQ AX, Z16                     \
	ANDQ (Session_view+view_mask)(R8), BX  \
	SHLQ $6, BX                              \
	ADDQ (Session_view+view_buckets)(R8), BX \
	VPXORQ (BX), Z16, Z17                    \
	VPTESTNMQ.BCST entryTag<>(SB), Z17, K1   \
	KMOVB K1, AX                             \
	ANDL $((1<<const_bucketEntries)-1), AX   \
	JZ absent                                \
	TZCNTQ AX, AX

// NARROW is the same, of slots that are used and not being filled.
#define NARROW(absent) \
	BUCKET(Session_view) \
	MATCH_LAST            \
	TESTQ AX, AX          \
	JZ absent             \
	TZCNTQ AX, AX

// RECORD leads from the slot to the record, in AX, if it lies at or above floor and
// its key is SI; else to absent. floor, as addresses are compared, is 16 bits to the
// left: what stands above the address falls out.
#define RECORD(floor, absent) \
	MOVQ (BX)(AX*8), CX                         \
	MOVQ (Session_view+view_ringMask)(R8), AX \
	ANDQ CX, AX                                 \
	SHLQ $16, CX                                \
	CMPQ CX, (Session_view+floor)(R8)          \
	JCS absent                                  \
	ADDQ (Session_view+view_frames)(R8), AX   \
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

// READ is a whole read, of a key of 8 bytes.
#define READ(word, FIND, absent) \
	MOVQ s+0(FP), R8             \
	ENTER(word, absent)          \
	MOVQ dst_len+40(FP), R12     \
	ADDQ $8, R12                 \
	CMPQ R12, dst_cap+48(FP)     \
	JGT absent                   \
	MOVQ key_base+8(FP), SI      \
	MOVQ dst_base+32(FP), DI     \
	MOVQ (SI), SI                \
	HASH(Session_view)          \
	FIND(absent)                 \
	RECORD(view_headUp, absent) \
	HEADER(UNREADABLE, absent)   \
	MOVQ 16(AX), AX              \
	MOVQ AX, -8(DI)(R12*1)       \
	COUNT(const_OpRead)          \
	LEAVE                        \
	MOVB $1, done+56(FP)         \
	RET

// UPSERT is a whole upsert, of a key of 8 bytes.
#define UPSERT(word, FIND, absent) \
	MOVQ s+0(FP), R8                 \
	ENTER(word, absent)              \
	CMPQ value_len+40(FP), $8        \
	JNE absent                       \
	MOVQ key_base+8(FP), SI          \
	MOVQ value_base+32(FP), DI       \
	MOVQ (SI), SI                    \
	MOVQ (DI), DI                    \
	HASH(Session_view)              \
	FIND(absent)                     \
	RECORD(view_readOnlyUp, absent) \
	HEADER(UNWRITABLE, absent)       \
	MOVQ DI, 16(AX)                  \
	COUNT(const_OpUpsert)            \
	LEAVE                            \
	MOVB $1, done+56(FP)             \
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
	HASH(Session_view)              \
	FIND(absent)                     \
	RECORD(view_readOnlyUp, absent) \
	HEADER(UNWRITABLE, absent)       \
	MOVQ 16(AX), CX                  \
	MOVQ CX, Session_oldWord(R8)     \
	FORM                             \
	LEAVE                            \
	MOVQ AX, record_p+16(FP)           \
	RET

// ASK is a whole read-modify-write of a word. It calls a function of Go as such
// ones call each other: whoever called here has g in R14, and zero in X15, which
// nothing has changed. The callee owns the first 16 bytes of the frame, for what it
// was given. No pointer of the collector's is in the rest, and the arguments are
// known to it by rmwWord's declaration: so the stack may move meanwhile.
// The session is outside, since the Modifier may panic; but nothing of what was seen
// has changed if the same epoch can be entered again: that of the session may be a later
// one, if the Modifier has used it.
#define ASK(word, FIND, absent) \
	MOVQ s+0(FP), R8                 \
	ENTER(word, absent)              \
	CMPQ key_len+16(FP), $8          \
	JNE absent                       \
	MOVQ key_base+8(FP), SI          \
	MOVQ (SI), SI                    \
	HASH(Session_view)              \
	FIND(absent)                     \
	RECORD(view_readOnlyUp, absent) \
	HEADER(UNWRITABLE, absent)       \
	MOVQ modify+32(FP), DX           \
	TESTQ DX, DX                     \
	JZ absent                        \
	LEAVE                            \
	ADJSP $40                        \
	MOVQ R11, 32(SP)                 \
	MOVQ AX, 16(SP)                  \
	MOVQ 16(AX), AX                  \
	MOVQ AX, 24(SP)                  \
	MOVL $1, BX                      \
	MOVQ (DX), CX                    \
	CALL CX                          \
	MOVQ AX, DX                      \
	MOVQ 24(SP), AX                  \
	MOVQ 16(SP), CX                  \
	MOVQ 32(SP), R11                 \
	ADJSP $-40                       \
	MOVQ s+0(FP), R8                 \
	CMPB BX, $const_Put              \
	JNE absent                       \
	REENTER(absent)                  \
	LOCK                             \
	CMPXCHGQ DX, 16(CX)              \
	JNE absent                       \
	COUNT(const_OpRMW)               \
	LEAVE                            \
	MOVB $1, done+40(FP)             \
	RET

// func readWord(s *Session, key, dst []byte) (done bool)
TEXT ·readWord(SB), NOSPLIT, $0-57
	CMPQ key_len+16(FP), $8
	JNE long
	READ(view_wide, WIDE, narrow)
narrow:
	LEAVE
	READ(view_narrow, NARROW, anyhow)
anyhow:
	LEAVE
long:
	JMP ·readGeneral(SB)

// func upsertWord(s *Session, key, value []byte) (done bool)
TEXT ·upsertWord(SB), NOSPLIT, $0-57
	CMPQ key_len+16(FP), $8
	JNE long
	UPSERT(view_wide, WIDE, narrow)
narrow:
	LEAVE
	UPSERT(view_narrow, NARROW, anyhow)
anyhow:
	LEAVE
long:
	JMP ·upsertGeneral(SB)

// func rmwWord(s *Session, key []byte, modify WordModifier) (done bool)
TEXT ·rmwWord(SB), NOSPLIT|NOFRAME, $0-41
	NO_LOCAL_POINTERS
	ASK(view_wide, WIDE, narrow)
narrow:
	LEAVE
	ASK(view_narrow, NARROW, anyhow)
anyhow:
	LEAVE
	JMP ·rmwWordGeneral(SB)

// func findRMW(s *Session, key unsafe.Pointer) (record unsafe.Pointer)
TEXT ·findRMW(SB), NOSPLIT, $0-24
	MODIFY(view_wide, WIDE, FORM_WIDE, narrow)
narrow:
	LEAVE
	MODIFY(view_narrow, NARROW, FORM_NARROW, anyhow)
anyhow:
	LEAVE
	MOVQ $0, record_p+16(FP)
	RET
