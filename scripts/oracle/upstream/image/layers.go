package image

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"airlift/scripts/oracle/upstream/components"
)

// A layerSpec is a layer and its key in the store. Change the key when fill changes.
type layerSpec struct {
	key  string
	fill func(context.Context, *tree) error
}

// static is the base of nearly every image, with the layers of gcr.io/distroless/static: no
// shell, no libraries, but users, time zones, port names and certificate authorities.
func static() []layerSpec {
	return []layerSpec{
		{"static root 1", staticRoot},
		{"static netbase 1", fromPackage("netbase", func(name string) bool { return strings.HasPrefix(name, "etc/") })},
		{"static tzdata 1", fromPackage("tzdata", func(name string) bool { return strings.HasPrefix(name, "usr/share/zoneinfo/") })},
		{"static ca-certificates 1", certificates},
	}
}

const (
	users = "root:x:0:0:root:/root:/sbin/nologin\n" +
		"nobody:x:65534:65534:nobody:/nonexistent:/sbin/nologin\n" +
		"nonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin\n"
	groups = "root:x:0:\nnobody:x:65534:\ntty:x:5:\nstaff:x:50:\nnonroot:x:65532:\n"
)

func staticRoot(ctx context.Context, t *tree) error {
	debian, err := t.unpackDebian(ctx, false, "base-files")
	if err != nil {
		return err
	}
	t.copy(debian, func(name string) bool {
		return slices.Contains([]string{"etc/debian_version", "etc/os-release", "usr/lib/os-release"}, name)
	})
	for _, dir := range []string{"bin", "sbin", "lib", "lib64"} {
		t.dir("usr/"+dir, 0o755, 0)
		t.link(dir, "usr/"+dir)
	}
	t.dir("root", 0o700, 0)
	t.dir("home/nonroot", 0o700, 65532)
	t.dir("tmp", 0o1777, 0)
	t.dir("var/tmp", 0o1777, 0)
	t.dir("run", 0o755, 0)
	t.link("var/run", "/run")
	t.file("etc/passwd", 0o644, []byte(users))
	t.file("etc/group", 0o644, []byte(groups))
	t.file("etc/nsswitch.conf", 0o644, []byte("hosts: files dns\n"))
	return nil
}

