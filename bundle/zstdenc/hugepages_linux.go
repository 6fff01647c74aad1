package zstdenc

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// useHugePages asks the kernel for huge pages for a slice with random access. With small
// pages, most of the time of an access is a TLB miss. The kernel may ignore it.
func useHugePages[T any](s []T) {
	var one T
	const page = 2 << 20
	b := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), uintptr(len(s))*unsafe.Sizeof(one))
	skip := -uintptr(unsafe.Pointer(&b[0])) % page
	if uintptr(len(b)) < skip+page {
		return
	}
	b = b[skip:]
	_ = unix.Madvise(b[:len(b)/page*page], unix.MADV_HUGEPAGE)
}
