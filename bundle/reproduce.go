package bundle

import (
	"bytes"
	"context"
	"crypto/sha256"
	"io"

	"airlift/internal/fault"
)

// Level returns the level with which WriteDraft compresses the head of the file to the same bytes.
// No such level is an error: another encoder wrote the file, or another version of this one.
func (f *File) Level(ctx context.Context) (Level, error) {
	m, err := f.Manifest()
	if err != nil {
		return 0, err
	}
	manifest, err := m.Encode()
	if err != nil {
		return 0, err
	}
	var installer bytes.Buffer
	if err := f.CopyInstaller(ctx, &installer); err != nil {
		return 0, err
	}
	part := f.part(HeadPart)
	want := sha256.New()
	if _, err := io.Copy(want, f.payload.Section(part.Offset, part.Size)); err != nil {
		return 0, f.readError(err)
	}
	for _, l := range []Level{Fastest, Default, Best} {
		if l.Check() != nil {
			continue
		}
		got := sha256.New()
		w := payloadWriter{level: l, open: func(e Entry) (io.ReadCloser, error) {
			if e.Name == ManifestName {
				return io.NopCloser(bytes.NewReader(manifest)), nil
			}
			return io.NopCloser(bytes.NewReader(installer.Bytes())), nil
		}}
		if err := w.part(ctx, got, part.Name, f.headEntries()); err != nil {
			return 0, err
		}
		if bytes.Equal(got.Sum(nil), want.Sum(nil)) {
			return l, nil
		}
	}
	return 0, fault.New(fault.Failure, "%s was not compressed by this version of bundle: it cannot be compressed again to the same bytes", f.path).
		Hint("build it with this version of bundle, and with --compression default")
}
