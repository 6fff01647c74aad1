package spec_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"airlift/installer/multihost/spec"
	"airlift/internal/fault"
)

// whole is a file with each field. In the directory are the files that it names.
const whole = `apiVersion: airlift/v1
kind: Cluster
name: plant-7
ssh:
  user: admin
  port: 2022
  keyPath: key
  jump:
  - address: gate.example.org
    hostKey: SHA256:jdDmF7CksBRxZ6NK0ssUWrd9CF9Ac7MGmXnj0JmiIRg
    user: gate
    port: 2222
    keyPath: key
  - address: 192.0.2.2
hosts:
- name: cp-1
  role: control-plane
  address: 10.0.0.11
  nodeIP: 10.0.0.11
  taints: []
- name: cp-2
  role: control-plane
  ssh:
    address: 10.0.0.12
    hostKey: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ host
- name: cp-3
  role: control-plane
  nodeIP: [10.0.0.13, "fd00::13"]
- name: w-1
  role: worker
  group: canary
  labels:
    zone: "b"
  taints: ["dedicated=db:NoSchedule", "gpu:NoExecute"]
- name: w-2
  role: worker
  patches: patches
  ssh:
    jump: []
    openSSH: true
    options: [-o, ConnectTimeout=20]
- {name: w-3, role: worker, group: "canary"}
groups:
- name: canary
  ssh:
    user: operator
  labels: {zone: "a", stage: canary}
  taints: ["dedicated=web:NoSchedule"]
  patches: patches
  roll:
    maxUnavailable: 25%
    soak: 10m
    pause: true
    check: [./check.sh, --all]
    window:
      days: [Sat, sunday]
      startTime: "22:00"
      endTime: 04:30
      timeZone: Europe/Berlin
endpoint:
  vip: [10.0.0.10]
  balancer: true
embeddedRegistry: false
profile: hardened
encryptSecrets: true
registries:
  mirrors:
    docker.io: ["https://mirror.example:5000", "http://m2"]
    quay.io: https://mirror.example:5000/v2/quay
  ca: [ca.pem, docker.io=ca.pem]
  auth: auth.json
certificates:
  autoRenew: true
  timeZone: Europe/Berlin
backups:
  enabled: true
  directory: /mnt/backup/
  every: 6h
  keep: 4
  timeZone: Europe/Berlin
  recipients: age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p
kubeadm:
- join.yaml
roll:
  order: [control-plane, canary]
  drain: false
  drainTimeout: 2m
  undo: true
---
# as it is
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
networking:
  podSubnet: 10.244.0.0/16
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
nodeRegistration:
  kubeletExtraArgs:
  - name: v
    value: "4"
`

const joinFile = `apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
nodeRegistration:
  kubeletExtraArgs:
  - {name: v, value: "4"}
`

var certificate = create()

