package sbom

import (
	"net/url"
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
	n := strings.LastIndexByte(path, '/')
	return purl("golang", path[:n+1], path[n+1:], version, nil)
}

// escape percent-encodes all but the characters that package URLs leave as they are.
func escape(s string) string {
	return strings.NewReplacer("+", "%20", "%3A", ":").Replace(url.QueryEscape(s))
}