// certificates concatenates all certificate authorities, as update-ca-certificates does.
func certificates(ctx context.Context, t *tree) error {
	debian, err := t.unpackDebian(ctx, false, "ca-certificates")
	if err != nil {
		return err
	}
	var names []string
	for name := range debian.entries {
		if strings.HasPrefix(name, "usr/share/ca-certificates/") && path.Ext(name) == ".crt" {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	var bundle bytes.Buffer
	for _, name := range names {
		bundle.Write(debian.entries[name].data)
	}
	if bundle.Len() == 0 {
		return fmt.Errorf("the package ca-certificates has no certificates")
	}
	t.file("etc/ssl/certs/ca-certificates.crt", 0o644, bundle.Bytes())
	return nil
}

// glibc is the C library and its loader, as in gcr.io/distroless/base.
func glibc() layerSpec {
	return layerSpec{"glibc 1", fromPackage("libc6", inGlibc)}
}

// inGlibc reports whether a path is in the layer glibc.
func inGlibc(name string) bool {
	switch path.Dir(name) {
	case "usr/lib64", "usr/lib":
		return strings.HasPrefix(path.Base(name), "ld-linux-")
	case "usr/lib/" + components.Triplet("amd64"), "usr/lib/" + components.Triplet("arm64"):
		return slices.Contains([]string{"ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1", "libc.so.6", "libdl.so.2", "libm.so.6",
			"libnss_dns.so.2", "libnss_files.so.2", "libpthread.so.0", "libresolv.so.2", "librt.so.1"}, path.Base(name))
	}
	return false
}

// netfilter is what registry.k8s.io/build-image/distroless-iptables adds for kube-proxy:
// iptables, nft, ipset, conntrack and kmod with their libraries, on top of glibc. That
// image selects the nft or legacy backend of iptables with a script at its start; here it
// is always nft, the only backend that all recent kernels have.
func netfilter() layerSpec {
	return layerSpec{"netfilter 2", func(ctx context.Context, t *tree) error {
		debian, err := t.unpackDebian(ctx, true, "iptables", "nftables", "ipset", "conntrack", "kmod")
		if err != nil {
			return err
		}
		programs := []string{"xtables-nft-multi", "nft", "ipset", "conntrack", "kmod"}
		t.copy(debian, func(name string) bool {
			return strings.HasPrefix(name, t.libraryDir()+"/xtables/") ||
				path.Dir(name) == "usr/sbin" && slices.Contains(programs, path.Base(name)) ||
				path.Dir(name) == "usr/bin" && slices.Contains(programs, path.Base(name))
		})
		if err := t.addLibraries(debian, inGlibc); err != nil {
			return err
		}
		for _, family := range []string{"iptables", "ip6tables"} {
			for _, command := range []string{"", "-save", "-restore"} {
				t.link("usr/sbin/"+family+command, "xtables-nft-multi")
				t.link("usr/sbin/"+family+"-nft"+command, "xtables-nft-multi")
			}
		}
		t.link("usr/sbin/modprobe", "../bin/kmod")
		t.link("usr/bin/lsmod", "kmod")
		for _, name := range append(programs, "modprobe") {
			if t.entries["usr/sbin/"+name] == nil && t.entries["usr/bin/"+name] == nil {
				return fmt.Errorf("no package has the binary %s", name)
			}
		}
		return nil
	}}
}

// smallBusybox replaces Alpine, the base of flannel's and agnhost's images: a shell and the
// usual small commands, on top of glibc.
func smallBusybox() layerSpec {
	return layerSpec{"busybox 2", func(ctx context.Context, t *tree) error {
		debian, err := t.unpackDebian(ctx, false, "busybox")
		if err != nil {
			return err
		}
		t.copy(debian, func(name string) bool {
			return path.Base(name) == "busybox" && strings.HasSuffix(path.Dir(name), "bin")
		})
		if t.entries["usr/bin/busybox"] == nil {
			return fmt.Errorf("the package busybox has no usr/bin/busybox")
		}
		if err := t.addLibraries(debian, inGlibc); err != nil {
			return err
		}
		for applet := range strings.FieldsSeq(applets) {
			t.link("usr/bin/"+applet, "busybox")
		}
		return nil
	}}
}

// applets are busybox's commands. ip is one of them because flannel's image has it (from
// iproute2).
const applets = `ash awk basename cat chmod chown cp cut date dd df dirname du echo env expr false find grep
	gunzip gzip head hostname id ip kill ln ls md5sum mkdir mktemp mount mv nc netstat nslookup ping ping6
	printf ps pwd readlink realpath rm rmdir sed seq sh sha256sum sleep sort stat sync tail tar tee test
	timeout top touch tr traceroute true umount uname uniq vi wc wget which whoami xargs yes`

// busyboxLayer is busybox with all of its commands.
func (b *Builder) busyboxLayer(r components.Release) layerSpec {
	program := b.binaries(r, map[string]string{"usr/bin/busybox": "busybox/busybox"})
	return layerSpec{"every applet 1\n" + program.key, func(ctx context.Context, t *tree) error {
		if err := program.fill(ctx, t); err != nil {
			return err
		}
		recipe, err := r.Recipe("busybox")
		if err != nil {
			return err
		}
		list, err := os.ReadFile(filepath.Join(recipe.Dir(b.Cache), "busybox.links"))
		if err != nil {
			return err
		}
		for link := range strings.FieldsSeq(string(list)) { // "/bin/sh"
			t.link("usr/bin/"+path.Base(link), "busybox")
		}
		return nil
	}}
}

// debianBinaries is a layer with binaries of Debian packages and their libraries, on top of
// glibc. "awk:mawk" is the binary mawk with the name awk.
func debianBinaries(key string, packages, binaries []string, links map[string]string) layerSpec {
	return layerSpec{key, func(ctx context.Context, t *tree) error {
		debian, err := t.unpackDebian(ctx, true, packages...)
		if err != nil {
			return err
		}
		for _, binary := range binaries {
			as, name, renamed := strings.Cut(binary, ":")
			if !renamed {
				name = as
			}
			found := false
			for _, dir := range []string{"usr/bin/", "usr/sbin/"} {
				e := debian.entries[dir+name]
				if e == nil || e.header.Typeflag != tar.TypeReg {
					continue
				}
				found = true
				t.file("usr/bin/"+as, 0o755, e.data)
			}
			if !found {
				return fmt.Errorf("no package has the binary %s", name)
			}
		}
		if err := t.addLibraries(debian, inGlibc); err != nil {
			return err
		}
		for name, target := range links {
			t.link(name, target)
		}
		return nil
	}}
}

func fromPackage(pkg string, keep func(string) bool) func(context.Context, *tree) error {
	return func(ctx context.Context, t *tree) error {
		debian, err := t.unpackDebian(ctx, false, pkg)
		if err != nil {
			return err
		}
		t.copy(debian, keep)
		if len(t.entries) == 0 {
			return fmt.Errorf("the package %s has none of the expected files", pkg)
		}
		return nil
	}
}

// binaries is a layer with files of built components: path in the image => "component/file". The
// files in lowPorts may bind ports below 1024 as any user.
func (b *Builder) binaries(r components.Release, files map[string]string, lowPorts ...string) layerSpec {
	paths := make(map[string]string)
	key := []string{"programs 1"}
	for name, source := range files {
		component, file, _ := strings.Cut(source, "/")
		recipe, err := r.Recipe(component)
		if err != nil {
			panic(err) // the names are from this package's tables, which a test checks
		}
		paths[name] = filepath.Join(recipe.Dir(b.Cache), file)
		key = append(key, name+" = "+source+" "+recipe.Key())
	}
	sort.Strings(key)
	key = append(key, lowPorts...)
	return layerSpec{strings.Join(key, "\n"), func(_ context.Context, t *tree) error {
		for name, source := range paths {
			if err := t.fileFrom(name, source); err != nil {
				return err
			}
		}
		for _, name := range lowPorts {
			t.allowLowPorts(name)
		}
		return nil
	}}
}
