package compile

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"airlift/scripts/oracle/upstream/components"
	"airlift/scripts/oracle/upstream/debian"
)

// compileArchive compiles a C program from a release archive with Kconfig (busybox): its default
// configuration with the recipe's settings. Next to each program it writes NAME.links, the list of
// its commands, which busybox's makefile makes.
func (b *Builder) compileArchive(ctx context.Context, r components.Recipe, tools toolchain, out string) error {
	dir, err := b.tempDir("source")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	archive, err := debian.DownloadSource(ctx, dir, r.Archive.Package, r.Archive.File, r.Archive.SHA256)
	if err != nil {
		return err
	}
	env := []string{"KCONFIG_NOTIMESTAMP=1"} // the same bytes each time
	run := func(name string, args ...string) error {
		_, err := b.run(ctx, dir, env, name, args...)
		return err
	}
	if err := run("tar", "-xf", archive, "--strip-components=1"); err != nil {
		return err
	}
	if err := run("make", "defconfig"); err != nil {
		return err
	}
	config := filepath.Join(dir, ".config")
	text, err := os.ReadFile(config)
	if err != nil {
		return err
	}
	if text, err = configured(text, r.Archive.Settings); err != nil {
		return fmt.Errorf("%s: %w", r.Archive.File, err)
	}
	if err := os.WriteFile(config, text, 0o644); err != nil {
		return err
	}
	// Options that only now can be set get their defaults.
	if err := run("sh", "-c", "yes '' | make oldconfig"); err != nil {
		return err
	}
	for _, name := range r.Binaries() {
		err := run("make", "-j"+strconv.Itoa(runtime.NumCPU()), "CROSS_COMPILE="+strings.TrimSuffix(tools.cc, "gcc"), name, name+".links")
		if err != nil {
			return err
		}
		for _, file := range []string{name, name + ".links"} {
			if err := os.Rename(filepath.Join(dir, file), filepath.Join(out, file)); err != nil {
				return err
			}
		}
	}
	return nil
}

// configured changes options of a Kconfig file, which must have them.
func configured(config []byte, settings map[string]string) ([]byte, error) {
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		line := regexp.MustCompile(`(?m)^(# )?` + name + `(=.*| is not set)$`)
		if !line.Match(config) {
			return nil, fmt.Errorf("the configuration has no %s", name)
		}
		value := name + "=" + settings[name]
		if settings[name] == "n" {
			value = "# " + name + " is not set"
		}
		config = line.ReplaceAll(config, []byte(value))
	}
	return config, nil
}
