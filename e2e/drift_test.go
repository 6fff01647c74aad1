//go:build e2e

package e2e

import (
	"strings"
	"testing"
	"time"

	"airlift/installer/config"
	"airlift/scripts/lab"
	"airlift/scripts/lab/site"
)

// drift returns what was edited by hand on a host and in the cluster, or why that is not known.
func drift(t *testing.T, h *lab.Host) string {
	t.Helper()
	return strings.TrimSpace(run(t, h, "sh", "-c", site.Installer+` status -o jsonpath='{.drift[*].name} {.unknown.drift}' || true`))
}

const (
	schedulerFile = "/etc/kubernetes/manifests/kube-scheduler.yaml"
	kubeletFile   = "/var/lib/kubelet/config.yaml"
	flagsFile     = "/var/lib/kubelet/kubeadm-flags.env"
)

// edits edits files of a control plane by hand. status shows that, and it is kept by kubeadm's documents without a restart, or dropped.
func (r *reconfigured) edits(t *testing.T) {
	for _, h := range r.hosts {
		same(t, "", drift(t, h))
	}
	run(t, r.control, "sh", "-c", `sed -i 's/^    - kube-scheduler$/&\n    - --v=3/' `+schedulerFile+`
echo 'maxPods: 123' >>`+kubeletFile+`; sed -i 's/="/="--v=3 /' `+flagsFile+`; systemctl restart kubelet`)
	eventually(t, 2*time.Minute, func() string {
		if run(t, r.control, "sh", "-c", `cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' ' ' | grep -c '[k]ube-scheduler --v=3' || true`) == "0\n" {
			return "the scheduler does not run with its flag"
		}
		return ""
	})
	systemIsUp(t, r.Site, len(r.hosts))
	all := schedulerFile + " " + kubeletFile + " " + flagsFile
	same(t, all, drift(t, r.control))

	ids := processes(t, r.control)
	for _, field := range []string{"ClusterConfiguration.scheduler.extraArgs", "KubeletConfiguration.maxPods", "InitConfiguration.nodeRegistration.kubeletExtraArgs"} {
		contains(t, run(t, r.control, "sh", "-c", site.Installer+` status -o jsonpath='{.drift[*].keep}' || true`), field)
	}
	api, args := config.APIVersion(version), `[{name: v, value: "3"}]`
	if api == "v1beta3" {
		args = `{v: "3"}`
	}
	run(t, r.control, "sh", "-c", site.Installer+` reconfigure print >/root/edits.yaml && cd /root
grep -q '^kind: KubeletConfiguration' edits.yaml || printf -- '---\napiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n' >>edits.yaml
sed -i -e 's/^scheduler:.*/scheduler: {extraArgs: `+args+`}/' -e 's/^kind: KubeletConfiguration/&\nmaxPods: 123/' edits.yaml
printf -- '---\napiVersion: kubeadm.k8s.io/`+api+`\nkind: InitConfiguration\nnodeRegistration: {kubeletExtraArgs: `+args+`}\n' >>edits.yaml`)
	contains(t, install(t, r.control, 5, "reconfigure", "--config", "/root/edits.yaml", "--plan", "--detailed-exitcode"), "maxPods: 123")
	install(t, r.control, 0, "reconfigure", "--config", "/root/edits.yaml", "--yes")
	same(t, "", drift(t, r.control))
	r.follow(t)
	systemIsUp(t, r.Site, len(r.hosts))
	for _, h := range r.hosts {
		same(t, "", drift(t, h))
		contains(t, run(t, h, "cat", kubeletFile), "maxPods: 123")
	}
	if restarted := differ(ids, processes(t, r.control)); len(restarted) > 0 {
		t.Errorf("these restarted: %v", restarted)
	}

	install(t, r.control, 0, "reconfigure", "undo", "--yes")
	same(t, all, drift(t, r.control))
	install(t, r.control, 0, "reconfigure", "--restore", "--yes")
	r.follow(t)
	same(t, flagsFile, drift(t, r.control)) // the cluster does not store them
	run(t, r.control, "sh", "-c", `sed -i 's/--v=3 //' `+flagsFile+`; systemctl restart kubelet`)
	systemIsUp(t, r.Site, len(r.hosts))
	kubectl(t, r.Site, "-n", "kube-system", "patch", "daemonset/kube-proxy", "--type=json", `-p=[{"op":"replace","path":"/spec/template/spec/priorityClassName","value":"system-cluster-critical"}]`)
	same(t, "DaemonSet kube-system/kube-proxy", drift(t, r.control))
	install(t, r.control, 0, "reconfigure", "--restore", "--yes")
	same(t, "", drift(t, r.control))
	systemIsUp(t, r.Site, len(r.hosts))
}
