package documents

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"
)

// marks are the byte order marks of other encodings than UTF-8, the longest first.
var marks = []struct{ mark, name string }{
	{"\xff\xfe\x00\x00", "UTF-32"}, {"\x00\x00\xfe\xff", "UTF-32"}, {"\xff\xfe", "UTF-16"}, {"\xfe\xff", "UTF-16"},
}

// CheckEncoding returns an error for a stream that is not UTF-8.
func CheckEncoding(stream []byte) *Error {
	for _, m := range marks {
		if bytes.HasPrefix(stream, []byte(m.mark)) {
			return &Error{1, 1, 1, fmt.Sprintf("the text is %s, not UTF-8: convert it, for example with iconv -f %[1]s -t UTF-8", m.name)}
		}
	}
	line := func(at int) int { return 1 + bytes.Count(stream[:at], []byte("\n")) }
	if at := bytes.IndexByte(stream, 0); at >= 0 {
		zeros := bytes.Count(stream, []byte{0})
		if zeros < len(stream)/4 {
			return &Error{line(at), 1, 1, "there is a zero byte: the file is damaged or not a text; copy it again"}
		}
		like := []string{"UTF-16BE", "UTF-16LE"}[at%2]
		if zeros > len(stream)/2 {
			like = strings.Replace(like, "16", "32", 1)
		}
		return &Error{line(at), 1, 1, fmt.Sprintf("there is a zero byte, as in %s: convert the text, for example with iconv -f %[1]s -t UTF-8", like)}
	}
	for at := 0; at < len(stream); {
		c, size := utf8.DecodeRune(stream[at:])
		if c == utf8.RuneError && size == 1 {
			return &Error{line(at), 1, 1, fmt.Sprintf("byte 0x%02x is not UTF-8: convert the text, for example with iconv -f ISO-8859-1 -t UTF-8", stream[at])}
		}
		at += size
	}
	return nil
}
