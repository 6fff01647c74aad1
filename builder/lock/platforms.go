package lock

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// Platforms is the content of a file: a lock for each platform, by platform.
type Platforms []*Lock

// several is a file with the locks of several platforms.
type several struct {
	FormatVersion int    `json:"formatVersion"`
	Platforms     []Lock `json:"platforms"`
}

// Of returns the lock for a platform, or nil.
func (p Platforms) Of(platform string) *Lock {
	n := slices.IndexFunc(p, func(l *Lock) bool { return l.Platform == platform })
	if n < 0 {
		return nil
	}
	return p[n]
}

// Names returns the names of the platforms.
func (p Platforms) Names() (names []string) {
	for _, l := range p {
		names = append(names, l.Platform)
	}
	return names
}

// Encode returns the content of the file. Equal locks have equal bytes.
func (p Platforms) Encode() ([]byte, error) {
	var content any
	if len(p) == 1 {
		content = p[0].normal()
	} else {
		all := several{FormatVersion: SeveralFormatVersion}
		for _, l := range p {
			one := l.normal()
			one.FormatVersion = 0
			all.Platforms = append(all.Platforms, one)
		}
		slices.SortFunc(all.Platforms, func(x, y Lock) int { return strings.Compare(x.Platform, y.Platform) })
		content = all
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(content)
	return out.Bytes(), err
}
