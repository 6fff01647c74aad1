package doctor

import (
	"archive/tar"
	"compress/gzip"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/klauspost/compress/zstd"

	"airlift/internal/fault"
)

// The user nobody owns the entries: when root unpacks the archive, root must not own the files.
const nobody = 65534

// FileName is the default name of the archive.
func (r *Report) FileName() string { return r.directory() + ".tar.gz" }

// directory is the one directory in the archive.
func (r *Report) directory() string {
	return fmt.Sprintf("doctor-%s-%s", strings.ReplaceAll(r.Host, "/", "-"), r.Began.UTC().Format("20060102T150405Z"))
}

// CheckName refuses a name whose format is not known.
func CheckName(name string) error {
	for _, suffix := range []string{".tar.gz", ".tgz", ".tar.zst"} {
		if strings.HasSuffix(name, suffix) {
			return nil
		}
	}
	return fault.New(fault.Usage, "the archive's name %q must end with .tar.gz, .tgz or .tar.zst", name).Hint("for example: ./install doctor host1.tar.gz")
}

// WriteArchive writes a tar archive with the compression that its name asks for. Only its
// owner may read an entry.
func (r *Report) WriteArchive(out io.Writer, name string) error {
	var compressed io.WriteCloser
	if strings.HasSuffix(name, ".zst") {
		var err error
		if compressed, err = zstd.NewWriter(out); err != nil {
			return err
		}
	} else {
		compressed = gzip.NewWriter(out)
	}
	archive := tar.NewWriter(compressed)
	owner := tar.Header{Uid: nobody, Gid: nobody, Uname: "nobody", Gname: "nogroup", ModTime: r.Began.UTC().Truncate(1e9), Format: tar.FormatPAX}
	directory := owner
	directory.Typeflag, directory.Name, directory.Mode = tar.TypeDir, r.directory()+"/", 0o700
	if err := archive.WriteHeader(&directory); err != nil {
		return err
	}
	for _, e := range r.Entries {
		file := owner
		file.Typeflag, file.Name, file.Mode, file.Size = tar.TypeReg, path.Join(r.directory(), e.Name), 0o600, int64(len(e.Content))
		if err := archive.WriteHeader(&file); err != nil {
			return err
		}
		if _, err := archive.Write(e.Content); err != nil {
			return err
		}
	}
	if err := archive.Close(); err != nil {
		return err
	}
	return compressed.Close()
}
