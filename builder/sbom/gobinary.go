package sbom

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"

	"airlift/internal/space"
)

// maxBinary bounds an executable that is searched for build information, in bytes. The
// largest of Kubernetes has 130 MB.
const maxBinary = 1 << 30

// maxModules bounds the modules of one binary. The largest of Kubernetes has 300.
const maxModules = 20_000

// A goBinary is an executable that Go built.
type goBinary struct {
	sha256 string
	info   *debug.BuildInfo
}

const elfMagic = "\x7fELF"

// A spool keeps one executable at a time in an unlinked temporary file, because
// debug/buildinfo reads an executable in any order.
type spool struct{ file *os.File }

func newSpool() (*spool, error) {
	f, err := space.Temporary("airlift-sbom-*")
	if err != nil {
		return nil, err
	}
	return &spool{f}, nil
}

func (s *spool) close() { s.file.Close() }

func (s *spool) empty() error {
	if err := s.file.Truncate(0); err != nil {
		return err
	}
	_, err := s.file.Seek(0, io.SeekStart)
	return err
}

// A tooLarge error is about content that was not read because it is too large.
type tooLarge struct {
	what  string
	limit int64
}

func (e tooLarge) Error() string {
	return fmt.Sprintf("%s has more than %d bytes", e.what, e.limit)
}

// read returns the executable in r, or nil if Go did not build it. Errors of r are
// returned as they are.
func (s *spool) read(r io.Reader) (*goBinary, error) {
	if err := s.empty(); err != nil {
		return nil, err
	}
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(s.file, sum), io.LimitReader(r, maxBinary+1))
	if err != nil {
		return nil, space.Explain(os.TempDir(), err)
	}
	if n > maxBinary {
		return nil, tooLarge{"the executable", maxBinary}
	}
	info, err := readBuildInfo(s.file)
	if info == nil || err != nil {
		return nil, err
	}
	return &goBinary{hex.EncodeToString(sum.Sum(nil)), info}, nil
}

// readBuildInfo returns nil for an executable without build information. Its error is of reading r.
func readBuildInfo(r io.ReaderAt) (*debug.BuildInfo, error) {
	in := &input{ReaderAt: r}
	info, err := buildinfo.Read(in)
	if in.err != nil {
		return nil, in.err
	}
	if err != nil || len(info.Deps) > maxModules {
		return nil, nil
	}
	return info, nil
}

// An input is a reader that keeps its error: debug/buildinfo returns the same for a file that cannot be
// read and for one that is no executable.
type input struct {
	io.ReaderAt
	err error // not io.EOF
}

func (i *input) ReadAt(p []byte, at int64) (int, error) {
	n, err := i.ReaderAt.ReadAt(p, at)
	if err != nil && err != io.EOF {
		i.err = err
	}
	return n, err
}

// modules returns the modules of a binary as items, with Go's standard library, which has
// the version of the toolchain.
func modules(info *debug.BuildInfo) []Item {
	var items []Item
	version, _, _ := strings.Cut(strings.TrimPrefix(info.GoVersion, "go"), " ") // "go1.26.8 X:boringcrypto"
	if version != "" {
		items = append(items, Item{Kind: Module, Name: "stdlib", Version: "go" + version, PURL: golangPURL("stdlib", version)})
	}
	if info.Main.Path != "" {
		items = append(items, module(&info.Main))
	}
	for _, d := range info.Deps {
		items = append(items, module(d))
	}
	return items
}

// module returns the module that was compiled: the replacement, if there is one. A directory
// that replaces a module has no name or version of its own.
func module(m *debug.Module) Item {
	i := Item{Kind: Module, Name: m.Path, Version: m.Version}
	if r := m.Replace; r != nil {
		if r.Version == "" {
			i.Properties = append(i.Properties, Property{"replacedBy", r.Path})
		} else {
			i.Name, i.Version = r.Path, r.Version
			i.Properties = append(i.Properties, Property{"replaces", strings.TrimSpace(m.Path + " " + m.Version)})
		}
	}
	version := i.Version
	if version == "(devel)" {
		version = ""
	}
	i.PURL = golangPURL(i.Name, version)
	return i
}
