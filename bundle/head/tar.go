package head

// The payload's tar has one form, so sizes alone say where everything stands.

// TarBlock is the size in bytes of what a tar is made of.
const TarBlock = 512

// HeaderLen is the number of bytes that stand before the content of an entry
// of size bytes: one block, or three where the size does not fit into ustar's
// eleven octal digits and takes a PAX record (a header, its data, the header).
func HeaderLen(size int64) int64 {
	if size >= 1<<33 {
		return 3 * TarBlock
	}
	return TarBlock
}

// Padded rounds n up to whole blocks.
func Padded(n int64) int64 { return (n + TarBlock - 1) / TarBlock * TarBlock }
