package kubeletcheck

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"airlift/scripts/fixtures/rig"
)

// TestUserNamespacesOfRealKubelet compares the rule with a real kubelet, which exits. It runs in a mount
// namespace with a user kubelet and a command getsubids that prints the ranges of the files.
func TestUserNamespacesOfRealKubelet(t *testing.T) {
	const version = "v1.37.1"
	kubelet := rig.Component(t, version, "kubelet")
	for name, c := range map[string]struct{ body, subuid, subgid, output string }{
		"no range":               {"", "", "", "error retrieving additional uids"},
		"another group range":    {"", "kubelet:65536:7208960", "kubelet:131072:7208960", "mismatched subuids and subgids"},
		"two ranges":             {"", "kubelet:65536:7208960\nkubelet:10000000:65536", "kubelet:65536:7208960\nkubelet:10000000:65536", "it must contain only one line"},
		"a range between blocks": {"", "kubelet:100000:7208960", "kubelet:100000:7208960", "is not a multiple of 65536"},
		"a range from 0":         {"", "kubelet:0:7208960", "kubelet:0:7208960", "must be greater or equal to 65536"},
		"a part of a block":      {"", "kubelet:65536:7208961", "kubelet:65536:7208961", "is not a multiple of 65536"},
		"a short range":          {"", "kubelet:65536:65536", "kubelet:65536:65536", "not enough to support 110 pods"},
		"more pods":              {"maxPods: 111", "kubelet:65536:7208960", "kubelet:65536:7208960", "not enough to support 111 pods"},
		"larger blocks":          {"userNamespaces: {idsPerPod: 131072}", "kubelet:65536:7208960", "kubelet:65536:7208960", "is not a multiple of 131072"},
		"no block":               {"userNamespaces: {idsPerPod: 70000}", "", "", "idsPerPod must be a multiple of 65536"},
		"a small block":          {"userNamespaces: {idsPerPod: 0}", "", "", "idsPerPod must not be less than 65536"},
		"a large block":          {"userNamespaces: {idsPerPod: 4295032832}", "", "", "idsPerPod must not be more than"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write := func(name, text string) {
				t.Helper()
				if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			config := fmt.Sprintf(base, "") + "failCgroupV1: false\ncgroupsPerQOS: false\nenforceNodeAllocatable: []\ncontainerRuntimeEndpoint: unix://" + serveRuntime(t, dir, 2) + "\n" + c.body + "\n"
			write("config.yaml", config)
			write("etc/passwd", "root:x:0:0::/:/bin/sh\nkubelet:x:990:990::/:/bin/false\n")
			write("etc/subuid", c.subuid+"\n")
			write("etc/subgid", c.subgid+"\n")
			// As the command of the package uidmap prints them: with a number, and an error without a range.
			write("usr/bin/getsubids", `#!/bin/sh
file=`+dir+`/etc/subuid
[ "$1" = -g ] && file=`+dir+`/etc/subgid
grep -q ^kubelet: $file || exit 1
awk -F: '/^kubelet:/{print n++ ": " $1 " " $2 " " $3}' $file
`)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			const script = `mount -t tmpfs tmpfs /var/lib && mount --bind "$0/etc/passwd" /etc/passwd && PATH="$0/usr/bin:$PATH" exec "$@"`
			out, err := exec.CommandContext(ctx, "unshare", "--mount", "sh", "-c", script, dir, kubelet, "--config="+dir+"/config.yaml", "--root-dir="+dir+"/root", "--cert-dir="+dir+"/pki").CombinedOutput()
			if ctx.Err() != nil || err == nil || !strings.Contains(string(out), c.output) {
				t.Fatalf("the kubelet: %v %s", err, out[max(0, len(out)-1200):])
			}
			found := errorsOf(Check(Input{Kubernetes: version, Config: []byte(config), Root: os.DirFS(dir)}))
			if len(found) != 1 || !strings.HasPrefix(found[0].Message, "userNamespaces.idsPerPod") {
				t.Errorf("%+v", found)
			}
		})
	}
}
