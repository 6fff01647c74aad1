package config

import (
	"net/netip"
	"strings"
)

// CIDRs are address ranges: one, or two for dual-stack. They are parsed once,
// where they are read. Text that is not a list of ranges is kept, and validation
// reports it with its place in the file.
type CIDRs struct {
	prefixes []netip.Prefix
	text     string // as the user wrote it, for manifests
	invalid  string // the first part of text that is not a range
}

// ParseCIDRs parses ranges that are separated by a comma.
func ParseCIDRs(text string) CIDRs {
	c := CIDRs{text: text}
	if text == "" {
		return c
	}
	for _, part := range strings.Split(text, ",") {
		p, err := netip.ParsePrefix(part)
		if err != nil {
			return CIDRs{text: text, invalid: part}
		}
		c.prefixes = append(c.prefixes, p)
	}
	return c
}

// Prefixes are the ranges, in the user's order; none where the text is invalid.
func (c CIDRs) Prefixes() []netip.Prefix { return c.prefixes }

// Empty reports whether nothing was given.
func (c CIDRs) Empty() bool { return c.text == "" }

// Invalid is the first part that is not a range, "" where all are.
func (c CIDRs) Invalid() string { return c.invalid }

// String is the ranges as kubeadm's fields and Kubernetes' flags have them.
func (c CIDRs) String() string { return c.text }

// Equal reports whether both were written in the same way.
func (c CIDRs) Equal(other CIDRs) bool { return c.text == other.text }

// Set and Type make CIDRs the value of a flag.
func (c *CIDRs) Set(text string) error {
	*c = ParseCIDRs(text)
	return nil
}

// Type is the flag's type in help text.
func (c *CIDRs) Type() string { return "string" }

// setDefault sets the ranges where none were given.
func (c *CIDRs) setDefault(text string) {
	if c.Empty() {
		*c = ParseCIDRs(text)
	}
}

// MarshalText and UnmarshalText make CIDRs a text of a configuration file.
func (c CIDRs) MarshalText() ([]byte, error) { return []byte(c.text), nil }

// UnmarshalText keeps a text that is not a list of ranges.
func (c *CIDRs) UnmarshalText(text []byte) error { return c.Set(string(text)) }

// Families reports which address families the ranges have.
func (c CIDRs) Families() (ipv4, ipv6 bool) {
	for _, p := range c.prefixes {
		ipv4 = ipv4 || p.Addr().Is4()
		ipv6 = ipv6 || p.Addr().Is6()
	}
	return ipv4, ipv6
}
