package parts

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"airlift/internal/documents/textfile"
	"airlift/internal/fault"
)

func appendLine(list, sum []byte, path string) []byte {
	return fmt.Appendf(list, "%x  %s\n", sum, filepath.Base(path))
}

// maxList limits the size of a list in bytes.
const maxList = 1 << 20

// listLine matches a line of sha256sum. With --binary, it writes * before the name.
var listLine = regexp.MustCompile(`^([0-9a-fA-F]{64}) [ *](.+)$`)

// readList reads the list of the file at base: the sha256 in hex by file name. It returns
// nil if there is none. Each line must name the file or one of its parts.
func readList(base string) (map[string]string, error) {
	f, err := os.Open(ListPath(base))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fault.Wrap(err, fault.Bundle, "")
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxList))
	if err != nil {
		return nil, fault.Wrap(err, fault.Bundle, "")
	}
	sums := map[string]string{}
	for line := range strings.Lines(string(textfile.UTF8(text))) {
		if line = strings.TrimRight(line, "\r\n"); line == "" {
			continue
		}
		m := listLine.FindStringSubmatch(line)
		if m == nil {
			return nil, fault.New(fault.Bundle, "%s is damaged: %q is not a line of sha256sum", ListPath(base), line).Hint("copy the list again")
		}
		sum, name := m[1], m[2]
		if of, n, ok := Parse(name); name != filepath.Base(base) && (!ok || n == 0 || of != filepath.Base(base)) {
			return nil, fault.New(fault.Bundle, "%s names %q, which is neither %s nor a part of it", ListPath(base), name, filepath.Base(base)).Hint("copy the list again")
		}
		if sums[name] != "" {
			return nil, fault.New(fault.Bundle, "%s names %q twice", ListPath(base), name).Hint("copy the list again")
		}
		sums[name] = strings.ToLower(sum)
	}
	return sums, nil
}
