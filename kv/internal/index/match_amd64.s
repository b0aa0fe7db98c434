//go:build !race

#include "textflag.h"

// func matchAVX2(bucket unsafe.Pointer, want uint64) uint64
TEXT ·matchAVX2(SB), NOSPLIT, $0-24
	MOVQ bucket+0(FP), BX
	MOVQ want+8(FP), AX
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
	VZEROUPPER
	MOVQ AX, ret+16(FP)
	RET
