package head

import (
	"bytes"
	"encoding/binary"
	"io"
	"slices"
)

// ELFEnd returns the end of the ELF image at the beginning of r: the end of its last
// segment, section or header table. It only reads the tables of 64-bit little-endian
// files, which all supported architectures use; ok is false for other files. If a file ends before
// one of its tables does, the end is at least the end of that table.
func ELFEnd(r io.ReaderAt) (end int64, ok bool) {
	var h [64]byte // Elf64_Ehdr, elf(5)
	if _, err := r.ReadAt(h[:], 0); err != nil || string(h[:6]) != "\x7fELF\x02\x01" {
		return 0, false
	}
	le := binary.LittleEndian
	phoff, phsize, phnum := le.Uint64(h[32:]), le.Uint16(h[54:]), le.Uint16(h[56:])
	shoff, shsize, shnum := le.Uint64(h[40:]), le.Uint16(h[58:]), le.Uint16(h[60:])

	most := uint64(len(h))
	// extent extends end to the end of a range. It returns false if the range overflows.
	extent := func(off, n uint64) bool {
		const limit = 1 << 62
		if off > limit || n > limit {
			return false
		}
		most = max(most, off+n)
		return true
	}
	table := func(off uint64, each, n uint16, entry int, note func([]byte) bool) bool {
		if n == 0 {
			return true
		}
		if int(each) != entry || !extent(off, uint64(each)*uint64(n)) {
			return false
		}
		b := make([]byte, int(each)*int(n))
		if _, err := r.ReadAt(b, int64(off)); err != nil {
			return err == io.EOF
		}
		for ; len(b) > 0; b = b[each:] {
			if !note(b) {
				return false
			}
		}
		return true
	}
	const (
		phdr     = 56 // sizeof(Elf64_Phdr)
		shdr     = 64 // sizeof(Elf64_Shdr)
		shNobits = 8  // SHT_NOBITS: takes no space in the file
	)
	ok = table(phoff, phsize, phnum, phdr, func(b []byte) bool {
		return extent(le.Uint64(b[8:]), le.Uint64(b[32:])) // p_offset, p_filesz
	}) && table(shoff, shsize, shnum, shdr, func(b []byte) bool {
		return le.Uint32(b[4:]) == shNobits || extent(le.Uint64(b[24:]), le.Uint64(b[32:])) // sh_offset, sh_size
	})
	if !ok {
		return 0, false
	}
	return int64(most), true
}

// HeadersLast returns a launcher with its table of program headers at the end. The kernel reads the table before it
// starts a file: so it refuses a copy that is cut off within the launcher. Otherwise it would start the copy and end it
// with a signal at the first missing page.
func HeadersLast(launcher []byte) []byte {
	const align = 8
	end, ok := ELFEnd(bytes.NewReader(launcher))
	if !ok || end != int64(len(launcher)) {
		return launcher
	}
	le := binary.LittleEndian
	at, size := le.Uint64(launcher[32:]), uint64(le.Uint16(launcher[54:]))*uint64(le.Uint16(launcher[56:])) // e_phoff, e_phentsize, e_phnum
	if at+size == uint64(end) {
		return launcher
	}
	out := append(slices.Clone(launcher), make([]byte, -end&(align-1))...)
	le.PutUint64(out[32:], uint64(len(out)))
	return append(out, launcher[at:at+size]...)
}
