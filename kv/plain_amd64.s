//go:build !race

#include "textflag.h"
#include "funcdata.h"
#include "go_asm.h"
#include "view_amd64.h"

// Plain calls of 8-byte keys and values: see plain.go, which does the same in Go for keys
// and values of any length. Each call has a wide form for processors with AVX-512 and a
// narrow form for those with AVX2. At most one of view.wide and view.narrow is not zero: if
// its word is not the epoch, the wide form continues in the narrow one, and the narrow one in
// the general function in Go.
//
// A processor executes a limited number of instructions, loads and stores at once, so their
// number in a call and its caller decides how many calls wait for memory at the same time. In
// measurements calls were faster, in steps, the fewer instructions there were from one call's
// first cache miss to that of the next call.

// ENTER enters the epoch in a word of the view of the session in R8. If that is not the
// current epoch, it goes to absent.
#define ENTER(word, absent)               \
	MOVQ (Session_view+word)(R8), R11 \
	REENTER(absent)

// REENTER is ENTER for the epoch in R11.
#define REENTER(absent)                           \
	MOVQ (Session_view+view_current)(R8), R10 \
	MOVQ R11, Session_handle(R8)              \
	CMPQ R11, (R10)                           \
	JNE absent

// LEAVE leaves the epoch.
#define LEAVE MOVQ $0, Session_handle(R8)

// The bits of an entry's tag.
DATA entryTag<>+0(SB)/8, $(((1<<const_tagBits)-1)<<const_addressBits)
GLOBL entryTag<>(SB), RODATA|NOPTR, $8

// WIDE turns the hash in BX into the address of its bucket in BX and the number of its entry
// in AX. If there is none, it goes to absent. It compares tags only: a word that is no
// entry, or a tentative one, has an address below that of the first record.
#define WIDE(absent)                             \
	MOVQ (Session_view+view_tagUp)(R8), CX   \
	SHLXQ CX, BX, AX                         \
	VPBROADCASTQ AX, Z16                     \
	ANDQ (Session_view+view_mask)(R8), BX    \
	SHLQ $6, BX                              \
	ADDQ (Session_view+view_buckets)(R8), BX \
	VPXORQ (BX), Z16, Z17                    \
	VPTESTNMQ.BCST entryTag<>(SB), Z17, K1   \
	KMOVB K1, AX                             \
	ANDL $((1<<const_bucketEntries)-1), AX   \
	JZ absent                                \
	TZCNTQ AX, AX

// NARROW is WIDE for AVX2. It compares all bits beside the address.
#define NARROW(absent)       \
	BUCKET(Session_view) \
	MATCH_LAST           \
	TESTQ AX, AX         \
	JZ absent            \
	TZCNTQ AX, AX

// RECORD turns the entry into the record, in AX, if its address is at or above lowest and
// its key is SI; else it goes to absent. Addresses are compared shifted to the left by 16
// bits, which removes the entry's other bits.
#define RECORD(lowest, absent)                    \
	MOVQ (BX)(AX*8), CX                       \
	MOVQ (Session_view+view_ringMask)(R8), AX \
	ANDQ CX, AX                               \
	SHLQ $16, CX                              \
	CMPQ CX, (Session_view+lowest)(R8)        \
	JCS absent                                \
	ADDQ (Session_view+view_frames)(R8), AX   \
	CMPQ SI, 8(AX)                            \
	JNE absent

// HEADER goes to absent if the record has a bit of mask in its header.
#define HEADER(mask, absent) \
	MOVQ $mask, CX       \
	TESTQ CX, (AX)       \
	JNE absent

// UNSAMPLED goes to absent if the hash in BX belongs to a key whose accesses are sampled.
#define UNSAMPLED(absent)                        \
	CMPQ BX, (Session_view+view_sampled)(R8) \
	JCS absent

// The bits of a header with which a value is not read: tombstone and expires; and with
// which it is not updated in place: these, sealed and locked.
#define UNREADABLE 0x2800000000000000
#define UNWRITABLE 0x2e00000000000000

#define COUNT(kind) INCQ (Session_counts+counts_ops+8*kind)(R8)

// READ is readWord for a key of 8 bytes.
#define READ(word, FIND, absent)    \
	MOVQ s+0(FP), R8            \
	ENTER(word, absent)         \
	MOVQ dst_len+40(FP), R12    \
	ADDQ $8, R12                \
	CMPQ R12, dst_cap+48(FP)    \
	JGT absent                  \
	MOVQ key_base+8(FP), SI     \
	MOVQ dst_base+32(FP), DI    \
	MOVQ (SI), SI               \
	HASH(Session_view)          \
	UNSAMPLED(absent)           \
	FIND(absent)                \
	RECORD(view_headUp, absent) \
	HEADER(UNREADABLE, absent)  \
	MOVQ 16(AX), AX             \
	MOVQ AX, -8(DI)(R12*1)      \
	COUNT(const_OpRead)         \
	LEAVE                       \
	MOVB $1, done+56(FP)        \
	RET

