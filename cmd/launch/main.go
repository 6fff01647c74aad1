// Command launch is the beginning of every bundle file. It decompresses the installer
// from the payload of its own file and executes it in the same process, with the same
// arguments and without files on the disk. It links a decompressor and little else,
// because it is not compressed in the file.
package main

import (
	"fmt"
	"os"
	"time"

	"airlift/bundle/head"
	"airlift/internal/fault"
)

func main() {
	err := launch(time.Now())
	fault.Print(os.Stderr, err)
	os.Exit(int(fault.ExitCode(err)))
}

// launch returns only if the installer could not be started.
func launch(started time.Time) error {
	path, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this executable: %w", err)
	}
	// Not opened by its path, which may refer to another file by now.
	file, err := os.Open("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("opening this executable: %w", err)
	}
	trailer, content, err := head.Read(file, path)
	if err != nil {
		return err
	}
	payload, err := head.OpenPayload(content, path, trailer)
	if err != nil {
		return err
	}
	env, err := head.HandOver(file, path, started)
	if err != nil {
		return fmt.Errorf("passing this executable to the installer: %w", err)
	}
	return become(places(path), env, func(w *os.File) error {
		return head.CopyInstaller(w, payload, path, trailer)
	})
}
