// Package textfile reads texts in the encodings that editors and PowerShell write.
package textfile

import (
	"bytes"
	"encoding/binary"
	"unicode/utf16"
)

// UTF8 returns a text in UTF-8 without a byte order mark. A text in UTF-16 has one.
func UTF8(content []byte) []byte {
	for mark, order := range map[string]binary.ByteOrder{"\xff\xfe": binary.LittleEndian, "\xfe\xff": binary.BigEndian} {
		if units := make([]uint16, len(content)/2); bytes.HasPrefix(content, []byte(mark)) {
			_, _ = binary.Decode(content, order, units) // its length is right
			return []byte(string(utf16.Decode(units[1:])))
		}
	}
	return bytes.TrimPrefix(content, []byte("\xef\xbb\xbf"))
}