// UPSERT is upsertWord for a key of 8 bytes.
#define UPSERT(word, FIND, absent)      \
	MOVQ s+0(FP), R8                \
	ENTER(word, absent)             \
	CMPQ value_len+40(FP), $8       \
	JNE absent                      \
	MOVQ key_base+8(FP), SI         \
	MOVQ value_base+32(FP), DI      \
	MOVQ (SI), SI                   \
	MOVQ (DI), DI                   \
	HASH(Session_view)              \
	UNSAMPLED(absent)               \
	FIND(absent)                    \
	RECORD(view_readOnlyUp, absent) \
	HEADER(UNWRITABLE, absent)      \
	MOVQ DI, 16(AX)                 \
	COUNT(const_OpUpsert)           \
	LEAVE                           \
	MOVB $1, done+56(FP)            \
	RET

// FORM copies Session.form, 64 bytes, to Session.update. It needs no write barriers, since
// the session refers to all that form points to. The wide form is one store of a whole cache
// line: the Modifier loads from it at once, and would have to wait for several stores.
#define FORM_WIDE                       \
	MOVQ Session_update(R8), DX     \
	VMOVDQU64 Session_form(R8), Z16 \
	VMOVDQU64 Z16, (DX)

#define FORM_NARROW                       \
	MOVQ Session_update(R8), DX       \
	VMOVDQU Session_form(R8), Y0      \
	VMOVDQU (Session_form+32)(R8), Y1 \
	VMOVDQU Y0, (DX)                  \
	VMOVDQU Y1, 32(DX)                \
	VZEROUPPER

// MODIFY is findRMW.
#define MODIFY(word, FIND, FORM, absent) \
	MOVQ s+0(FP), R8                 \
	ENTER(word, absent)              \
	MOVQ key+8(FP), SI               \
	MOVQ (SI), SI                    \
	HASH(Session_view)               \
	UNSAMPLED(absent)                \
	FIND(absent)                     \
	RECORD(view_readOnlyUp, absent)  \
	HEADER(UNWRITABLE, absent)       \
	MOVQ 16(AX), CX                  \
	MOVQ CX, Session_oldWord(R8)     \
	FORM                             \
	LEAVE                            \
	MOVQ AX, record_p+16(FP)         \
	RET

// RMW_WORD is rmwWord. It calls the WordModifier by Go's internal calling convention: g is
// in R14 and zero in X15, as the caller has left them. The callee may use the first 16 bytes
// of the frame to spill its arguments. The rest of the frame has no pointers into the Go
// heap, and rmwWord's declaration describes the arguments: so the stack may move meanwhile.
// The session is outside its epoch during the call, since the function may panic. What was
// found is still valid if the same epoch, in R11, can be entered again; the view may have
// a later one, if the function has used the session.
#define RMW_WORD(word, FIND, absent)      \
	MOVQ s+0(FP), R8                \
	ENTER(word, absent)             \
	CMPQ key_len+16(FP), $8         \
	JNE absent                      \
	MOVQ key_base+8(FP), SI         \
	MOVQ (SI), SI                   \
	HASH(Session_view)              \
	UNSAMPLED(absent)               \
	FIND(absent)                    \
	RECORD(view_readOnlyUp, absent) \
	HEADER(UNWRITABLE, absent)      \
	MOVQ modify+32(FP), DX          \
	TESTQ DX, DX                    \
	JZ absent                       \
	MOVQ 16(AX), CX                 \
	LEAVE                           \
	ADJSP $40                       \
	MOVQ R11, 32(SP)                \
	MOVQ AX, 16(SP)                 \
	MOVQ CX, AX                     \
	MOVQ AX, 24(SP)                 \
	MOVL $1, BX                     \
	MOVQ (DX), CX                   \
	CALL CX                         \
	MOVQ AX, DX                     \
	MOVQ 24(SP), AX                 \
	MOVQ 16(SP), CX                 \
	MOVQ 32(SP), R11                \
	ADJSP $-40                      \
	MOVQ s+0(FP), R8                \
	CMPB BX, $const_Put             \
	JNE absent                      \
	REENTER(absent)                 \
	LOCK                            \
	CMPXCHGQ DX, 16(CX)             \
	JNE absent                      \
	COUNT(const_OpRMW)              \
	LEAVE                           \
	MOVB $1, done+40(FP)            \
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
	RMW_WORD(view_wide, WIDE, narrow)
narrow:
	LEAVE
	RMW_WORD(view_narrow, NARROW, anyhow)
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
