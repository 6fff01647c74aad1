package parts

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// Max is the maximum number of parts: their names have three digits.
const Max = 999

// Path returns the path of part number n, from 1 on, of the file at base.
func Path(base string, n int) string { return fmt.Sprintf("%s.%03d", base, n) }

const listExtension = ".sha256"

// ListPath returns the path of the list of checksums of the file at base.
func ListPath(base string) string { return base + listExtension }

// takenByPattern reports whether the shell's pattern NAME.[0-9]*, which joins the parts of the file
// name, may take a file. Digits depend on the locale, so it does if no ASCII letter follows: the
// signature and other files next to a bundle have letters there.
func takenByPattern(name, file string) bool {
	rest, ok := strings.CutPrefix(file, name+".")
	if !ok || rest == "" {
		return false
	}
	c := rest[0] | 0x20 // lower case
	return c < 'a' || c > 'z'
}

var partName = regexp.MustCompile(`^(.+)\.([0-9]{3})$`)

// Parse returns the file and the number of the part that a path names. The number is 0 for
// a list of checksums.
func Parse(path string) (base string, number int, ok bool) {
	if base, ok := strings.CutSuffix(path, listExtension); ok && filepath.Base(base) != "." {
		return base, 0, true
	}
	m := partName.FindStringSubmatch(path)
	if m == nil {
		return "", 0, false
	}
	number, err := strconv.Atoi(m[2])
	return m[1], number, err == nil && number > 0
}
