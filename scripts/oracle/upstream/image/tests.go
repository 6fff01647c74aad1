package image

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"airlift/scripts/oracle/upstream/components"
)

// testImages has the images of upstream's own tests that the rig can make. The tests name about
// forty; images of CSI drivers, volume servers and node benchmarks are not here, because no
// conformance test that can run in parallel with others uses them.
var testImages = map[string]func(b *Builder, r components.Release) spec{
	"registry.k8s.io/e2e-test-images/agnhost":           (*Builder).agnhostWithTools,
	"registry.k8s.io/e2e-test-images/busybox":           (*Builder).busybox,
	"registry.k8s.io/e2e-test-images/glibc-dns-testing": (*Builder).dnsTools,
	"registry.k8s.io/e2e-test-images/httpd":             (*Builder).httpd,
	"registry.k8s.io/e2e-test-images/jessie-dnsutils":   (*Builder).dnsTools,
	"registry.k8s.io/e2e-test-images/kitten":            pet("kitten"),
	"registry.k8s.io/e2e-test-images/nautilus":          pet("nautilus"),
	"registry.k8s.io/e2e-test-images/nginx":             (*Builder).nginx,
	"registry.k8s.io/e2e-test-images/nonewprivs":        (*Builder).noNewPrivs,
	"registry.k8s.io/e2e-test-images/nonroot":           (*Builder).nonRoot,
	"registry.k8s.io/e2e-test-images/sample-apiserver":  (*Builder).sampleAPIServer,
}

// ListTestImages runs e2e.test to list the images of upstream's own tests: the images that the rig
// builds, and all others. The components must be built.
func (b *Builder) ListTestImages(ctx context.Context, r components.Release) (made, missing []string, err error) {
	recipe, err := r.Recipe("e2e.test")
	if err != nil {
		return nil, nil, err
	}
	out, err := exec.CommandContext(ctx, filepath.Join(recipe.Dir(b.Cache), "e2e.test"), "--list-images").Output()
	if err != nil {
		return nil, nil, fmt.Errorf("listing the images of upstream's tests: %w", err)
	}
	made, missing = b.makes(r, strings.Fields(string(out)))
	return made, missing, nil
}

// makes splits image references into images that the rig builds and all others.
func (b *Builder) makes(r components.Release, references []string) (made, missing []string) {
	var release []string
	for _, s := range b.specs(r) {
		release = append(release, s.reference())
	}
	for _, reference := range references {
		if b.testImage(r, reference) != nil || slices.Contains(release, reference) {
			made = append(made, reference)
		} else {
			missing = append(missing, reference)
		}
	}
	slices.Sort(made)
	slices.Sort(missing)
	return slices.Compact(made), slices.Compact(missing)
}

// testImage returns the image of upstream's tests with this reference, or nil.
func (b *Builder) testImage(r components.Release, reference string) *spec {
	colon := strings.LastIndexByte(reference, ':')
	if colon < 0 {
		return nil
	}
	name, tag := reference[:colon], reference[colon+1:]
	fill := testImages[name]
	if strings.HasSuffix(name, "/sample-apiserver") && r.SampleAPIServer() != tag {
		return nil
	}
	if fill == nil {
		return nil
	}
	s := fill(b, r)
	s.host, s.repository, _ = strings.Cut(name, "/")
	s.tag, s.kind, s.others = tag, docker, linux("arm64", "ppc64le", "s390x")
	s.config.Env = []string{searchPath}
	// Two tags have different digests, also if the rig has the same binary for both.
	s.config.Labels = map[string]string{"org.opencontainers.image.version": tag}
	return &s
}

// all returns the images of a release and TestImages, which replace those of the same name.
func (b *Builder) all(r components.Release) ([]spec, error) {
	specs := b.specs(r)
	if b.AddOns {
		specs = append(specs, b.addOns(r)...)
	}
	if _, missing := b.makes(r, b.TestImages); len(missing) > 0 {
		return nil, fmt.Errorf("the rig does not make the images %s", strings.Join(missing, " "))
	}
	for _, reference := range b.TestImages {
		if s := b.testImage(r, reference); s != nil {
			specs = slices.DeleteFunc(specs, func(old spec) bool { return old.reference() == reference })
			specs = append(specs, *s)
		}
	}
	return specs, nil
}

