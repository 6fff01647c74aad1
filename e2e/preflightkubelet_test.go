//go:build e2e

package e2e

import "fmt"

// kubeletCases are configurations with which the kubelet would not start.
func kubeletCases() []preflightCase {
	const (
		file   = "/root/kubelet.yaml"
		labels = `apiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\nnodeRegistration: {kubeletExtraArgs: [{name: node-labels, value: node-role.kubernetes.io/worker=}]}\n`
	)
	with := func(check, text string) preflightCase {
		return preflightCase{name: check, setup: fmt.Sprintf("printf '%s' > %s", text, file), undo: "rm " + file, args: "--config " + file}
	}
	settings := func(check, field string) preflightCase {
		return with(check, `apiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\n---\napiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n`+field+`\n`)
	}
	owners := func(flags string) (setup, undo string) {
		return "mkdir -p /etc/default; echo 'KUBELET_EXTRA_ARGS=" + flags + "' > /etc/default/kubelet", "rm /etc/default/kubelet"
	}
	unknown := preflightCase{name: "KubeletFlags"}
	unknown.setup, unknown.undo = owners("--no-such-flag=1")
	contradicts := settings("KubeletFlags", "maxPods: 60")
	contradicts.warning = true
	setup, undo := owners("--max-pods=50")
	contradicts.setup, contradicts.undo = contradicts.setup+"; "+setup, contradicts.undo+"; "+undo
	return []preflightCase{
		with("KubeletNodeLabels", labels),
		unknown,
		contradicts,
		settings("KubeletConfiguration", "imageGCHighThresholdPercent: 101"),
		settings("KubeletFeatureGates", "featureGates: {NoSuchGate: true}"),
		settings("KubeletTLS", "tlsMinVersion: VersionTLS99"),
		settings("KubeletClientCA", "authentication: {x509: {clientCAFile: /etc/none.crt}}"),
		settings("KubeletReserved", "systemReserved: {memory: 900Ti}"),
	}
}
