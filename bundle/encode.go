package bundle

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"airlift/bundle/head"
	"airlift/internal/fault"
)

// The first two entries of the payload. The trailer has their sizes and digests; the manifest has
// the sizes and digests of all other entries.
const (
	ManifestName  = "manifest.json"
	InstallerName = "install"
)

// Encode checks m and returns its canonical bytes, the only encoding that
// DecodeManifest accepts.
func (m *Manifest) Encode() ([]byte, error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	b := m.canonical()
	if len(b) > head.MaxManifest {
		return nil, fmt.Errorf("manifest: %d bytes are more than the %d allowed", len(b), head.MaxManifest)
	}
	return b, nil
}

// canonical returns JSON with two spaces of indentation, without HTML escapes, with []
// for empty lists, and with one newline at the end.
func (m *Manifest) canonical() []byte {
	c := *m
	if m.Base != nil {
		c.Base = &Base{m.Base.ManifestSHA256, append([]string{}, m.Base.Layers...)}
	}
	c.Components = append([]Component{}, m.Components...)
	for i := range c.Components {
		c.Components[i].Entries = append([]string{}, c.Components[i].Entries...)
	}
	c.Images = append([]Image{}, m.Images...)
	for i := range c.Images {
		c.Images[i].Layers = append([]Layer{}, c.Images[i].Layers...)
	}
	c.Entries = append([]Entry{}, m.Entries...)

	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(&c); err != nil {
		panic(err) // strings, integers and slices of them can always be encoded
	}
	return b.Bytes()
}

// DecodeManifest reads an untrusted manifest. Unknown fields, a form other than the
// canonical one and everything that Validate rejects are errors with fault.Bundle.
// The canonical form excludes duplicate keys, keys in another case and everything
// else that two JSON parsers may read differently.
func DecodeManifest(b []byte) (*Manifest, error) {
	var m Manifest
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	err := d.Decode(&m)
	switch {
	case err == nil:
		err = m.Validate()
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		err = errors.New("manifest: truncated")
	default:
		err = fmt.Errorf("manifest: %w", err)
	}
	if err == nil && !bytes.Equal(m.canonical(), b) {
		err = errors.New("manifest: not in canonical form")
	}
	if err != nil {
		return nil, fault.Wrap(err, fault.Bundle, head.HintRebuild)
	}
	return &m, nil
}
