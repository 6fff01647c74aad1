package sbom

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// An Executable is a program that Go built, for any operating system.
type Executable struct {
	Name     string // "bundle"
	Platform string // "windows/arm64"
	Content  []byte
	// Embedded lists the binaries inside Content, which Content's own Go build information does not
	// list.
	Embedded []Executable
}

// Executables lists the programs of a release of Airlift with the modules that they are built
// from. A program without Go's build information is an error, because the list would be
// incomplete.
func Executables(version string, programs []Executable) (*Contents, error) {
	c := &Contents{byID: map[string]*Item{}}
	c.Root = &Item{ID: "release", Kind: Release, Name: "airlift", Version: version, PURL: purl("generic", "", "airlift", version, nil)}
	for _, p := range programs {
		item, err := c.executable(version, p)
		if err != nil {
			return nil, err
		}
		c.Root.Contains = append(c.Root.Contains, item.ID)
	}
	return c.finish()
}

// executable adds a program, its modules and what is embedded in it.
func (c *Contents) executable(version string, p Executable) (*Item, error) {
	name := p.Name + " " + p.Platform
	info, err := readBuildInfo(bytes.NewReader(p.Content))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	if info == nil {
		return nil, fmt.Errorf("listing the modules of %s: it has no build information of Go", name)
	}
	digest := sha256.Sum256(p.Content)
	sum := hex.EncodeToString(digest[:])
	item := c.add(name, Item{Kind: Binary, Name: name, Version: version, SHA256: sum,
		PURL:       purl("generic", "airlift", p.Name, version, map[string]string{"checksum": "sha256:" + sum, "platform": p.Platform}),
		Properties: []Property{{"platform", p.Platform}}})
	c.modules(item, &goBinary{info: info})
	for _, e := range p.Embedded {
		inner, err := c.executable(version, e)
		if err != nil {
			return nil, err
		}
		item.Contains = append(item.Contains, inner.ID)
	}
	return item, nil
}
