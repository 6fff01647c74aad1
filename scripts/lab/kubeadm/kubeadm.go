// Package kubeadm installs Kubernetes nodes as an operator does without Airlift: it copies
// the binaries and images of each project to the host, writes the configuration, and runs
// real kubeadm. The tests compare Airlift's clusters with these clusters, and mix both.
//
// hostconfig.go has what isolated hosts need. Three things differ from an installation with
// the internet, because the test rig has no source for them: crictl is a small stand-in (see
// crictl/), so is flannel's CNI plugin (see hostconfig.go), and flannel's manifest has no
// init container that installs the plugin.
package kubeadm

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"airlift/scripts/lab"
	"airlift/scripts/oracle/upstream/components"
	"airlift/scripts/oracle/upstream/image"
)

// A Kit has the files that an operator copies to the hosts.
type Kit struct {
	Version  string
	Programs []File
	Archives []Archive
	// Prefix precedes every command on a host: a command that measures it, or nothing.
	Prefix []string

	flannel string // manifest of the pod network
}

// File is a binary and its path on a host.
type File struct{ Local, Remote string }

// Done has the output of a command, stdout and stderr, and its duration.
type Done struct {
	Output string
	Took   time.Duration
}

// The directories in upstream's instructions for binaries without a package
// (kubernetes.io, "Installing kubeadm", and containerd's "Getting started").
const (
	binDir  = "/usr/local/bin"
	sbinDir = "/usr/local/sbin"
	cniDir  = "/opt/cni/bin"
)

// Gather finds the binaries of a Kubernetes version in the rig's cache and writes missing
// image archives there, also of these images of upstream's tests. The components must be built.
func Gather(ctx context.Context, version string, log io.Writer, testImages ...string) (*Kit, error) {
	cache, err := components.CacheDir()
	if err != nil {
		return nil, err
	}
	release, err := components.Find(version)
	if err != nil {
		return nil, err
	}
	k := &Kit{Version: release.Kubernetes}
	for dir, names := range map[string][]string{
		binDir:  {"kubeadm", "kubelet", "kubectl", "containerd", "ctr", "containerd-shim-runc-v2"},
		sbinDir: {"runc"},
		cniDir:  {"bridge", "host-local", "loopback", "portmap"},
	} {
		for _, name := range names {
			local, err := components.Path(version, name)
			if err != nil {
				return nil, err
			}
			k.Programs = append(k.Programs, File{local, filepath.Join(dir, name)})
		}
	}
	crictl := filepath.Join(cache, "kubeadm", "crictl")
	// go build does nothing if the result is up to date.
	if err := run(ctx, "go", "build", "-o", crictl, "airlift/scripts/lab/kubeadm/crictl"); err != nil {
		return nil, err
	}
	k.Programs = append(k.Programs, File{crictl, filepath.Join(binDir, "crictl")})
	if k.Archives, err = archives(ctx, &image.Builder{Cache: cache, Log: log, TestImages: testImages}, release); err != nil {
		return nil, err
	}
	k.flannel, err = flannelManifest(ctx)
	return k, err
}

// run runs a command on this machine.
func run(ctx context.Context, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("running %s: %w: %s", strings.Join(cmd.Args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}

// Copy copies the binaries and the image archives to a host.
func (k *Kit) Copy(ctx context.Context, h *lab.Host) (Done, error) {
	started := time.Now()
	for _, p := range k.Programs {
		if _, err := h.CopyIn(ctx, p.Local, p.Remote, 0o755); err != nil {
			return Done{}, err
		}
	}
	err := k.carryArchives(ctx, h)
	return Done{Took: time.Since(started)}, err
}

func (k *Kit) carryArchives(ctx context.Context, h *lab.Host) error {
	for _, a := range k.Archives {
		if _, err := h.CopyIn(ctx, a.Path, a.remote(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Prepare prepares a host for kubeadm: configuration, units, and a running containerd. Call
// Copy first.
func (k *Kit) Prepare(ctx context.Context, h *lab.Host) (Done, error) {
	release, err := components.Find(k.Version)
	if err != nil {
		return Done{}, err
	}
	return k.script(ctx, h, prepareScript(h, release.Pause))
}

// ImportImages imports the image archives for a control plane or a worker into containerd.
func (k *Kit) ImportImages(ctx context.Context, h *lab.Host, controlPlane bool) (Done, error) {
	var lines strings.Builder
	for _, a := range k.Archives {
		if controlPlane || !a.ControlPlane {
			fmt.Fprintf(&lines, "ctr -n k8s.io images import %s\n", a.remote())
		}
	}
	return k.script(ctx, h, lines.String())
}

// Init runs kubeadm init with a configuration.
func (k *Kit) Init(ctx context.Context, h *lab.Host, config string, args ...string) (Done, error) {
	const path = "/root/kubeadm.yaml"
	if _, err := k.command(ctx, h, strings.NewReader(config), "tee", path); err != nil {
		return Done{}, err
	}
	return k.command(ctx, h, nil, append([]string{"kubeadm", "init", "--config", path, "--ignore-preflight-errors", k.IgnoredChecks()}, args...)...)
}

// Join runs kubeadm join with the arguments that init or token create printed.
func (k *Kit) Join(ctx context.Context, h *lab.Host, args ...string) (Done, error) {
	return k.command(ctx, h, nil, append([]string{"kubeadm", "join", "--ignore-preflight-errors", k.IgnoredChecks()}, args...)...)
}

// ApplyNetwork installs flannel, on a control plane.
func (k *Kit) ApplyNetwork(ctx context.Context, h *lab.Host) (Done, error) {
	return k.command(ctx, h, strings.NewReader(k.flannel), "kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", "apply", "-f", "-")
}

// Reset runs kubeadm reset and then the cleanup that it leaves to the user.
func (k *Kit) Reset(ctx context.Context, h *lab.Host) (Done, error) {
	done, err := k.command(ctx, h, nil, "kubeadm", "reset", "--force")
	if err != nil {
		return done, err
	}
	_, err = k.script(ctx, h, resetScript)
	return done, err
}

// script runs shell commands and stops at the first error.
func (k *Kit) script(ctx context.Context, h *lab.Host, text string) (Done, error) {
	return k.command(ctx, h, strings.NewReader(text), "sh", "-e")
}

// command runs a command on a host. An error includes its output.
func (k *Kit) command(ctx context.Context, h *lab.Host, stdin io.Reader, argv ...string) (Done, error) {
	started := time.Now()
	var out bytes.Buffer
	err := h.Exec(ctx, stdin, &out, &out, slices.Concat(k.Prefix, argv)...)
	if err != nil {
		err = fmt.Errorf("%w: %s", err, strings.TrimSpace(out.String()))
	}
	return Done{out.String(), time.Since(started)}, err
}

var joinLine = regexp.MustCompile(`kubeadm join (\S+:\d+ --token \S+) \\\s+(--discovery-token-ca-cert-hash \S+)`)

// JoinArgs finds the arguments of a worker's join command in the output of init.
func JoinArgs(output string) ([]string, error) {
	m := joinLine.FindStringSubmatch(output)
	if m == nil {
		return nil, fmt.Errorf("finding the join command: there is none in %q", output)
	}
	return strings.Fields(m[1] + " " + m[2]), nil
}
