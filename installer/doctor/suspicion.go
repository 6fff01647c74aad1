package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"airlift/installer/redact"
	"airlift/installer/status"
)

// A Suspicion is something that may be the cause of a problem.
type Suspicion struct {
	Name string `json:"name"` // for scripts: "disk-full"
	Saw  string `json:"saw"`
	Why  string `json:"why"` // why it matters
	Fix  string `json:"fix"` // what to type
	rank rank
}

func (s Suspicion) redacted() Suspicion {
	s.Saw, s.Fix = redact.Line(s.Saw), redact.Line(s.Fix)
	return s
}

// A rank orders suspicions: causes come before what follows from them.
type rank int

const (
	aClock       rank = iota
	aNode             // another one
	aDisk             // full or read-only
	aCertificate      // expired
	aFirewall
	aConfiguration // that the kubelet refuses
	anEndpoint     // the virtual address and the balancer
	aRuntime
	aKubelet
	anImage
	aStore     // etcd
	anAPI      // kube-apiserver
	aContainer // another one
	aDNS
	aPressure
	aLeftover
	aSymptom // of something else
	aRun
)

// suspicions collects them.
type suspicions struct{ list []Suspicion }

func (s *suspicions) add(r rank, name, why, fix, format string, args ...any) {
	s.list = append(s.list, Suspicion{Name: name, Saw: fmt.Sprintf(format, args...), Why: why, Fix: fix, rank: r})
}

// suspect derives suspicions from the examined facts, causes first.
func suspect(e examined) []Suspicion {
	s := &suspicions{list: []Suspicion{}}
	s.clock(e)
	s.disks(e)
	s.certificates(e)
	s.checks(e)
	s.runtime(e)
	s.components(e)
	s.images(e)
	s.etcd(e)
	s.addOns(e)
	s.endpoint(e)
	s.node(e)
	s.run(e)
	slices.SortStableFunc(s.list, func(a, b Suspicion) int { return cmp.Compare(a.rank, b.rank) })
	return s.list
}

const setClock = "timedatectl set-time 'YYYY-MM-DD HH:MM:SS'; or start a time server's client, such as chrony, that all hosts use"

func (s *suspicions) clock(e examined) {
	c := e.clock
	const why = "certificates and tokens are rejected outside of their validity period, and the leases of etcd and of the nodes depend on the clock"
	if c.later != "" {
		s.add(aClock, "clock-behind", why, setClock, "this host's clock shows %s, but %s at %s", c.here.UTC().Format(time.RFC3339), c.later, c.laterAt.UTC().Format(time.RFC3339))
	}
	if c.api > clockTolerance || c.api < -clockTolerance {
		s.add(aClock, "clock-differs", why, setClock, "the API server's clock differs from this host's: %s", ahead(c.api))
	}
	for _, node := range sortedKeys(c.nodes) {
		s.add(aClock, "node-clock-differs", why, "on "+node+": "+setClock, "the clock of node %s differs from the API server's: %s", node, ahead(c.nodes[node]))
	}
}

func (s *suspicions) disks(e examined) {
	for _, d := range e.disks {
		switch {
		case d.full():
			s.add(aDisk, "disk-full", "etcd, containerd and the kubelet stop or lose data if they cannot write",
				"du -xh "+d.mount+" | sort -h | tail; then remove what is not needed, or mount a larger disk", "the file system at %s is full: %d of %d MB are free", d.mount, d.free/1e6, d.total/1e6)
		case d.noInodes():
			s.add(aDisk, "no-inodes", "no file can be created, although there is space", "du -x --inodes "+d.mount+" | sort -n | tail", "the file system at %s has %d of %d inodes free", d.mount, d.inodesFree, d.inodes)
		case d.readOnly && slices.ContainsFunc(nodeDirs, func(dir string) bool { return below(dir, d.mount) && dir != "/opt/cni" }):
			s.add(aDisk, "read-only", "a kernel mounts a damaged file system read-only; nothing of the node can write", "dmesg | tail -50; then repair the file system and reboot", "the file system at %s is mounted read-only", d.mount)
		}
	}
}

func (s *suspicions) certificates(e examined) {
	for _, p := range e.status.Problems {
		if p.Part == "certificates" {
			s.add(aCertificate, "certificate", "the components refuse connections with it", p.Fix, "%s", p.Message)
		}
	}
	for _, p := range e.status.Warnings {
		if p.Part == "certificates" {
			s.add(aSymptom, "certificate-soon", "the components will refuse connections with it", p.Fix, "%s", p.Message)
		}
	}
}

