package bundle

import (
	"context"
	"io"
)

// CopyInstaller writes the installer to w and compares it with its sha256.
func (f *File) CopyInstaller(ctx context.Context, w io.Writer) error {
	u, err := newUnpacker(ctx, f, true)
	if err != nil {
		return err
	}
	defer u.close()
	if err := u.begin(f.part(HeadPart)); err != nil {
		return err
	}
	if err := u.pass(manifestEntry(f.trailer)); err != nil {
		return err
	}
	if err := u.open(f.Installer()); err != nil {
		return err
	}
	_, err = io.CopyBuffer(struct{ io.Writer }{w}, u, make([]byte, chunkSize))
	return err
}
