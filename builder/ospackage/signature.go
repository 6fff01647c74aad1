package ospackage

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strings"
)

// signatureOf names the key of an OpenPGP signature, which may be armored, or part of a signed text.
func signatureOf(data []byte) string {
	if _, after, ok := bytes.Cut(data, []byte("-----BEGIN PGP SIGNATURE-----")); ok {
		data = armored(string(after))
	}
	if id := issuer(data); id != "" {
		return "key " + id
	}
	return "a key whose ID is not known"
}

// armored decodes what follows the first line of an armored block: headers, an empty line, base64 and a checksum.
func armored(text string) []byte {
	var body strings.Builder
	begun := false
	for n, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "-") || begun && strings.HasPrefix(line, "="):
			data, _ := base64.StdEncoding.DecodeString(body.String())
			return data
		case begun:
			body.WriteString(line)
		case line == "" && n > 0:
			begun = true
		}
	}
	return nil
}

// issuer returns the ID of the key in a signature packet (RFC 9580), or "".
func issuer(data []byte) string {
	body := packetBody(data)
	switch {
	case len(body) >= 15 && body[0] == 3: // version, length, type, time, key
		return fmt.Sprintf("%X", body[7:15])
	case len(body) < 6 || body[0] != 4:
		return ""
	}
	rest, id := body[4:], ""
	for range 2 { // hashed and unhashed subpackets
		if len(rest) < 2 {
			return id
		}
		n := int(binary.BigEndian.Uint16(rest))
		if len(rest) < 2+n {
			return id
		}
		list := rest[2 : 2+n]
		rest = rest[2+n:]
		for len(list) > 0 {
			size, used := lengthOf(list)
			if used == 0 || size < 1 || size > len(list)-used {
				return id
			}
			kind, content := list[used]&0x7f, list[used+1:used+size]
			switch {
			case kind == 16 && len(content) == 8: // the ID
				return fmt.Sprintf("%X", content)
			case kind == 33 && len(content) == 21 && content[0] == 4: // the fingerprint, which ends with the ID
				id = fmt.Sprintf("%X", content[13:])
			}
			list = list[used+size:]
		}
	}
	return id
}

// packetBody returns the body of a signature packet, nil if data begins with another one.
func packetBody(data []byte) []byte {
	if len(data) < 2 || data[0]&0x80 == 0 {
		return nil
	}
	size, used, tag := 0, 0, data[0]&0x3f
	if data[0]&0x40 != 0 {
		size, used = lengthOf(data[1:])
	} else {
		tag = data[0] >> 2 & 0xf
		used = map[byte]int{0: 1, 1: 2, 2: 4}[data[0]&3]
		if len(data) < 1+used {
			return nil
		}
		for _, b := range data[1 : 1+used] {
			size = size<<8 | int(b)
		}
	}
	if tag != 2 || used == 0 || size > len(data)-1-used {
		return nil
	}
	return data[1+used : 1+used+size]
}

// lengthOf decodes a length of the new format, and how many bytes it has; 0 if it is not one.
func lengthOf(data []byte) (size, used int) {
	switch {
	case len(data) >= 1 && data[0] < 192:
		return int(data[0]), 1
	case len(data) >= 2 && data[0] < 224:
		return (int(data[0])-192)<<8 + int(data[1]) + 192, 2
	case len(data) >= 5 && data[0] == 255:
		return int(binary.BigEndian.Uint32(data[1:])), 5
	}
	return 0, 0
}
