package compile

import (
	"context"
	"path/filepath"

	"airlift/scripts/oracle/upstream/components"
	"airlift/scripts/oracle/upstream/debian"
)

// A toolchain is the C compiler and strip for an architecture.
type toolchain struct {
	cc, strip string
	env       []string // for go build
}

// toolchain installs the Debian packages that a recipe needs. This machine's apt does not change:
// libraries of another architecture go to a directory.
func (b *Builder) toolchain(ctx context.Context, r components.Recipe) (toolchain, error) {
	if r.Arch == "" {
		return toolchain{"gcc", "strip", nil}, b.install(ctx, r.Debian)
	}
	triplet := components.Triplet(r.Arch)
	tools := toolchain{cc: triplet + "-gcc", strip: triplet + "-strip"}
	tools.env = []string{"GOARCH=" + r.Arch, "CC=" + tools.cc}
	var here, libraries []string
	for _, name := range r.Debian {
		switch name {
		case "gcc":
			here = append(here, "gcc-"+triplet)
		case "libc6-dev":
			here = append(here, "libc6-dev-"+r.Arch+"-cross")
		case "pkg-config":
			here = append(here, name)
		default:
			libraries = append(libraries, name)
		}
	}
	if err := b.install(ctx, here); err != nil || len(libraries) == 0 {
		return tools, err
	}
	root, err := b.tempDir("sysroot")
	if err != nil {
		return tools, err
	}
	b.logf("downloading Debian packages %v for %s", libraries, r.Arch)
	debs, err := debian.Download(ctx, root, r.Arch, false, libraries...)
	if err != nil {
		return tools, err
	}
	for _, deb := range debs {
		if _, err := b.run(ctx, root, nil, "dpkg-deb", "--extract", deb, root); err != nil {
			return tools, err
		}
	}
	lib := filepath.Join(root, "usr/lib", triplet)
	tools.env = append(tools.env, "PKG_CONFIG_LIBDIR="+filepath.Join(lib, "pkgconfig"),
		"CGO_CFLAGS=-O2 -g -I"+filepath.Join(root, "usr/include"), "CGO_LDFLAGS=-O2 -g -L"+lib)
	return tools, nil
}
