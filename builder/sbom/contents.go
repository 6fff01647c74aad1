package sbom

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// A Kind is what an Item is.
type Kind string

// The kinds of items.
const (
	Bundle    Kind = "bundle"
	Release   Kind = "release"
	Component Kind = "component"
	Binary    Kind = "binary"
	Module    Kind = "module"
	Image     Kind = "image"
	Layer     Kind = "layer"
	Deb       Kind = "deb"
	Apk       Kind = "apk"
	RPM       Kind = "rpm"
	Chart     Kind = "chart"
	Manifest  Kind = "manifest"
	File      Kind = "file"
)

// An Item is one piece of software, or one file.
type Item struct {
	ID         string // unique in the document; the same in every run
	Kind       Kind
	Name       string
	Version    string
	PURL       string // package URL
	SHA256     string // in lower-case hex
	URL        string // where upstream publishes it
	Properties []Property

	// Contains lists the IDs of the items in this one: a component's binaries, an
	// image's layers and packages.
	Contains []string
	// DependsOn lists the IDs of the modules that a binary is built from.
	DependsOn []string
}

// A Property is a fact for which the formats have no field.
type Property struct{ Name, Value string }

// Contents is the software in one bundle, or in a release of Airlift.
type Contents struct {
	Root  *Item   // the bundle or the release
	Items []*Item // without Root, sorted by kind and ID
	// Warnings lists what could not be read and is therefore missing.
	Warnings []string

	byID map[string]*Item
	full bool // there are more than maxItems; no more were added
}

// maxItems bounds the memory for a bundle with hostile layers. A bundle of Kubernetes has
// about 2000 items.
const maxItems = 500_000

// add returns the item with the same kind and key, which is item if there was none.
func (c *Contents) add(key string, item Item) *Item {
	sum := sha256.Sum256([]byte(key))
	item.ID = string(item.Kind) + "-" + identifier(item.Name) + "-" + hex.EncodeToString(sum[:6])
	if old := c.byID[item.ID]; old != nil {
		return old
	}
	if c.full = c.full || len(c.Items) >= maxItems; c.full {
		return &item
	}
	item.Name, item.Version = printable(item.Name), printable(item.Version)
	for i := range item.Properties {
		item.Properties[i].Value = printable(item.Properties[i].Value)
	}
	c.byID[item.ID] = &item
	c.Items = append(c.Items, &item)
	return &item
}

// finish puts everything into an order that does not depend on how it was read.
func (c *Contents) finish() (*Contents, error) {
	if c.full {
		return nil, fmt.Errorf("it has more than %d packages and files", maxItems)
	}
	slices.SortFunc(c.Items, func(a, b *Item) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.ID, b.ID))
	})
	for _, i := range append([]*Item{c.Root}, c.Items...) {
		for _, ids := range []*[]string{&i.Contains, &i.DependsOn} {
			slices.Sort(*ids)
			*ids = slices.Compact(*ids)
		}
	}
	return c, nil
}

// modules adds the modules of a binary, which is nil if Go did not build it.
func (c *Contents) modules(binary *Item, b *goBinary) {
	if b == nil || len(binary.DependsOn) > 0 {
		return
	}
	binary.Properties = append(binary.Properties, Property{"goVersion", printable(b.info.GoVersion)}, Property{"goPackage", printable(b.info.Path)})
	for _, m := range modules(b.info) {
		key := m.PURL
		for _, p := range m.Properties {
			key += " " + p.Name + " " + p.Value
		}
		binary.DependsOn = append(binary.DependsOn, c.add(key, m).ID)
	}
}

func (i *Item) property(name string) string {
	for _, p := range i.Properties {
		if p.Name == name {
			return p.Value
		}
	}
	return ""
}

// identifier returns the characters of a name that SPDX allows in identifiers.
func identifier(name string) string {
	id := strings.Map(func(r rune) rune {
		if r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r) || r == '.' || r == '-') {
			return r
		}
		return '-'
	}, name)
	return strings.Trim(id[:min(len(id), 60)], "-")
}

// printable replaces characters that could confuse a terminal. Names in layers are not
// trusted.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, s)
}
