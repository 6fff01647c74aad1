//go:build e2e

package e2e

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"airlift/scripts/lab"
)

// configured are the places of the files that steps write, without the files of the site.
const configured = "/etc /var/lib/kubelet/config.yaml /var/lib/kubelet/kubeadm-flags.env /var/lib/kubelet/instance-config.yaml"

// notShown are files that a dry run and a plan cannot know: the file of the pod network, which has this node's range, and the
// files for the kernel's modules and parameters and the unit of the Service route, which depend on the kernel. An upgrade also
// renews certificates.
var notShown = regexp.MustCompile(`^/etc/(modules-load|sysctl)\.d/|^/etc/cni/net\.d/10-flannel\.conflist$|/airlift-service-route\.service$|\.airlift-saved$`)

// checksums returns the files in places of a host, with their checksums.
func checksums(t *testing.T, h *lab.Host, places string) map[string]string {
	t.Helper()
	files := map[string]string{}
	for line := range strings.Lines(run(t, h, "sh", "-c", "find "+places+" -type f -exec sha256sum {} + 2>/dev/null; true")) {
		if sum, name, ok := strings.Cut(strings.TrimSpace(line), "  "); ok {
			files[name] = sum
		}
	}
	return files
}

// written returns the files that differ between two states of a host, without the files that none shows.
func written(before, after map[string]string, except *regexp.Regexp) (names []string) {
	for name, sum := range after {
		if before[name] != sum && !notShown.MatchString(name) && (except == nil || !except.MatchString(name)) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
