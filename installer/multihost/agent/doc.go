// Package agent is what runs on a host for the driver of a cluster: the hidden commands "cluster host …". They print JSON
// on standard output and nothing else there; a failure is the usual "error:" and "hint:" on standard error, and the usual
// exit code.
//
//	cluster host facts
//
// prints a facts.Facts, indented, within five seconds. It changes nothing, needs no lock, and always exits with 0: what could
// not be read is in "unknown", by the name of the field ("cluster", "node.version", "runs"). A host that has no node has
// neither "node" nor unknown["node"].
//
//	cluster host hold --who TEXT [--beat 1m]
//
// takes the lock of this host for a driver, and prints one line:
//
//	{"held":true,"who":"ann@laptop, pid 4711, cluster apply","since":"2026-11-27T17:00:00Z"}
//
// It holds the lock until standard input ends, or a signal, and then exits with 0. With --beat, it also ends with exit code
// 1 when standard input brought nothing for that long: the driver writes a byte more often, so that a driver's machine
// without power does not lock the hosts. If another driver holds the lock, it exits with 1 and the line is that holder's:
//
//	{"held":false,"who":"bob@desk, pid 12, cluster apply","since":"2026-11-27T16:51:07Z"}
//
//	cluster host credentials [--control-plane] [--ttl 30m]
//
// on a control plane: creates a bootstrap token, and with --control-plane uploads the certificates with a new key:
//
//	{"token":"abcdef.0123456789abcdef","caCertHashes":["sha256:…"],"certificateKey":"…64 hex digits…",
//	 "apiServerEndpoint":"10.0.0.10:6443","apiServers":["10.0.0.11:6443"],"expires":"2026-11-27T17:30:00Z"}
//
// caCertHashes has two values while the CA is rotated. Without --control-plane there is no certificateKey. With an external
// CA, --control-plane fails as "init phase upload-certs" does. With an external etcd, its client's certificate is uploaded.
//
//	cluster host credentials --delete
//
// reads such a document from standard input (only "token" is needed), and deletes the token, and the uploaded certificates
// if certificateKey decrypts them: another upload stays. It prints what it deleted, and it is no error if all is gone:
//
//	{"deleted":["token abcdef","certificates"]}
//
//	cluster host reach --endpoint 10.0.0.10:6443 [--api-servers 10.0.0.11:6443] [--timeout 1m]
//
// on a host that is to join: fails if it reaches an API server, but in this time not the endpoint. It prints nothing.
//
//	cluster host nodes [--dry-run]
//
// on a control plane: reads from standard input what nodes are to have
//
//	[{"name":"w1","labels":{"zone":"a"},"taints":["dedicated=gpu:NoSchedule"]},{"name":"cp1","labels":{},"taints":null}]
//
// and prints what it changed, or would change, for each of them in that order:
//
//	[{"name":"w1","changes":["+zone=a","-rack","+taint dedicated=gpu:NoSchedule","-taint old:NoExecute"]},{"name":"cp1","changes":[]}]
//
// A label or taint that an earlier run set, and that the list no longer has, is removed. The ConfigMap
// kube-system/airlift-nodes has their keys: no kubelet may write it. Taints that are null stay as they are, except taints
// that an earlier run set. All others stay, also kubeadm's, with one exception: a control plane with a list of taints, which
// may be empty, loses the taint of kubeadm's default that is not in the list, as with nodeRegistration.taints, and gets it
// back with null. All entries are checked before the first write.
//
//	cluster host gate
//
// on a control plane: reads from standard input which gate (facts.Gate) the driver knows in the cluster, and which one takes its
// place; null is none. It fails if the cluster has another one: another driver was there.
//
//	{"was":null,"is":{"stage":"upgrade canary","verb":"upgrade node","to":"v1.37.1","hosts":["w1"],"groups":["canary"],"checks":["canary"],"by":"ann@laptop, …","since":"…","broken":null}}
//
// If broken is null, it adds the pods of the site that are not ready now. It prints the gate as it is stored, or null.
//
//	cluster host wait [--version v1.37.1] [--timeout 5m] [--for 0s] [--system-pods=false]
//
// on a control plane: reads the names of nodes from standard input, [] for all nodes, and waits until each is Ready with that version
// of the kubelet, and all its pods of kube-system and kube-flannel are ready, for so long in a row. Pods in broken need not be.
//
//	{"nodes":["w1","w2"],"broken":{"kube-system/DaemonSet/agent on w2":1}}
//
// It prints one line whenever what is missing changes. nodes are the nodes that are not healthy; none, if no API server answers:
//
//	{"time":"2026-11-27T17:00:01Z","waitingFor":["w1: not Ready: …","w2: pod kube-system/kube-proxy-x2x4z: …"],"nodes":["w1","w2"]}
//	{"time":"2026-11-27T17:00:09Z","waitingFor":[],"nodes":[]}
//
// An empty list begins the time of --for. It exits with 0, or with 1 after --timeout, which does not count --for.
//
// # The events of --progress json
//
// Every command of install has the flag --progress json. Its texts for people become one JSON object (progress.Event) per
// line on the same output; the last one is done or error:
//
//	{"time":"…","event":"step","step":"preflight","number":1,"of":14,"text":"Check this host"}
//	{"time":"…","event":"note","text":"took 1.2s"}
//	{"time":"…","event":"warning","text":"…"}
//	{"time":"…","event":"done","text":"the summary, lines separated by \n"}
//	{"time":"…","event":"error","text":"…","code":3,"hint":"…"}
//
// Documents (-o json, manifests of a dry run) stay as they are. A command that prints one on standard output has its last
// event on standard error. The text of done may have a token (of init): do not log it, or use --skip-token-print.
package agent