// create returns the certificate of a CA.
func create() string {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		panic(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// directory returns the path of a cluster.yaml with this text, next to the files that whole names.
func directory(t testing.TB, text string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "patches"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"cluster.yaml": text, "key": "x", "check.sh": "x", "join.yaml": joinFile, "secret.yaml": strings.Replace(joinFile, "nodeRegistration:", "controlPlane: {certificateKey: 4711}\nnodeRegistration:", 1),
		"ca.pem": certificate, "auth.json": `{"auths": {"mirror.example:5000": {"username": "reader", "password": "hunter2"}}}`,
		"patches/kubeletconfiguration.yaml": "maxPods: 50\n", "patches2/kubeletconfiguration.yaml": "maxPods: {a: b}\n", "init.yaml": "apiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\n", "none.yaml": "",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "cluster.yaml")
}

// Each mistake alone is one error, at its line. The names of pains come from reports to other tools.
func TestOneMistakeIsOneError(t *testing.T) {
	if _, err := spec.Read(directory(t, whole)); err != nil {
		t.Fatal(err)
	}
	const secrets = "cluster.yaml has no secrets"
	// In whole, what is before | in old is kept in front of new, and the error is at the line where the rest was.
	for _, c := range []struct{ name, old, new, want, hint string }{
		{"unknown field", "|name: plant-7", "nam: x\nname: plant-7", "nam is not known", "did you mean name?"},
		{"no field is near", "|name: plant-7", "zzz: x\nname: plant-7", "zzz is not known", "fields here: apiVersion, backups, certificates, embeddedRegistry"},
		{"duplicate key", "role: worker\n  |patches: patches", "role: worker\n  patches: patches", "Cluster.hosts[4].role is written twice", ""},
		{"a list for a mapping", "|ssh:\n    user: operator", "ssh: [operator]", "groups[0].ssh is a list and must be a mapping", "fields here: jump, keyPath"},
		{"a text for a mapping", "|endpoint:\n  vip: [10.0.0.10]\n  balancer: true", "endpoint: 10.0.0.10", `endpoint is the string "10.0.0.10" and must be a mapping`, "fields here: address, balancer, vip"},
		{"a text for a list", "|order: [control-plane, canary]", "order: canary", `roll.order is the string "canary" and must be a list`, "after a dash"},
		{"a mapping for a text", "|user: admin", "user: {name: admin}", "ssh.user is a mapping and must be a string", ""},
		{"a number for a text", "|name: plant-7", "name: 7", "name is the number 7 and must be a string", `put it in quotes, "7"`},
		{"a boolean for a label", "|zone: \"b\"", "zone: yes", "hosts[3].labels.zone is the boolean yes and must be a string", `put it in quotes, "yes"`},
		{"a text for a boolean", "|balancer: true", "balancer: both", `endpoint.balancer is the string "both" and must be true or false`, "without quotes"},
		{"nothing", "|name: plant-7", "name:", "name is empty", "or remove the line"},
		{"an empty text", "|user: admin", `user: ""`, "ssh.user is empty", "or remove the line"},
		{"an empty item", "ssh:\n  |user: admin", "options: [-v, null]\n  user: admin\n  openSSH: true", "ssh.options[1] is empty", ""},
		{"not YAML", "ssh:\n  |user: admin", "user: a: b", "not YAML", "correct the YAML"},
		{"other apiVersion", "|apiVersion: airlift/v1\n", "apiVersion: k0sctl.k0sproject.io/v1beta1\n", `apiVersion "k0sctl.k0sproject.io/v1beta1" is not supported`, "write apiVersion: airlift/v1"},
		{"other kind", "|kind: Cluster\nname", "kind: Bundle\nname", `kind "Bundle" is not supported`, "write kind: Cluster"},

		{"no name of the cluster", "|apiVersion: airlift/v1\nkind: Cluster\nname: plant-7", "apiVersion: airlift/v1\nkind: Cluster", "the file has no name", "plant-7"},
		{"no name of a host", "|name: w-1\n  role: worker", "role: worker\n  address: 10.0.0.21", "hosts[3] has no name", ""},
		{"no role", "|- name: cp-1\n  role: control-plane", "- name: cp-1", "hosts[0] has no role", "role: worker"},
		{"role of k0sctl", "name: cp-1\n  |role: control-plane", "role: controller+worker", `hosts[0].role "controller+worker" is not a role`, "write control-plane, and taints: []"},
		{"role of KubeKey", "name: w-1\n  |role: worker", "role: master", "is not a role", "write control-plane"},
		{"no role at all", "name: w-1\n  |role: worker", "role: x", "is not a role", "write control-plane or worker"},
		{"pain 25: capital letters", "|name: cp-1", "name: CP-1", `hosts[0].name "CP-1" has capital letters, which Kubernetes refuses`, "write cp-1"},
		{"not a name", "|name: cp-1", "name: cp_1", `hosts[0].name "cp_1" is not valid`, ""},
		{"a long name", "|name: cp-1", "name: " + strings.Repeat("a", 64), "is not valid", ""},
		{"two hosts with one name", "|name: cp-2", "name: cp-1", "the host in line 16 has the name cp-1, too", "each host needs its own"},
		{"a range that ends before it begins", "|name: cp-1", "name: cp-[3:1]", `hosts[0].name "cp-[3:1]" has a range that ends before it begins`, "smaller number first"},
		{"two ranges", "|name: cp-1", "name: cp[1-2]-[1-2]", "has two ranges", ""},
		{"a huge range", "|name: cp-1", "name: cp-[0:999999999]", "has a range of more than 5000 hosts", "shorter"},
		{"a range of letters", "|name: cp-1", "name: cp-[a:c]", "is not valid", "such as [01:20]"},
		{"a wrong name in a range", "|name: cp-1", "name: CP-[1:3]", `has "CP-1", which has capital letters`, "write cp-1"},
		{"a wrong address in a range", "role: control-plane\n  |address: 10.0.0.11", "address: 10.0.0.[255-256]", `has "10.0.0.256", which is neither`, ""},
		{"names without addresses", "role: worker\n  |patches: patches", "nodeIP: 10.0.0.[1-2]\n  patches: patches", "hosts[4].nodeIP[0] has 2, and hosts[4].name has 1", "as many numbers"},
		{"two hosts with one address", "ssh:\n    |address: 10.0.0.12", "address: 10.0.0.11", "the host in line 16 has the SSH address 10.0.0.11:2022 through 192.0.2.2:22 through gate.example.org:2222, too", "each host needs its own"},
		{"two hosts with one nodeIP", "|nodeIP: [10.0.0.13, \"fd00::13\"]", `nodeIP: ["fd00::13", 10.0.0.11]`, "the host in line 16 has the nodeIP 10.0.0.11, too", ""},
		{"address twice", "role: control-plane\n  |ssh:", "address: 10.0.0.12\n  ssh:", "hosts[1] has both address and ssh.address", "remove one"},
		{"nodeIP of one family", "|nodeIP: [10.0.0.13, \"fd00::13\"]", "nodeIP: [10.0.0.13, 10.0.0.14]", "hosts[2].nodeIP has several addresses of a family", ""},
		{"nodeIP with a comma", "|nodeIP: [10.0.0.13, \"fd00::13\"]", `nodeIP: "10.0.0.13,fd00::13"`, "is not one IP address", "write a list"},
		{"nodeIP with a prefix", "|nodeIP: 10.0.0.11", "nodeIP: 10.0.0.11/24", "is not an IP address", "length of a prefix"},
		{"nodeIP of the loopback", "|nodeIP: 10.0.0.11", "nodeIP: 127.0.0.1", "cannot be the address of a node", ""},
		{"address with a user", "|address: 10.0.0.11", "address: root@10.0.0.11", "is neither an IP address nor a name", "ssh.user"},
		{"address with a port", "|address: 10.0.0.11", "address: 10.0.0.11:22", "is neither", "ssh.port"},
		{"address in brackets", "|address: 10.0.0.11", `address: "[fd00::1]:22"`, "is neither", "without brackets"},
		{"an address with a mistake", "|address: 10.0.0.11", "address: 10.0.0.256", "is neither", ""},
		{"an option as the address", "|address: 10.0.0.11", "address: -oProxyCommand=x", "is neither", ""},
		{"an option as the user", "|user: admin", "user: -oProxyCommand=x", "is not the name of a user", ""},
		{"a port of 0", "|port: 2022", "port: 0", "ssh.port must be the number of a port", "1 to 65535"},
		{"a port in quotes", "|port: 2022", `port: "22"`, `ssh.port is the string "22" and must be a whole number`, "without quotes"},
		{"no such key", "|keyPath: key\n  jump", "keyPath: key2\n  jump", `ssh.keyPath "key2" cannot be read`, "relative to the directory of"},
		{"a directory as the key", "|keyPath: key\n  jump", "keyPath: patches\n  jump", "is not a file", ""},
		{"home of another", "|keyPath: key\n  jump", "keyPath: ~joe/key\n  jump", "is not a path that Airlift knows", ""},
		{"not a host key", "hostKey: |ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ host", "ssh-rsa AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ", "is not a host key", "ssh-keygen"},
		{"half a fingerprint", "|SHA256:jdDmF7CksBRxZ6NK0ssUWrd9CF9Ac7MGmXnj0JmiIRg", "SHA256:jdDmF7C", "is not a host key", ""},
		{"a default address", "ssh:\n  |user: admin", "address: 10.0.0.1\n  user: admin", "ssh.address is not known", ""},
		{"jump host of k0sctl", "ssh:\n  |user: admin", "bastion: {address: a}\n  user: admin", "ssh.bastion is not known", "write jump"},
		{"a jump host without an address", "- |address: gate.example.org\n    ", "", "ssh.jump[0] has no address", ""},
		{"a jump host with a jump host", "- address: 192.0.2.2\n|", "    jump: []\n", "ssh.jump[1].jump is not known", "fields here"},
		{"jump loop", "- address: |192.0.2.2", "GATE.example.org\n    port: 2222", "ssh.jump goes through gate.example.org:2222 twice", "remove one"},
		{"a host that jumps to itself", "role: control-plane\n  |address: 10.0.0.11", "ssh: {port: 22}\n  address: 192.0.2.2", `host "cp-1" is its own jump host`, "jump: []"},
		{"options without openSSH", "|openSSH: true\n    options", "options", "hosts[4].ssh.options needs openSSH", "openSSH: true"},
		{"unchecked host keys", "options: [-o, |ConnectTimeout=20", "stricthostkeychecking=no", "would accept any host key", "pins one"},
		{"no such group", "|group: canary", "group: canaries", `there is no group "canaries"`, "add it to groups"},
		{"a group of both roles", "name: w-2\n  |role: worker", "group: canary\n  role: control-plane", `the group "canary" has a worker, and "w-2" is a control-plane`, "a group of its own"},
		{"the group of the other role", "|group: canary", "group: control-plane", `the group "control-plane" is for hosts with this role`, ""},
		{"a group without a name", "groups:\n- |name: canary\n  ssh:", "ssh:", "groups[0] has no name", ""},
		{"a label's name", "|zone: \"b\"", "-zone-: \"b\"", `hosts[3].labels: the name "-zone-" is not valid`, ""},
		{"a label's value", "|zone: \"b\"", "zone: \"b b\"", "hosts[3].labels.zone \"b b\" is not valid", ""},
		{"a label of the kubelet", "|zone: \"b\"", "kubernetes.io/hostname: \"b\"", "Kubernetes sets this label itself", "remove"},
		{"a taint without an effect", "\"dedicated=db:NoSchedule\", |\"gpu:NoExecute\"", "gpu", `hosts[3].taints[1] "gpu" is not a taint`, "KEY=VALUE:EFFECT"},
		{"a taint's key", "\"dedicated=db:NoSchedule\", |\"gpu:NoExecute\"", "\"g u:NoExecute\"", "is not valid", ""},
		{"a taint twice", "\"dedicated=db:NoSchedule\", |\"gpu:NoExecute\"", "\"dedicated=x:NoSchedule\"", "hosts[3].taints has dedicated:NoSchedule twice", "remove one"},
		{"a label of a group with two hosts", "labels: {|zone", "-zone", `groups[0].labels: the name "-zone" is not valid`, ""},
		{"no such patches", "role: worker\n  |patches: patches", "patches: nope", "hosts[4].patches \"nope\" is not valid: reading the patches", ""},

		{"half a host", "maxUnavailable: |25%", "0.5", `groups[0].roll.maxUnavailable "0.5" is not a number of hosts`, "from 1"},
		{"no host", "maxUnavailable: |25%", "0", "is not a number of hosts", ""},
		{"too many percent", "maxUnavailable: |25%", "101%", "is not a number of hosts", "100%"},
		{"a number of seconds", "soak: |10m", "600", `groups[0].roll.soak "600" is not a duration`, "with its unit"},
		{"negative", "soak: |10m", "-10m", "is not a duration", ""},
		{"no command", "check: |[./check.sh, --all]", "[]", "groups[0].roll.check is empty", ""},
		{"a command as a text", "check: |[./check.sh, --all]", "./check.sh --all", `groups[0].roll.check is the string "./check.sh --all" and must be a list`, ""},
		{"not a day", "days: [Sat, |sunday]", "weekend]", "is not a day of the week", "write Mon"},
		{"a day twice", "days: [Sat, |sunday]", "saturday]", "groups[0].roll.window.days has Saturday twice", ""},
		{"not a time", "endTime: |04:30", "4pm", "is not a time of the day", "hours and minutes"},
		{"no time between", "|window:\n      days: [Sat, sunday]\n      startTime: \"22:00\"\n      endTime: 04:30", "window:\n      startTime: \"22:00\"\n      endTime: 22:00", "groups[0].roll.window begins when it ends", "the whole day"},
		{"an empty window", "|window:\n      days: [Sat, sunday]\n      startTime: \"22:00\"\n      endTime: 04:30", "window:", "groups[0].roll.window has no time", "write days"},
		{"not a zone", "      timeZone: |Europe/Berlin", "Mars/Base", "is not a time zone of this machine", "write UTC"},
		{"zone of the machine", "      timeZone: |Europe/Berlin", "Local", "is not a time zone", ""},
		{"order names no group", "order: [control-plane, |canary]", "canaries]", `there is no group "canaries"`, ""},
		{"order names a group twice", "order: [control-plane, |canary]", "control-plane]", `roll.order has control-plane twice`, "remove one"},
		{"workers before control planes", "order: |[control-plane, canary]", "[canary, control-plane]", `roll.order has the control planes "control-plane" after the workers "canary"`, "newer"},
		{"no time to drain", "drainTimeout: |2m", "0s", "roll.drainTimeout is 0", "drain: false"},

		{"not an address", "vip: |[10.0.0.10]", "[k8s.example.org]", "endpoint.vip[0] \"k8s.example.org\" is not an IP address", ""},
		{"pain 28: the address of a host", "|vip: [10.0.0.10]", "vip: 10.0.0.12", `endpoint.vip 10.0.0.12 is an address of the host "cp-2"`, "a free address"},
		{"the nodeIP of a host", "|vip: [10.0.0.10]", `vip: "FD00:0::13"`, `endpoint.vip fd00::13 is an address of the host "cp-3"`, ""},
		{"two of a family", "|vip: [10.0.0.10]", "vip: [10.0.0.10, 10.0.0.9]", "endpoint.vip has several addresses of a family", ""},
		{"an address and a vip", "balancer: true\n|", "  address: k8s.example.org\n", "endpoint has both vip and address", ""},
		{"a URL", "|vip: [10.0.0.10]", "address: https://k8s.example.org", "endpoint.address", ""},
		{"no endpoint", "|endpoint:\n  vip: [10.0.0.10]\n  balancer: true", "endpoint: {}", "3 control planes need an endpoint", "vip:"},

		{"pain 39: a password", "ssh:\n  |user: admin", "password: hunter2\n  user: admin", "ssh.password: " + secrets, "on the terminal"},
		{"a sudo password", "|role: control-plane\n  address", "sudoPassword: hunter2\n  role: control-plane\n  address", "hosts[0].sudoPassword: " + secrets, "on the terminal"},
		{"a token", "|embeddedRegistry: false", "joinToken: abcdef.0123456789abcdef", "joinToken: " + secrets, "on the terminal"},
		{"a key", "ssh:\n  |user: admin", "privateKeyContent: hunter2\n  user: admin", "ssh.privateKeyContent: " + secrets, ""},
		{"a certificate key", "kind: InitConfiguration\n|", "certificateKey: 4711\n", "InitConfiguration.certificateKey cannot be in the file of a cluster", "no secrets"},
		{"a bootstrap token", "kind: InitConfiguration\n|", "bootstrapTokens: [{token: 4711}]\n", "InitConfiguration.bootstrapTokens.token cannot be", "no secrets"},
		{"name in kubeadm's document", "nodeRegistration:\n  |kubeletExtraArgs", "name: cp-1\n  kubeletExtraArgs", "InitConfiguration.nodeRegistration.name cannot be", "hosts[].name"},
		{"address in kubeadm's document", "kind: InitConfiguration\n|", "localAPIEndpoint: {advertiseAddress: 10.0.0.11}\n", "InitConfiguration.localAPIEndpoint.advertiseAddress cannot be", "nodeIP"},
		{"unknown field of kubeadm", "|  podSubnet: ", "  podSubnt: ", "ClusterConfiguration.networking.podSubnt is not known", ""},
		{"a wrong type in kubeadm's document", "podSubnet: |10.244.0.0/16", "[10.244.0.0/16]", "ClusterConfiguration.networking.podSubnet is a list and must be a string", ""},
		{"duplicate key in kubeadm's document", "podSubnet: 10.244.0.0/16\n|", "  podSubnet: 10.244.0.0/16\n", "podSubnet is written twice", ""},
		{"no kind of kubeadm", "podSubnet: 10.244.0.0/16\n---\napiVersion: kubeadm.k8s.io/v1beta4\n|kind: InitConfiguration", "kind: Pod", `has no kind "Pod"`, ""},
		{"another name", "kind: ClusterConfiguration\n|", "clusterName: other\n", `clusterName "other" differs from name "plant-7" of the cluster`, ""},
		{"an endpoint of kubeadm", "kind: ClusterConfiguration\n|", "controlPlaneEndpoint: other:6443\n", "controlPlaneEndpoint cannot be together with endpoint.vip", ""},
		{"no such file", "- |join.yaml", "nope.yaml", `kubeadm[0] "nope.yaml" cannot be read`, "kubeadm's documents"},
		{"no renewal", "|certificates:\n  autoRenew: true", "certificates:", "certificates has no autoRenew", "false to remove"},
		{"backups nowhere", "|backups:\n  enabled: true\n  directory: /mnt/backup/", "backups:\n  enabled: true", "backups has no directory", "enabled: false"},
		{"a target and a directory", "|directory: /mnt/backup/", "target: s3://backups\n  directory: /mnt/backup/", "backups has a directory and a target", ""},
		{"a target without its file", "|directory: /mnt/backup/", "target: s3://backups/plant", "backups has a target and no targetConfig", "docs backup"},
		{"a target that is no URL", "|directory: /mnt/backup/", "target: nas:/backups\n  targetConfig: auth.json", "backups.target \"nas:/backups\" is not the URL of a target", "s3://"},
		{"credentials without a target", "|directory: /mnt/backup/", "targetConfig: auth.json\n  directory: /mnt/backup/", "backups has targetConfig and no target", ""},
		{"a relative directory", "directory: |/mnt/backup/", "backup", `backups.directory "backup" is not an absolute path`, "/mnt/backup"},
		{"a directory that systemd changes", "directory: |/mnt/backup/", "/mnt/%h", "not allowed in a systemd unit", ""},
		{"an interval that cannot be caught up", "every: |6h", "7h", `backups.every "7h" is not an interval`, "168h"},
		{"an interval of seconds", "every: |6h", "30s", "is not an interval", ""},
		{"nothing to keep", "keep: |4", "0", "backups.keep must be a number from 1", ""},
		{"no key of age", "recipients: |age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p", "ssh-ed25519", "is not a public key of age", "age1"},
		{"a private key", "recipients: |age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p", "AGE-SECRET-KEY-1hunter2", "backups.recipients[0] is a private key", "age-keygen -y"},
		{"a mirror of no registry", "mirrors:\n    |docker.io: [", "docker: [", `registries.mirrors: the name "docker" cannot be used`, ""},
		{"a mirror without a scheme", "docker.io: [|\"https://mirror.example:5000\"", "mirror.example:5000", `registries.mirrors.docker.io[0] "mirror.example:5000" cannot be used`, "write a URL"},
		{"a password in a mirror", "docker.io: [|\"https://mirror.example:5000\"", "\"https://u:hunter2@mirror.example\"", "registries.mirrors.docker.io[0] has a user name or a password: " + secrets, "registries.auth"},
		{"a port that is no number", "docker.io: [|\"https://mirror.example:5000\"", "\"https://mirror.example:port\"", "cannot be used: it is not a URL", ""},
		{"no such CA", "ca: [|ca.pem", "nope.pem", `registries.ca[0] "nope.pem" cannot be read`, "relative to the directory of"},
		{"a CA that is a key", "ca: [|ca.pem", "key", "registries.ca: reading ", "HOST=FILE"},
		{"the CA of no registry", "ca: [ca.pem, |docker.io=ca.pem", "docker=ca.pem", `"docker" is not the name of a registry`, "HOST=FILE"},
		{"no such credentials", "auth: |auth.json", "nope.json", `registries.auth "nope.json" cannot be read`, "config.json"},
		{"credentials that are none", "auth: |auth.json", "key", "registries.auth: reading ", "auths"},
		{"mirrors as a list", "|mirrors:\n    docker.io: [\"https://mirror.example:5000\", \"http://m2\"]\n    quay.io: https://mirror.example:5000/v2/quay", "mirrors: [a]", "registries.mirrors is a list and must be a mapping", ""},
		{"no such profile", "profile: |hardened", "cis", `profile "cis" is not a profile`, "write hardened"},
		{"a profile that is no text", "profile: |hardened", "true", "profile", ""},
		{"encryption that is neither on nor off", "encryptSecrets: |true", "secretbox", "encryptSecrets", ""},
		{"other keys than Airlift's", "kind: ClusterConfiguration\n|", "apiServer: {extraArgs: [{name: encryption-provider-config, value: /etc/keys.yaml}]}\n", "encryption-provider-config cannot be together with encryptSecrets", "remove the argument"},
		{"an empty file", "- |join.yaml", "none.yaml", `kubeadm[0] "none.yaml" is empty`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			before, rest, _ := strings.Cut(c.old, "|")
			at := strings.Index(whole, before+rest)
			if at < 0 || strings.Count(whole, before+rest) != 1 && !strings.Contains("address port", rest) {
				t.Fatalf("%q is not in the file once", c.old)
			}
			at += len(before)
			text := whole[:at] + c.new + whole[at+len(rest):]
			line := 1 + strings.Count(whole[:at], "\n")
			one(t, directory(t, text), line, c.want, c.hint)
		})
	}
}

// one expects a single error.
func one(t *testing.T, path string, line int, want, hint string) {
	t.Helper()
	_, err := spec.Read(path)
	if err == nil {
		t.Fatal("no error")
	}
	text := strings.ReplaceAll(err.Error(), filepath.Dir(path)+"/", "")
	if strings.Contains(text, " errors:") {
		t.Fatalf("several errors: %s", text)
	}
	if !strings.HasPrefix(text, fmt.Sprintf("cluster.yaml:%d: ", line)) || !strings.Contains(text, want) {
		t.Errorf("%s\nwant line %d: %s", text, line, want)
	}
	if !strings.Contains(fault.Hint(err), hint) || fault.ExitCode(err) != fault.Usage {
		t.Errorf("hint %q, want %q", fault.Hint(err), hint)
	}
	if strings.Contains(text+fault.Hint(err), "hunter2") || strings.Contains(text, "4711") || strings.Contains(text, "0123456789abcdef") {
		t.Errorf("a secret is in the error: %s", text)
	}
}
