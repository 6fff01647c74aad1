package squeeze

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// huge asks the kernel for large pages under a slice that is read all over the
// place: most of the time to fetch a row is otherwise spent on finding its page.
// It is a wish, and the result does not depend on it.
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