// checks are errors of the preflight checks, and warnings that explain problems.
func (s *suspicions) checks(e examined) {
	for _, p := range e.checks.Warnings {
		switch {
		case p.Name == "Firewall" && strings.Contains(p.Message, "that this node needs"):
			s.add(aFirewall, "firewall", "other nodes, pods or this host itself cannot reach what listens there", p.Fix, "%s", p.Message)
		case p.Name == "Preflight":
			s.add(aSymptom, "preflight", "without the checks, problems in this host's configuration are not found", "ip address; hostname", "%s", p.Message)
		}
	}
	for _, p := range e.checks.Errors {
		at := aConfiguration
		if p.Name == "IsPrivilegedUser" {
			at = aClock // nothing else can be trusted
		}
		s.add(at, "preflight-"+p.Name, "the preflight check "+p.Name+" fails, so init and join would fail on this host", cmp.Or(p.Fix, "./install preflight init"), "%s", p.Message)
	}
}

func (s *suspicions) components(e examined) {
	for _, c := range e.status.Components {
		if c.Healthy {
			continue
		}
		saw := fmt.Sprintf("%s is not healthy: %s", c.Name, c.Reason)
		lines := e.logs[c.Name]
		stopped := c.Kind == "unit" && strings.HasSuffix(c.Reason, "inactive (dead)")
		if stopped {
			lines = nil // it did not fail
		}
		if len(lines) > 0 {
			saw += "\nthe last lines of its log:\n  " + strings.Join(lines, "\n  ")
		}
		known := cause(append(slices.Clone(lines), c.Reason))
		why, fix, at := "", "", aContainer
		switch {
		case c.Name == "containerd":
			at, why, fix = aRuntime, "without containerd no container starts, and the kubelet is not healthy", "systemctl status containerd; journalctl -u containerd -e; systemctl restart containerd"
		case c.Name == "kubelet":
			at, why, fix = aKubelet, "without the kubelet no pod starts, and the node becomes NotReady", "journalctl -u kubelet -e; systemctl restart kubelet"
		case c.Name == "airlift-endpoint":
			at, why, fix = anEndpoint, "this node has no balancer, and cannot have the virtual address", "journalctl -u airlift-endpoint -e; systemctl restart airlift-endpoint"
		case c.Name == "etcd":
			at, why = aStore, "the API server needs etcd"
		case c.Name == "kube-apiserver":
			at, why = anAPI, "kubelets, controllers and kubectl need the API server"
		case c.Name == "coredns":
			at, why = aDNS, "pods cannot resolve the names of Services"
		default:
			why = "it is a component of the cluster"
		}
		if fix == "" {
			fix = "tail -50 /var/log/pods/kube-system_" + c.Name + "-*/*/*.log"
		}
		if c.Kind == "static-pod" {
			fix += "; its flags: /etc/kubernetes/manifests/" + c.Name + ".yaml"
			if c.State == "missing" {
				at = max(at, aContainer)
				why += "; the kubelet does not start it while containerd does not run, or if its manifest is not valid"
				fix = "journalctl -u kubelet -e | grep " + c.Name
			}
		}
		// What fails only because something else does comes after that.
		if c.Kind != "unit" && c.State == "unknown" || strings.Contains(c.Reason, "does not answer") && c.State == "unknown" {
			at = aSymptom
		}
		if stopped {
			fix = "systemctl start " + c.Name
		}
		if known != nil {
			why, fix = known.why, known.fix+"; "+fix
		}
		s.add(at, "component-"+c.Name, why, fix, "%s", saw)
	}
}

func (s *suspicions) runtime(e examined) {
	n := e.node
	if n.kubeletDriver != "" && n.runtimeDriver != "" && n.kubeletDriver != n.runtimeDriver && n.runtimeMajor < 2 {
		s.add(aConfiguration, "cgroup-driver", "with two managers of one cgroup tree, containers are killed at random, or the kubelet cannot start pods",
			"set cgroupDriver: "+n.runtimeDriver+" in /var/lib/kubelet/config.yaml; systemctl restart kubelet", "the kubelet uses the cgroup driver %s, containerd uses %s", n.kubeletDriver, n.runtimeDriver)
	}
	if len(n.leftovers) > 0 {
		s.add(aLeftover, "leftover-rules", "rules of a previous cluster redirect or drop packets of the next one", "./install reset; or reboot, if no file loads the rules again",
			"this host is not a node, and has rules of Kubernetes: %s", strings.Join(n.leftovers, ", "))
	}
	if n.memoryFree > 0 && n.memoryFree < 100<<20 {
		s.add(aPressure, "memory", "the kernel kills processes, and the kubelet evicts pods", "free -m; ps aux --sort=-rss | head", "only %d MB of memory are available", n.memoryFree>>20)
	}
	if n.oomKills != "" {
		s.add(aPressure, "oom", "a process of the node may be among them", "journalctl -k | grep -i 'killed process'", "the kernel killed a process because memory was full: %s", n.oomKills)
	}
}

