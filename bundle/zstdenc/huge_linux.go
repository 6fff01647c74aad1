package zstdenc

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// huge asks the kernel for huge pages for a slice with random access, because
// most of the time for a row is otherwise spent on TLB misses. This is only a
// hint.
func huge[T any](s []T) {
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
