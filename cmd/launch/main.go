// Command launch is the first bytes of every bundle file. It takes the real
// installer from the payload behind itself and becomes it: same process, same
// arguments, nothing on the disk. It links a decompressor and little else,
// because it stands in the file uncompressed.
package main

import (
	"fmt"
	"os"
	"time"

	"airlift/bundle/head"
	"airlift/fault"
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
		return fmt.Errorf("finding this program's own file: %w", err)
	}
	// Not opened by its path, where another file may stand by now.
	file, err := os.Open("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("opening this program's own file: %w", err)
	}
	trailer, err := head.Read(file, path)
	if err != nil {
		return err
	}
	payload, err := head.OpenPayload(file, path, trailer)
	if err != nil {
		return err
	}
	env, err := head.HandOver(file, path, started)
	if err != nil {
		return fmt.Errorf("handing over this program's own file: %w", err)
	}
	return become(places(path), env, func(w *os.File) error {
		return head.CopyInstaller(w, payload, path, trailer)
	})
}
