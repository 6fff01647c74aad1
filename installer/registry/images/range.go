package images

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// A byteRange is a part of a blob, or the whole.
type byteRange struct {
	partial     bool
	first, last int64 // of a partial range, in bytes from the beginning
	size        int64 // of the blob
}

func (b byteRange) length() int64 {
	if !b.partial {
		return b.size
	}
	return b.last - b.first + 1
}

// header sends the status and the length.
func (b byteRange) header(w http.ResponseWriter) {
	w.Header().Set("Content-Length", strconv.FormatInt(b.length(), 10))
	if !b.partial {
		w.WriteHeader(http.StatusOK)
		return
	}
	w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", b.first, b.last, b.size))
	w.WriteHeader(http.StatusPartialContent)
}

// parseRange parses the header Range for a blob (RFC 9110, 14.2). It returns the whole blob if the header is not one
// valid range of bytes, which a server may ignore. It returns false if the range is not in the blob.
func parseRange(header string, size int64) (b byteRange, satisfiable bool) {
	whole := byteRange{size: size}
	text, ok := strings.CutPrefix(header, "bytes=")
	from, to, dash := strings.Cut(text, "-")
	if !ok || !dash {
		return whole, true
	}
	first, fromOK := number(from)
	last, toOK := number(to)
	switch {
	case from == "" && toOK: // the last bytes
		first, last = max(0, size-last), size-1
		if to == "0" {
			return whole, false
		}
	case fromOK && to == "":
		last = size - 1
	case !fromOK || !toOK || last < first:
		return whole, true
	}
	if first >= size {
		return whole, false
	}
	return byteRange{true, first, min(last, size-1), size}, true
}

// number parses digits. A number that is too large is a very large one.
func number(text string) (int64, bool) {
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return 0, false
	}
	n, _ := strconv.ParseInt(text, 10, 64) // the largest if it is out of range
	return n, true
}
