package atomicfile

import (
	"io"
	"os"
)

// hold does nothing: Windows does not remove a file that is open.
func hold(file *os.File) (held io.Closer, ok bool) { return io.NopCloser(nil), true }

// removeUnheld leaves the file: another process may have closed it before it gets its name.
func removeUnheld(string) {}
