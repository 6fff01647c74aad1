package reconfiguration

import (
	"net/netip"
	"slices"
	"strings"
)

// Mentions reports whether a value has one of the names or addresses of a node as a whole: "https://10.0.0.1:2379" has 10.0.0.1, and
// "10.0.0.11" has not. An address may be written in another form. The name of a host may begin a longer one, or have an ending:
// "cp-1.site.example" and "cp-1.log" have cp-1.
func Mentions(value string, names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		if address, err := netip.ParseAddr(name); err == nil && slices.Contains(addressesIn(value), address.Unmap()) {
			return true
		}
		return mentions(strings.ToLower(value), strings.ToLower(name))
	})
}

// addressesIn returns the addresses in a text.
func addressesIn(text string) (list []netip.Addr) {
	for _, word := range strings.FieldsFunc(text, func(c rune) bool { return c != '.' && c != ':' && !isWord(c) }) {
		if a, err := netip.ParseAddr(word); err == nil {
			list = append(list, a.Unmap())
		} else if a, err := netip.ParseAddrPort(word); err == nil {
			list = append(list, a.Addr().Unmap())
		}
	}
	return list
}

func isWord(c rune) bool {
	return c == '-' || c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// mentions is Mentions for one name, in small letters.
func mentions(value, name string) bool {
	_, err := netip.ParseAddr(name)
	address := err == nil
	part := func(c rune) bool { return isWord(c) && c != '_' || c == '.' || c == ':' && strings.Contains(name, ":") }
	for rest := value; name != ""; {
		before, after, found := strings.Cut(rest, name)
		if !found {
			return false
		}
		before = value[:len(value)-len(rest)+len(before)]
		if (before == "" || !part(rune(before[len(before)-1]))) && (after == "" || !address && after[0] == '.' || !part(rune(after[0]))) {
			return true
		}
		rest = after
	}
	return false
}
