package head

// The form of the payload's tar is fixed, so all positions follow from the sizes.

// TarBlock is the size of a tar block in bytes.
const TarBlock = 512

// HeaderLen is the number of bytes before the content of an entry of size bytes: one
// block, or three blocks (a PAX header, its data, the header) if the size does not fit
// into ustar's eleven octal digits.
func HeaderLen(size int64) int64 {
	if size >= 1<<33 {
		return 3 * TarBlock
	}
	return TarBlock
}

// Padded rounds n up to whole blocks.
func Padded(n int64) int64 { return (n + TarBlock - 1) / TarBlock * TarBlock }
