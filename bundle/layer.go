package bundle

import (
	"archive/tar"
	"fmt"
	"io"
	"strings"
)

// unpacked are the types of entries in a tar archive that containerd unpacks or ignores. It refuses others.
const unpacked = string(tar.TypeReg) + string(tar.TypeLink) + string(tar.TypeSymlink) + string(tar.TypeChar) + string(tar.TypeBlock) +
	string(tar.TypeDir) + string(tar.TypeFifo) + string(tar.TypeXGlobalHeader)

// CheckLayer reads a layer, and returns an error unless it is a tar archive that containerd can unpack.
func CheckLayer(r io.Reader) error {
	for t := tar.NewReader(r); ; {
		h, err := t.Next()
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return fmt.Errorf("it is not a tar archive: %w", err)
		case strings.IndexByte(unpacked, h.Typeflag) < 0:
			return fmt.Errorf("its file %q is of type %q, which containerd does not unpack", h.Name, h.Typeflag)
		}
	}
}
