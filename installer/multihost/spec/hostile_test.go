package spec_test

import (
	"strings"
	"testing"

	"airlift/installer/multihost/spec"
)

// Values that YAML, ssh or a resolver would read as something else than the author of the file.
func TestValuesThatOthersReadDifferently(t *testing.T) {
	const hosts = `apiVersion: airlift/v1
kind: Cluster
name: plant-7
hosts:
- {name: cp-1, role: control-plane, address: 10.0.0.1}
- {name: w-1, role: worker, address: 10.0.0.2, @}
@@
`
	for _, c := range []struct {
		name, ofHost, text string
		line               int
		want, hint         string
	}{
		{"an octal port", "ssh: {port: 022}", "", 6, "hosts[1].ssh.port must be the number of a port", "without a zero in front"},
		{"a hexadecimal port", "ssh: {port: 0x16}", "", 6, "hosts[1].ssh.port must be", ""},
		{"a port with an exponent", "ssh: {port: 2e1}", "", 6, "hosts[1].ssh.port must be", ""},
		{"a port with an underscore", "ssh: {port: 2_2}", "", 6, "hosts[1].ssh.port must be", ""},
		{"an octal number of hosts", "", "groups: [{name: worker, roll: {maxUnavailable: 010}}]", 7, `maxUnavailable "010" is not a number of hosts`, ""},
		{"a number of hosts with an exponent", "", "groups: [{name: worker, roll: {maxUnavailable: 1e1}}]", 7, `maxUnavailable "1e1" is not`, ""},
		{"a line in a zone", `ssh: {jump: [{address: "fe80::1%e\n* ssh-rsa"}]}`, "", 6, "hosts[1].ssh.jump[0].address", "10.0.0.11"},
		{"a shell in a zone", `ssh: {jump: [{address: "fe80::1%$(id)"}]}`, "", 6, "hosts[1].ssh.jump[0].address", "10.0.0.11"},
		{"a hexadecimal address", `ssh: {jump: [{address: "0xA000001"}]}`, "", 6, "is neither an IP address nor a name", "10.0.0.11"},
		{"another form of an address", "", `- {name: w-2, role: worker, address: "::ffff:10.0.0.2"}`, 7, "the host in line 6 has the SSH address 10.0.0.2:22, too", ""},
		{"an option that is a host", "", "ssh: {openSSH: true, options: [ForwardAgent=no]}", 7, `ssh.options has "ForwardAgent=no", which ssh would read as the host`, "-o"},
		{"a host after an option", "", `ssh: {openSSH: true, options: ["-4", other.example.org]}`, 7, `which ssh would read as the host`, "-o"},
		{"unchecked keys in quotes", "", `ssh: {openSSH: true, options: [-o, "StrictHostKeyChecking=\"no\""]}`, 7, "would accept any host key", ""},
		{"unchecked keys after a tab", "", `ssh: {openSSH: true, options: [-o, "stricthostkeychecking\tfalse"]}`, 7, "would accept any host key", ""},
		{"no known hosts", "", `ssh: {openSSH: true, options: [-oUserKnownHostsFile=none]}`, 7, "would accept any host key", ""},
		{"a taint of Kubernetes", `taints: ["node.kubernetes.io/not-ready:NoSchedule"]`, "", 6, "controllers of Kubernetes set and remove", "remove the line"},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := strings.Replace(strings.Replace(hosts, "@@", c.text, 1), ", @", map[bool]string{true: ", " + c.ofHost}[c.ofHost != ""], 1)
			one(t, directory(t, text), c.line, c.want, c.hint)
		})
	}
	text := strings.Replace(strings.Replace(hosts, "@@", "ssh: {openSSH: true, options: [\"-4\", -o, ForwardAgent=no]}", 1), ", @", `, ssh: {jump: [{address: "fe80::1%eth0.7"}]}`, 1)
	if _, err := spec.Read(directory(t, text)); err != nil {
		t.Error(err)
	}
}

// One document of kubeadm is for all hosts: what would make them one node, or change nothing, is refused.
func TestPain25ArgumentsOfOneHostInADocumentForAll(t *testing.T) {
	const hosts = `apiVersion: airlift/v1
kind: Cluster
name: plant-7
hosts:
- {name: cp-1, role: control-plane, address: 10.0.0.1}
- {name: w-1, role: worker, address: 10.0.0.2}
---
`
	for _, c := range []struct{ api, kind, text, want, hint string }{
		{"v1beta4", "JoinConfiguration", "nodeRegistration: {kubeletExtraArgs: [{name: hostname-override, value: x}]}", "kubeletExtraArgs: hostname-override cannot", "hosts[].name"},
		{"v1beta4", "InitConfiguration", "nodeRegistration: {kubeletExtraArgs: [{name: v, value: \"4\"}, {name: node-ip, value: 10.0.0.1}]}", "kubeletExtraArgs: node-ip cannot", "nodeIP"},
		{"v1beta3", "JoinConfiguration", "nodeRegistration: {kubeletExtraArgs: {node-ip: 10.0.0.1}}", "kubeletExtraArgs: node-ip cannot", "nodeIP"},
		{"v1beta4", "ClusterConfiguration", "apiServer: {extraArgs: [{name: advertise-address, value: 10.0.0.1}]}", "apiServer.extraArgs: advertise-address cannot", "nodeIP"},
		{"v1beta4", "ClusterConfiguration", "etcd: {local: {extraArgs: [{name: name, value: x}]}}", "etcd.local.extraArgs: name cannot", "each host has its own"},
		{"v1beta4", "JoinConfiguration", "dryRun: true", "JoinConfiguration.dryRun cannot", "cluster plan"},
	} {
		one(t, directory(t, hosts+"apiVersion: kubeadm.k8s.io/"+c.api+"\nkind: "+c.kind+"\n"+c.text+"\n"), 10, c.want, c.hint)
	}
	const others = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\netcd: {local: {extraArgs: [{name: quota-backend-bytes, value: \"8\"}]}}\n"
	if _, err := spec.Read(directory(t, hosts+others)); err != nil {
		t.Error(err)
	}
}