func (s *suspicions) images(e examined) {
	problem := slices.IndexFunc(e.status.Problems, func(p status.Problem) bool { return p.Part == "images" })
	if i := e.status.Images; i != nil && len(i.Missing) > 0 && problem >= 0 {
		s.add(anImage, "images-missing", "the kubelet cannot pull them without a network, so pods stay in ErrImagePull", e.status.Problems[problem].Fix, "these images are not complete in containerd: %s", strings.Join(i.Missing, ", "))
	}
}

func (s *suspicions) etcd(e examined) {
	for _, p := range e.status.Problems {
		if p.Part == "etcd" {
			at := aSymptom
			if e.status.Etcd != nil { // this member answers, and knows that another one does not
				at = aStore
			}
			s.add(at, "etcd", "without a majority of healthy members the API server cannot write", cmp.Or(p.Fix, "tail -50 /var/log/pods/kube-system_etcd-*/etcd/*.log"), "%s", p.Message)
		}
	}
	for _, p := range e.status.Warnings {
		if p.Part == "etcd" {
			s.add(aPressure, "etcd-warning", "etcd rejects writes above its limit; a learner has no vote", p.Fix, "%s", p.Message)
		}
	}
}

func (s *suspicions) addOns(e examined) {
	for _, p := range e.status.Problems {
		switch p.Part {
		case "addOns":
			at := aContainer
			if strings.HasPrefix(p.Message, "coredns") {
				at = aDNS
			}
			s.add(at, "add-on", "pods need it for names, Services or the pod network", p.Fix, "%s", p.Message)
		case "manifests":
			s.add(aSymptom, "manifest", "a workload of the site is not ready", "kubectl get pods -A -o wide", "%s", p.Message)
		}
	}
}

func (s *suspicions) node(e examined) {
	n := e.status.Node
	for _, p := range e.status.Problems {
		switch {
		case p.Part == "node":
			s.add(aSymptom, "no-node", "there is no cluster on this host", p.Fix, "%s", p.Message)
		case p.Name == status.OtherNodeNotReady:
			s.add(aNode, p.Name, "its pods do not serve, and are moved after some minutes; the host may be off, without a network, or its kubelet is down", p.Fix, "%s", p.Message)
		case p.Name == status.NodeNotReady && strings.Contains(p.Message, "DiskPressure"):
			s.add(aPressure, "disk-pressure", "the kubelet evicts pods and starts none until there is space again", "df -h; du -xh /var/lib /var/log | sort -h | tail", "%s", p.Message)
		case p.Name == status.NodeNotReady:
			s.add(aSymptom, "node-not-ready", "no pods are started on it, and its pods are moved", p.Fix, "%s", p.Message)
		case p.Part == "api":
			why := "kubectl and controllers do not work; running pods continue"
			if n.Role == status.Worker {
				why += ". The cause may be on the control plane, or a firewall between the hosts"
			}
			s.add(aSymptom, "api-unreachable", why, "run this command on the control plane, too; curl -k https://HOST:6443/livez", "%s", p.Message)
		case p.Part == "components" && !strings.Contains(p.Message, " is not healthy: "):
			s.add(aSymptom, "containers-unknown", "the state of the containers cannot be seen", "systemctl status containerd", "%s", p.Message)
		case p.Part == "lastBackup":
			s.add(aRun, "backup", "without a backup, a lost control plane cannot be restored", p.Fix, "%s", p.Message)
		case p.Part == "lastRun":
			s.add(aConfiguration, "ledger", "the ledger lists what Airlift installed: init, join and reset need it", p.Fix, "%s", p.Message)
		case p.Part == "images" && e.status.Images == nil, p.Part == "versions":
			// The same as the runtime's or the API server's problem.
		}
	}
}

func (s *suspicions) run(e examined) {
	for _, p := range e.status.Warnings {
		if p.Part == "lastRun" {
			s.add(aRun, "last-run", "its changes may be incomplete; the same command continues where it stopped", p.Fix, "%s", p.Message)
		}
	}
}

func sortedKeys[V any](m map[string]V) (keys []string) {
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
