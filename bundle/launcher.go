package bundle

import (
	"io"

	"airlift/bundle/head"
)

// Launcher reads the program at the head of the file. It is valid until the
// file is closed.
func (f *File) Launcher() *io.SectionReader {
	return io.NewSectionReader(f.file, 0, f.PayloadOffset()-head.HeaderSize)
}
