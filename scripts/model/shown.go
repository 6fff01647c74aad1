package model

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// configured are the files of a host that steps write, apart from binaries and the site's own files.
var configured = regexp.MustCompile(`^/etc/(kubernetes|containerd|systemd/system|cni)/|^/etc/crictl\.yaml$|^/var/lib/kubelet/(config\.yaml|kubeadm-flags\.env|instance-config\.yaml)$`)

// notShown are files that a dry run cannot know: the pod network's, which has the range of the node, the unit of
// the Service route, which depends on the kernel, and what the kubelet and the timer of the embedded registry write. An upgrade also renews
// certificates, and a file that was edited is kept.
var notShown = regexp.MustCompile(`^/etc/cni/net\.d/10-flannel\.conflist$|/airlift-service-route\.service$|\.airlift-saved|^/etc/kubernetes/(bootstrap-)?kubelet\.conf$|^/etc/containerd/certs\.d/`)

// random are files with new keys.
var random = regexp.MustCompile(`^/etc/kubernetes/(pki/|[^/]*\.conf$)`)

// dry runs a command without its changes; nil if the command fails. A file that changes is an error.
func (s *Site) dry(h *Host, c Command) (*run, error) {
	defer h.holdTimer()()
	before := h.files()
	r, err := h.begin(0)
	if err != nil {
		return nil, err
	}
	r.dry = true
	_, err = s.command(r, c)
	if r.end(); err != nil {
		return nil, nil
	}
	for name, sum := range h.files() {
		if before[name] != sum {
			return nil, fmt.Errorf("the dry run of %s writes %s", c.Name, name)
		}
	}
	return r, nil
}

// dryRun returns the files that a command would write, with their sums; nil if the dry run fails: then the
// command fails, too.
func (s *Site) dryRun(h *Host, c Command) (map[string]string, error) {
	dir, err := os.MkdirTemp(filepath.Dir(h.Root), "dry-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	for _, command := range []string{"INIT", "JOIN", "UPGRADE"} {
		if err := os.Setenv("KUBEADM_"+command+"_DRYRUN_DIR", dir); err != nil {
			return nil, err
		}
	}
	r, err := s.dry(h, c)
	if r == nil {
		return nil, err
	}
	parents, err := filepath.Glob(dir + "/*")
	if err != nil || len(parents) != 1 {
		return nil, fmt.Errorf("the dry run writes %q (%v)", parents, err)
	}
	shown := filesBelow(parents[0])
	if c.Name != "upgrade apply" {
		return shown, nil
	}
	for name, sum := range shown {
		if sum != "directory" && !strings.HasPrefix(name, "/cluster/") && !slices.Contains(r.planned, name) {
			return nil, fmt.Errorf("the dry run shows %s, and the plan does not", name)
		}
	}
	for _, name := range r.planned {
		switch {
		case installed.MatchString(name):
			shown[name] = inPlan
		case strings.HasPrefix(name, "/") && shown[name] == "":
			return nil, fmt.Errorf("the plan shows %s, and the dry run does not", name)
		}
	}
	return shown, nil
}

// inPlan is the sum of a binary: only the plan shows that it changes.
const inPlan = "a binary"

// installed are the binaries.
var installed = regexp.MustCompile(`^/(usr/local|opt/cni)/`)

// asShown fails if a command wrote other files than its dry run showed. An upgrade also renews certificates, and
// the dry run of a join does not know the members of etcd.
func asShown(command string, shown, before, after map[string]string) error {
	renews, joins := strings.HasPrefix(command, "upgrade"), strings.HasPrefix(command, "join")
	for name, sum := range after {
		switch {
		case before[name] != sum && sum != "directory" && command == "upgrade apply" && installed.MatchString(name) && shown[name] == "":
			return fmt.Errorf("the plan does not show %s, and the upgrade wrote it", name)
		case before[name] == sum || sum == "directory" || !configured.MatchString(name) || notShown.MatchString(name) || renews && random.MatchString(name):
		case shown[name] == "":
			return fmt.Errorf("the dry run does not show %s, and the command wrote it", name)
		case shown[name] != sum && !random.MatchString(name) && !(joins && strings.HasSuffix(name, "/etcd.yaml")):
			return fmt.Errorf("the dry run shows another content of %s", name)
		}
	}
	for name, sum := range shown {
		if sum == inPlan && after[name] == before[name] {
			return fmt.Errorf("the plan shows %s, and the upgrade did not write it", name)
		}
		if after[name] == "" && !strings.HasPrefix(name, "/cluster") && !strings.HasPrefix(name, "/var/lib/kubelet/pki") && !notShown.MatchString(name) {
			return fmt.Errorf("the dry run shows %s, and the command did not write it", name)
		}
	}
	return nil
}