// agnhostWithTools is agnhost with the commands that its Dockerfile installs, getent, which Alpine
// has, and the user and groups that the Dockerfile creates. It has no registry in /var/registry.
func (b *Builder) agnhostWithTools(r components.Release) spec {
	s := b.agnhost(r)
	program := s.layers[len(s.layers)-1]
	tools := debianBinaries("agnhost tools 2",
		[]string{"bind9-dnsutils", "bind9-host", "curl", "netcat-openbsd", "iproute2", "iperf", "bash", "util-linux", "socat", "libc-bin"},
		[]string{"dig", "host", "nslookup", "curl", "nc.openbsd", "ip", "ss", "iperf", "bash", "ipcs", "socat", "getent"},
		map[string]string{"usr/bin/nc": "nc.openbsd", "usr/local/bin/iperf": "/usr/bin/iperf", "usr/sbin/ip": "/usr/bin/ip"})
	rest := layerSpec{"agnhost rest 2", func(_ context.Context, t *tree) error {
		t.dir("uploads", 0o755, 0)
		t.link("agnhost-2", "agnhost")
		t.dir("home/user-defined-in-image", 0o755, 1000)
		t.file("etc/passwd", 0o644, []byte(users+"user-defined-in-image:x:1000:1000::/home/user-defined-in-image:/bin/sh\n"))
		t.file("etc/group", 0o644, []byte(groups+"user-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image\n"))
		return nil
	}}
	s.layers = append(static(), glibc(), b.busyboxLayer(r), tools, rest,
		b.binaries(r, map[string]string{"coredns": "coredns/coredns"}), program)
	return s
}

// busybox follows library/busybox, with the C library.
func (b *Builder) busybox(r components.Release) spec {
	return spec{
		layers: append(static(), glibc(), b.busyboxLayer(r)),
		config: v1.Config{WorkingDir: "/", Cmd: []string{"sh"}},
	}
}

// dnsTools is the image for name resolution with glibc. glibc-dns-testing has Debian 12 as its
// base, jessie-dnsutils had Debian 8, and both have dnsutils and CoreDNS.
func (b *Builder) dnsTools(r components.Release) spec {
	tools := debianBinaries("dns tools 1",
		[]string{"bash", "dash", "bind9-dnsutils", "bind9-host", "coreutils", "grep", "sed", "mawk", "hostname", "libc-bin", "debianutils"},
		[]string{"bash", "dash", "dig", "host", "nslookup", "awk:mawk", "cat", "cp", "cut", "date", "echo", "env", "false", "head", "id", "ls",
			"mkdir", "mv", "rm", "seq", "sleep", "sort", "tail", "tee", "test", "timeout", "touch", "tr", "true", "uname", "wc",
			"grep", "sed", "hostname", "getent"},
		map[string]string{"usr/bin/sh": "dash"})
	return spec{
		layers: append(static(), glibc(), tools, b.binaries(r, map[string]string{"coredns": "coredns/coredns"})),
		config: v1.Config{WorkingDir: "/", Cmd: []string{"bash"}},
	}
}

// pet follows test/images/kitten and test/images/nautilus: agnhost with a page.
func pet(name string) func(*Builder, components.Release) spec {
	return func(b *Builder, r components.Release) spec {
		s := b.agnhostWithTools(r)
		s.layers = append(s.layers, b.binaries(r, map[string]string{
			name + ".jpg": "test-pages/" + name + ".jpg",
			"data.json":   "test-pages/" + name + ".json",
		}))
		s.config.Cmd = []string{"test-webserver"}
		return s
	}
}

// nonRoot follows test/images/nonroot.
func (b *Builder) nonRoot(r components.Release) spec {
	s := b.dnsTools(r)
	s.config = v1.Config{WorkingDir: "/", User: "1234", Cmd: []string{"bash"}}
	return s
}

// noNewPrivs follows test/images/nonewprivs: a binary that prints its effective user, with the
// bits setuid and setgid.
func (b *Builder) noNewPrivs(r components.Release) spec {
	program := b.binaries(r, map[string]string{"usr/local/bin/nnp": "nonewprivs/nnp"})
	fill := program.fill
	program.key += "\nsetuid setgid"
	program.fill = func(ctx context.Context, t *tree) error {
		err := fill(ctx, t)
		if err == nil {
			t.entries["usr/local/bin/nnp"].header.Mode |= 0o6000
		}
		return err
	}
	return spec{
		layers: append(static(), glibc(), b.busyboxLayer(r), program),
		config: v1.Config{WorkingDir: "/", Cmd: []string{"nnp"}},
	}
}

// sampleAPIServer follows test/images/sample-apiserver.
func (b *Builder) sampleAPIServer(r components.Release) spec {
	return spec{
		layers: append(static(), glibc(), b.busyboxLayer(r), b.binaries(r, map[string]string{"sample-apiserver": "sample-apiserver/sample-apiserver"})),
		config: v1.Config{WorkingDir: "/", Entrypoint: []string{"/sample-apiserver"}},
	}
}
