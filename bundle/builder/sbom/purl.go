package sbom

import (
	"slices"
	"strings"
)

// purl returns a package URL. namespace may have several segments and may be empty, as may
// version. Empty qualifiers are omitted.
//
// https://github.com/package-url/purl-spec
func purl(kind, namespace, name, version string, qualifiers map[string]string) string {
	var b strings.Builder
	b.WriteString("pkg:" + kind + "/")
	for segment := range strings.SplitSeq(namespace, "/") {
		if segment != "" {
			b.WriteString(escape(segment) + "/")
		}
	}
	b.WriteString(escape(name))
	if version != "" {
		b.WriteString("@" + escape(version))
	}
	var pairs []string
	for key, value := range qualifiers {
		if value != "" {
			pairs = append(pairs, key+"="+escape(value))
		}
	}
	slices.Sort(pairs)
	if len(pairs) > 0 {
		b.WriteString("?" + strings.Join(pairs, "&"))
	}
	return b.String()
}

// golangPURL returns the package URL of a Go module. Its type wants lower case.
func golangPURL(path, version string) string {
	path = strings.ToLower(path)
	namespace, name := "", path
	if n := strings.LastIndexByte(path, '/'); n >= 0 {
		namespace, name = path[:n], path[n+1:]
	}
	return purl("golang", namespace, name, version, nil)
}

// escape percent-encodes all but the characters that package URLs leave as they are.
func escape(s string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for _, c := range []byte(s) {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte(".-_~:", c) >= 0 {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		}
	}
	return b.String()
}
