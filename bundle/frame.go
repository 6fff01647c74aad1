package bundle

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
)

// FormatVersion is the version of FORMAT.md that this package writes, and the
// only one it reads.
const FormatVersion = 1

// Around the payload stand two small zstd skippable frames: the header before
// it, the trailer behind it. Stock zstd steps over both. FORMAT.md draws them
// byte by byte.
const (
	// skippableMagic is one of the sixteen magic numbers RFC 8878 (section
	// 3.1.2) reserves for skippable frames, 0x184D2A50 to 0x184D2A5F.
	skippableMagic = 0x184D2A5A

	headerMagic  = "AIRLIFT<"
	trailerMagic = "AIRLIFT>"

	headerSize  = 64
	trailerSize = 176

	// footSize bytes at the very end are laid out alike in every version of
	// the format, so that any reader can name the version of any file: the
	// trailer's size, the version, the magic and the trailer's own sha256.
	footSize = 4 + 4 + len(trailerMagic) + sha256.Size
)

// errNoFrame says that the bytes are not one of Airlift's frames at all.
var errNoFrame = errors.New("no frame")

// errDamagedFrame says that a frame's own checksum does not hold.
var errDamagedFrame = errors.New("checksum mismatch")

// A versionError reports a frame of a version other than FormatVersion.
type versionError uint32

func (v versionError) Error() string { return fmt.Sprintf("format version %d", uint32(v)) }

// A header stands where the stub ends and the payload has yet to begin. It
// says how long the whole file is, so that a copy cut short anywhere behind it
// can say how much is missing.
type header struct {
	fileSize uint64
}

func (h header) encode() []byte {
	b := make([]byte, 0, headerSize)
	b = binary.LittleEndian.AppendUint32(b, skippableMagic)
	b = binary.LittleEndian.AppendUint32(b, headerSize-8)
	b = append(b, headerMagic...)
	b = binary.LittleEndian.AppendUint32(b, FormatVersion)
	b = binary.LittleEndian.AppendUint32(b, 0) // reserved
	b = binary.LittleEndian.AppendUint64(b, h.fileSize)
	sum := sha256.Sum256(b)
	return append(b, sum[:]...)
}

// decodeHeader reads a header from exactly headerSize bytes. The error is
// errNoFrame, errDamagedFrame or a versionError.
func decodeHeader(b []byte) (header, error) {
	if len(b) != headerSize || string(b[8:16]) != headerMagic {
		return header{}, errNoFrame
	}
	if sum := sha256.Sum256(b[:32]); !bytes.Equal(sum[:], b[32:]) {
		return header{}, errDamagedFrame
	}
	if v := binary.LittleEndian.Uint32(b[16:]); v != FormatVersion {
		return header{}, versionError(v)
	}
	h := header{fileSize: binary.LittleEndian.Uint64(b[24:])}
	if !bytes.Equal(h.encode(), b) { // frame magic, frame size, reserved
		return header{}, errDamagedFrame
	}
	return h, nil
}

// A trailer is the last thing in the file and says what the rest must be.
type trailer struct {
	payloadOffset uint64 // where the payload begins, in bytes from the file's first
	payloadSize   uint64 // of the compressed payload
	manifestSize  uint64 // of manifest.json, uncompressed
	stubSHA256    [sha256.Size]byte
	payloadSHA256 [sha256.Size]byte
	manifestSHA   [sha256.Size]byte
}

// fileSize is the size of the whole file the trailer ends, or 0 where the
// fields are absurd enough to overflow.
func (t trailer) fileSize() uint64 {
	const most = 1 << 62
	if t.payloadOffset < headerSize || t.payloadOffset > most || t.payloadSize > most {
		return 0
	}
	return t.payloadOffset + t.payloadSize + trailerSize
}

func (t trailer) encode() []byte {
	b := make([]byte, 0, trailerSize)
	b = binary.LittleEndian.AppendUint32(b, skippableMagic)
	b = binary.LittleEndian.AppendUint32(b, trailerSize-8)
	b = binary.LittleEndian.AppendUint64(b, t.payloadOffset)
	b = binary.LittleEndian.AppendUint64(b, t.payloadSize)
	b = binary.LittleEndian.AppendUint64(b, t.manifestSize)
	b = append(b, t.stubSHA256[:]...)
	b = append(b, t.payloadSHA256[:]...)
	b = append(b, t.manifestSHA[:]...)
	b = binary.LittleEndian.AppendUint32(b, trailerSize)
	b = binary.LittleEndian.AppendUint32(b, FormatVersion)
	b = append(b, trailerMagic...)
	sum := sha256.Sum256(b)
	return append(b, sum[:]...)
}

// decodeTrailer reads a trailer from the last trailerSize bytes of a file. The
// error is errNoFrame, errDamagedFrame or a versionError.
//
// The checksum of another version's trailer is not looked at: it may be longer
// than tail. At worst a flipped bit in the version is reported as a version
// that does not exist.
func decodeTrailer(tail []byte) (trailer, error) {
	if len(tail) != trailerSize {
		return trailer{}, errNoFrame
	}
	foot := tail[trailerSize-footSize:]
	if string(foot[8:16]) != trailerMagic {
		return trailer{}, errNoFrame
	}
	if v := binary.LittleEndian.Uint32(foot[4:]); v != FormatVersion {
		return trailer{}, versionError(v)
	}
	t := trailer{
		payloadOffset: binary.LittleEndian.Uint64(tail[8:]),
		payloadSize:   binary.LittleEndian.Uint64(tail[16:]),
		manifestSize:  binary.LittleEndian.Uint64(tail[24:]),
		stubSHA256:    [sha256.Size]byte(tail[32:]),
		payloadSHA256: [sha256.Size]byte(tail[64:]),
		manifestSHA:   [sha256.Size]byte(tail[96:]),
	}
	if !bytes.Equal(t.encode(), tail) {
		return trailer{}, errDamagedFrame
	}
	return t, nil
}
