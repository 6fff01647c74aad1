package payload

import (
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"airlift/bundle"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/internal/fault"
)

// sample returns a manifest for binaries with the given contents, by entry
// name.
func sample(version string, contents map[string]string) *bundle.Manifest {
	m := &bundle.Manifest{KubernetesVersion: version}
	for _, name := range []string{"bin/runc", "bin/containerd", "bin/kubelet", "bin/kubectl", "cni/bridge"} {
		content, ok := contents[name]
		if !ok {
			continue
		}
		m.Entries = append(m.Entries, bundle.Entry{Name: name, SHA256: fmt.Sprintf("%x", sha256.Sum256([]byte(content)))})
		m.Components = append(m.Components, bundle.Component{Name: name, Version: version, Entries: []string{name}})
	}
	return m
}

// aHost returns a host directory, and a function that installs a bundle's
// binaries on it as a run does. The write of one binary may be interrupted.
func aHost(t *testing.T) (root string, install func(m *bundle.Manifest, contents map[string]string, interrupted string)) {
	t.Helper()
	root = t.TempDir()
	return root, func(m *bundle.Manifest, contents map[string]string, interrupted string) {
		t.Helper()
		h, err := host.Open(root)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range m.Entries {
			content := io.Reader(strings.NewReader(contents[e.Name]))
			if e.Name == interrupted {
				content = iotest.ErrReader(io.ErrUnexpectedEOF)
			}
			_, err := h.InstallBinary(t.Context(), host.Binary{Path: node.BinaryPath(e.Name), SHA256: e.SHA256}, content)
			if e.Name == interrupted {
				if err == nil {
					t.Fatalf("%s was not interrupted", e.Name)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

// hostOn opens the host again, as each run does.
func hostOn(t *testing.T, root string) *host.Host {
	t.Helper()
	h, err := host.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

var (
	binaries129 = map[string]string{"bin/runc": "runc", "bin/containerd": "containerd 2.4.2", "bin/kubelet": "#!/bin/sh\necho Kubernetes v1.29.15\n", "cni/bridge": "bridge 1.9"}
	binaries130 = map[string]string{"bin/runc": "runc", "bin/containerd": "containerd 2.4.2", "bin/kubelet": "#!/bin/sh\necho Kubernetes v1.30.14\n", "cni/bridge": "bridge 1.9"}
	otherCNI    = map[string]string{"bin/runc": "runc", "bin/containerd": "containerd 2.4.2", "bin/kubelet": binaries129["bin/kubelet"], "cni/bridge": "bridge 1.10"}
	more        = map[string]string{"bin/runc": "runc", "bin/containerd": "containerd 2.4.2", "bin/kubelet": binaries129["bin/kubelet"], "bin/kubectl": "kubectl", "cni/bridge": "bridge 1.9"}
	fewer       = map[string]string{"bin/runc": "runc", "bin/containerd": "containerd 2.4.2", "bin/kubelet": binaries129["bin/kubelet"]}
)

func TestAnotherBundleIsRefused(t *testing.T) {
	v129, v130 := sample("v1.29.15", binaries129), sample("v1.30.14", binaries130)
	withImage := sample("v1.29.15", binaries129)
	withImage.Images = []bundle.Image{{Name: "nginx", Reference: "docker.io/library/nginx:1.27"}}
	for name, c := range map[string]struct {
		installed, bundle *bundle.Manifest
		contents          map[string]string
		interrupted       string   // the binary whose write is interrupted
		noCluster         bool     // the installation stopped before it wrote kubelet.conf
		refused           []string // substrings of the error and its hint
	}{
		"the same bundle":                  {installed: v129, contents: binaries129, bundle: v129},
		"the same with another image":      {installed: v129, contents: binaries129, bundle: withImage},
		"the same with one binary more":    {installed: v129, contents: binaries129, bundle: sample("v1.29.15", more)},
		"the same with fewer binaries":     {installed: v129, contents: binaries129, bundle: sample("v1.29.15", fewer)},
		"a bare host":                      {installed: &bundle.Manifest{}, bundle: v130},
		"an interrupted run, the same":     {installed: v129, contents: binaries129, interrupted: "bin/kubelet", noCluster: true, bundle: v129},
		"an upgrade":                       {installed: v129, contents: binaries129, bundle: v130, refused: []string{"/usr/local/bin/kubelet is v1.29.15", "this bundle has v1.30.14", "the bundle that installed this host", "./install reset"}},
		"a downgrade":                      {installed: v130, contents: binaries130, bundle: v129, refused: []string{"/usr/local/bin/kubelet is v1.30.14", "this bundle has v1.29.15", "the bundle that installed this host", "./install reset"}},
		"another build of a CNI plugin":    {installed: v129, contents: binaries129, bundle: sample("v1.29.15", otherCNI), refused: []string{"/opt/cni/bin/bridge", "the bundle that installed this host"}},
		"an unfinished installation":       {installed: v129, contents: binaries129, noCluster: true, bundle: v130, refused: []string{"unfinished", "started this installation", "./install reset"}},
		"interrupted in the kubelet":       {installed: v129, contents: binaries129, interrupted: "bin/kubelet", noCluster: true, bundle: v130, refused: []string{"/usr/local/bin/kubelet is not complete", "started this installation"}},
		"every binary that differs, named": {installed: v129, contents: binaries129, bundle: sample("v1.30.14", map[string]string{"bin/runc": "r", "bin/containerd": "c", "bin/kubelet": "k", "cni/bridge": "b"}), refused: []string{"/usr/local/sbin/runc", "/usr/local/bin/containerd", "/usr/local/bin/kubelet", "/opt/cni/bin/bridge"}},
	} {
		t.Run(name, func(t *testing.T) {
			root, install := aHost(t)
			install(c.installed, c.contents, c.interrupted)
			if !c.noCluster {
				if _, err := hostOn(t, root).WriteFile(node.KubeletConf, nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			before := tree(t, root)
			err := (&Bundle{Manifest: c.bundle}).CheckHost(t.Context(), hostOn(t, root))
			if len(c.refused) == 0 {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if fault.ExitCode(err) != fault.Preflight {
				t.Errorf("not refused with exit code 3: %v", err)
			}
			for _, words := range c.refused {
				if text := fmt.Sprint(err) + "\n" + fault.Hint(err); !strings.Contains(text, words) {
					t.Errorf("%q is not in: %s", words, text)
				}
			}
			if after := tree(t, root); after != before {
				t.Errorf("the host was changed:\n%s\nbefore:\n%s", after, before)
			}
		})
	}
}

// Releases without this check let a bundle replace another bundle's binaries.
// If that was interrupted, the later bundle may finish it.
func TestInterruptedReplacementIsFinishedByItsBundle(t *testing.T) {
	v129, v130 := sample("v1.29.15", binaries129), sample("v1.30.14", binaries130)
	root, install := aHost(t)
	install(v129, binaries129, "")
	install(v130, binaries130, "bin/kubelet")
	if err := (&Bundle{Manifest: v130}).CheckHost(t.Context(), hostOn(t, root)); err != nil {
		t.Error(err)
	}
	third := sample("v1.31.14", map[string]string{"bin/kubelet": "v1.31"})
	if err := (&Bundle{Manifest: third}).CheckHost(t.Context(), hostOn(t, root)); fault.ExitCode(err) != fault.Preflight {
		t.Errorf("a third bundle: %v", err)
	}
	install(v130, binaries130, "")
	data, err := os.ReadFile(root + "/usr/local/bin/kubelet")
	if err != nil || string(data) != binaries130["bin/kubelet"] {
		t.Errorf("%s, %v", data, err)
	}
}

// tree lists the files below a directory with their digests.
func tree(t *testing.T, root string) string {
	t.Helper()
	var list strings.Builder
	err := fs.WalkDir(os.DirFS(root), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(root + "/" + path)
		fmt.Fprintf(&list, "%s %x\n", path, sha256.Sum256(data))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list.String()
}

// The configuration of a node has the bundle's values for an unknown version.
func TestConfigureTellsOfNewerVersions(t *testing.T) {
	for _, nearest := range []string{"", "v1.37.1"} {
		b := &Bundle{Manifest: &bundle.Manifest{KubernetesVersion: "v1.38.0", NearestKnown: nearest, CNI: "flannel"}}
		var c config.Config
		if err := b.Configure(&c); err != nil || c.KubernetesVersion != "v1.38.0" || c.NearestKnown != nearest {
			t.Errorf("%q: %q, %q, %v", nearest, c.KubernetesVersion, c.NearestKnown, err)
		}
	}
}
