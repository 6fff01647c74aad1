package sitefile

import (
	"io"
	"os"
	"path/filepath"

	"go.yaml.in/yaml/v3"

	"airlift/internal/documents/problems"
	"airlift/internal/fault"
)

// maxSize is the maximum size of bundle.yaml in bytes. Manifests and files are not in it, so
// a larger one is another file by mistake.
const maxSize = 4 << 20

// A reader reads one file and collects all of its problems, so that the user can correct them
// at once.
type reader struct {
	problems problems.List
	given    func(field string) bool
	root     yaml.Node         // for lines
	written  map[string]string // paths in the file, by the path that is opened
}

// resolve returns a path that is relative to the file's directory.
func (r *reader) resolve(path string) string {
	opened := filepath.Clean(path)
	if !filepath.IsAbs(path) {
		opened = filepath.Join(filepath.Dir(r.problems.File), path)
	}
	r.written[opened] = path
	return opened
}

func (r *reader) load() ([]byte, error) {
	const hint = `give the file with --file; "bundle init" writes an example`
	f, err := os.Open(r.problems.File)
	if err != nil {
		return nil, fault.Wrap(err, fault.Usage, hint)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err != nil {
		return nil, fault.Wrap(err, fault.Usage, hint)
	}
	if len(data) > maxSize {
		return nil, fault.New(fault.Usage, "%q has more than the %d bytes allowed for such a file", r.problems.File, maxSize).Hint(hint)
	}
	return data, nil
}
