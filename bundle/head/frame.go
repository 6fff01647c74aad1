package head

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
)

// FormatVersion is the version of FORMAT.md that this package writes, and the only one
// that it reads.
const FormatVersion = 1

// Three zstd skippable frames surround the payload: the header precedes it; the digests
// of its pieces and the trailer follow it. The zstd command skips them. FORMAT.md
// specifies each byte.
const (
	// skippableMagic is one of the magic numbers that RFC 8878 (section 3.1.2) reserves
	// for skippable frames, 0x184D2A50 to 0x184D2A5F.
	skippableMagic = 0x184D2A5A

	headerMagic  = "AIRLIFT<"
	trailerMagic = "AIRLIFT>"

	// HeaderSize and TrailerSize are in bytes.
	HeaderSize  = 64
	TrailerSize = 232

	// FootSize is the size of the file's end that has the same layout in every version
	// of the format, so that every reader can name the version of a file: the
	// trailer's size, the version, the magic and the trailer's sha256.
	FootSize = 4 + 4 + len(trailerMagic) + sha256.Size
)

// errNoFrame means that the bytes are not an Airlift frame.
var errNoFrame = errors.New("no frame")

// errDamagedFrame means that a frame does not match its checksum.
var errDamagedFrame = errors.New("checksum mismatch")

type versionError uint32

func (v versionError) Error() string { return fmt.Sprintf("format version %d", uint32(v)) }

// A Header is between launcher and payload. It has the size of the whole file, so that
// a reader of a truncated copy can report how much is missing.
type Header struct {
	FileSize uint64 // in bytes
}

// Encode returns the HeaderSize bytes of h.
func (h Header) Encode() []byte {
	b := make([]byte, 0, HeaderSize)
	b = binary.LittleEndian.AppendUint32(b, skippableMagic)
	b = binary.LittleEndian.AppendUint32(b, HeaderSize-8)
	b = append(b, headerMagic...)
	b = binary.LittleEndian.AppendUint32(b, FormatVersion)
	b = binary.LittleEndian.AppendUint32(b, 0) // reserved
	b = binary.LittleEndian.AppendUint64(b, h.FileSize)
	sum := sha256.Sum256(b)
	return append(b, sum[:]...)
}

// decodeHeader decodes HeaderSize bytes. The error is errNoFrame, errDamagedFrame or a
// versionError.
func decodeHeader(b []byte) (Header, error) {
	if len(b) != HeaderSize || string(b[8:16]) != headerMagic {
		return Header{}, errNoFrame
	}
	if sum := sha256.Sum256(b[:32]); !bytes.Equal(sum[:], b[32:]) {
		return Header{}, errDamagedFrame
	}
	if v := binary.LittleEndian.Uint32(b[16:]); v != FormatVersion {
		return Header{}, versionError(v)
	}
	h := Header{FileSize: binary.LittleEndian.Uint64(b[24:])}
	if !bytes.Equal(h.Encode(), b) { // frame magic, frame size, reserved
		return Header{}, errDamagedFrame
	}
	return h, nil
}

// A Trailer is the end of the file. It describes the rest. Sizes are in bytes. The file has the
// fields in this order.
type Trailer struct {
	PayloadOffset   uint64 // in the file
	PayloadSize     uint64 // of the compressed payload
	HeadSize        uint64 // of its first part, compressed
	BinariesSize    uint64 // of its second part, compressed; 0 if there is none
	ManifestSize    uint64 // of manifest.json, uncompressed
	InstallerSize   uint64 // of the installer, uncompressed
	LauncherSHA256  [sha256.Size]byte
	DigestsSHA256   [sha256.Size]byte // of the frame between payload and trailer
	ManifestSHA256  [sha256.Size]byte
	InstallerSHA256 [sha256.Size]byte
}

// FileSize is the size of the whole file, or 0 if the fields overflow.
func (t Trailer) FileSize() uint64 {
	const most = 1 << 62
	if t.PayloadOffset < HeaderSize || t.PayloadOffset > most || t.PayloadSize > MaxPayload {
		return 0
	}
	return t.PayloadOffset + t.PayloadSize + DigestsSize(t.PayloadSize) + TrailerSize
}

// partsFit reports whether the payload is larger than its first two parts together.
func (t Trailer) partsFit() bool {
	return t.HeadSize > 0 && t.HeadSize < t.PayloadSize && t.BinariesSize < t.PayloadSize-t.HeadSize
}

// Encode returns the TrailerSize bytes of t.
func (t Trailer) Encode() []byte {
	b := make([]byte, 0, TrailerSize)
	b = binary.LittleEndian.AppendUint32(b, skippableMagic)
	b = binary.LittleEndian.AppendUint32(b, TrailerSize-8)
	b, _ = binary.Append(b, binary.LittleEndian, t) // fields of fixed size
	b = binary.LittleEndian.AppendUint32(b, TrailerSize)
	b = binary.LittleEndian.AppendUint32(b, FormatVersion)
	b = append(b, trailerMagic...)
	sum := sha256.Sum256(b)
	return append(b, sum[:]...)
}

// DecodeTrailer decodes the last TrailerSize bytes of a file. The error is errNoFrame,
// errDamagedFrame or a versionError.
//
// It does not compare the checksum of another version's trailer, which may be longer
// than tail. At worst it reports a flipped bit in the version as an unknown version.
func DecodeTrailer(tail []byte) (Trailer, error) {
	if len(tail) != TrailerSize {
		return Trailer{}, errNoFrame
	}
	foot := tail[TrailerSize-FootSize:]
	if string(foot[8:16]) != trailerMagic {
		return Trailer{}, errNoFrame
	}
	if v := binary.LittleEndian.Uint32(foot[4:]); v != FormatVersion {
		return Trailer{}, versionError(v)
	}
	var t Trailer
	_, _ = binary.Decode(tail[8:], binary.LittleEndian, &t) // the tail is longer
	if !bytes.Equal(t.Encode(), tail) {
		return Trailer{}, errDamagedFrame
	}
	return t, nil
}
