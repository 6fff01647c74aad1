package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"airlift/internal/fault"
)

// binfmtDir is where the kernel lists the interpreters of binaries for other architectures.
const binfmtDir = "/proc/sys/fs/binfmt_misc"

// emulators has the user-mode emulator of QEMU for an architecture, and the first bytes of its ELF
// binaries with a mask, as binfmt_misc reads them.
var emulators = map[string]struct{ binary, magic, mask string }{
	"arm64": {
		"qemu-aarch64-static",
		`\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00`,
		`\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff`,
	},
}

// emulate makes this machine run binaries of another architecture, as debootstrap needs.
func emulate(ctx context.Context, arch string, log func(string, ...any)) error {
	e, ok := emulators[arch]
	if !ok {
		return fault.New(fault.Usage, "no emulator for architecture %q is known", arch).Hint("use amd64 or arm64")
	}
	path, err := exec.LookPath(e.binary)
	if err != nil {
		log("installing qemu-user-static with apt-get")
		if err := run(ctx, "apt-get", "install", "--yes", "--no-install-recommends", "qemu-user-static"); err != nil {
			return fault.Wrap(err, fault.Preflight, "install qemu-user-static yourself")
		}
		if path, err = exec.LookPath(e.binary); err != nil {
			return err
		}
	}
	if _, err := os.Stat(binfmtDir + "/register"); errors.Is(err, fs.ErrNotExist) {
		if err := run(ctx, "mount", "-t", "binfmt_misc", "binfmt_misc", binfmtDir); err != nil {
			return err
		}
	}
	name := strings.TrimSuffix(e.binary, "-static")
	if _, err := os.Stat(filepath.Join(binfmtDir, name)); err == nil {
		return nil // the package has registered it
	}
	// F: the kernel opens the emulator now, so it also works in a chroot.
	rule := fmt.Sprintf(":%s:M::%s:%s:%s:F", name, e.magic, e.mask, path)
	if err := os.WriteFile(binfmtDir+"/register", []byte(rule), 0o200); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("registering %s: %w", e.binary, err)
	}
	return nil
}
