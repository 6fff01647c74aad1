package sbom

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"airlift/bundle"
	"airlift/internal/fault"
)

// A Format is a file format for the list.
type Format string

// The formats.
const (
	SPDX      Format = "spdx-json"
	CycloneDX Format = "cyclonedx-json"
)

// Formats lists the names of the formats.
func Formats() []string { return []string{string(SPDX), string(CycloneDX)} }

// ParseFormat returns the format called name.
func ParseFormat(name string) (Format, error) {
	if !slices.Contains(Formats(), name) {
		return "", fault.New(fault.Usage, "unknown SBOM format %q", name).Hint("use one of " + strings.Join(Formats(), ", "))
	}
	return Format(name), nil
}

// Path returns the path of the list of the bundle at path.
func (f Format) Path(path string) string {
	if f == SPDX {
		return path + ".spdx.json"
	}
	return path + ".cdx.json"
}

// Entry is the name of the list's entry in a bundle.
func (f Format) Entry() string { return f.Path(bundle.SBOMDir + "bundle") }

// Encode returns the list in a format. created is its time of creation.
func (c *Contents) Encode(f Format, created time.Time) ([]byte, error) {
	if f == SPDX {
		return c.spdx(created)
	}
	return c.cycloneDX(created)
}

// unique encodes a document twice: first without an identifier, then with an identifier
// that follows from all the rest. So different documents have different identifiers, and
// the same document always has the same one.
func unique(encode func(w *bytes.Buffer, sum []byte) error) ([]byte, error) {
	var b bytes.Buffer
	if err := encode(&b, make([]byte, sha256.Size)); err != nil {
		return nil, err
	}
	sum := sha256.Sum256(b.Bytes())
	b.Reset()
	err := encode(&b, sum[:])
	return b.Bytes(), err
}

// CreatedIn returns the time of creation in a list.
func CreatedIn(f Format, list []byte) (time.Time, error) {
	var doc struct {
		CreationInfo struct{ Created string } // SPDX
		Metadata     struct{ Timestamp string }
	}
	if err := json.Unmarshal(list, &doc); err != nil {
		return time.Time{}, err
	}
	if f == SPDX {
		return time.Parse(time.RFC3339, doc.CreationInfo.Created)
	}
	return time.Parse(time.RFC3339, doc.Metadata.Timestamp)
}

// Created is the creation time in a list: SOURCE_DATE_EPOCH, in seconds since 1970, or 1970 by
// default. So the same file gives the same list.
//
// https://reproducible-builds.org/specs/source-date-epoch/
func Created() (time.Time, error) {
	value := os.Getenv("SOURCE_DATE_EPOCH")
	if value == "" {
		return time.Unix(0, 0).UTC(), nil
	}
	seconds, err := strconv.ParseInt(value, 10, 64)
	if err != nil || seconds < 0 || seconds > 253402300799 { // the end of 9999
		return time.Time{}, fault.New(fault.Usage, "SOURCE_DATE_EPOCH is %q", value).Hint("set it to seconds since 1970, or unset it")
	}
	return time.Unix(seconds, 0).UTC(), nil
}
