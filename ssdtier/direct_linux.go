package ssdtier

import (
	"os"

	"golang.org/x/sys/unix"
)

// openDirect is the flag that makes a file bypass the page cache, or 0.
const openDirect = unix.O_DIRECT

// askBlock asks the kernel for the unit of direct I/O on a file. known is false if kernel or
// file system do not tell; a block of 0 means that the file does not support direct I/O.
func askBlock(f *os.File) (block int, known bool) {
	var st unix.Statx_t
	if err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_DIOALIGN, &st); err != nil {
		return 0, false
	}
	if st.Mask&unix.STATX_DIOALIGN == 0 {
		return 0, false
	}
	if st.Dio_offset_align == 0 || st.Dio_mem_align == 0 {
		return 0, true
	}
	return int(max(st.Dio_offset_align, st.Dio_mem_align)), true
}
