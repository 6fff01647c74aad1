package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"airlift/installer/node"
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
	s.checks(e)
	s.runtime(e)
	s.components(e)
	s.images(e)
	s.endpoint(e)
	s.problems(e)
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
	for _, node := range slices.Sorted(maps.Keys(c.nodes)) {
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

// ofStatus are problems and warnings of the status: what they are, and why they matter. The first row that fits counts.
var ofStatus = []struct {
	part    string
	warning bool
	has     string // the name of the problem, or a part of its message; "" fits all
	at      rank
	name    string // "" for what another suspicion has
	why     string
	fix     string // "" is the problem's own
}{
	{"certificates", false, "", aCertificate, "certificate", "the components refuse connections with it", ""},
	{"certificates", true, "", aSymptom, "certificate-soon", "the components will refuse connections with it", ""},
	{"etcd", false, "", aStore, "etcd", "without a majority of healthy members the API server cannot write", ""},
	{"etcd", true, "", aPressure, "etcd-warning", "etcd rejects writes above its limit; a learner has no vote", ""},
	{"packages", false, "", aSymptom, "package", "what the site needs of the distribution is missing: drivers, clients of storage, the time", ""},
	{"addOns", false, "coredns has ", aDNS, "add-on", "pods need it for names, Services or the pod network", ""},
	{"addOns", false, "", aContainer, "add-on", "pods need it for names, Services or the pod network", ""},
	{"manifests", false, "", aSymptom, "manifest", "a workload of the site is not ready", "kubectl get pods -A -o wide"},
	{"node", false, "", aSymptom, "no-node", "there is no cluster on this host", ""},
	{"api", false, status.OtherNodeNotReady, aNode, status.OtherNodeNotReady, "its pods do not serve, and are moved after some minutes; the host may be off, without a network, or its kubelet is down", ""},
	{"api", false, "DiskPressure", aPressure, "disk-pressure", "the kubelet evicts pods and starts none until there is space again", "df -h; du -xh /var/lib /var/log | sort -h | tail"},
	{"api", false, status.NodeNotReady, aSymptom, "node-not-ready", "no pods are started on it, and its pods are moved", ""},
	{"api", false, "", aSymptom, "api-unreachable", "kubectl and controllers do not work; running pods continue", "run this command on the control plane, too; curl -k https://HOST:6443/livez"},
	{"components", false, status.ContainerdFiles, aConfiguration, status.ContainerdFiles, "a reboot, or a restart of containerd, ends the pods of this node or lets no new one start", ""},
	{"components", true, status.ContainerdFiles, aPressure, status.ContainerdFiles, "software that needs it does not get what it configured", ""},
	{"components", true, status.GPU, aPressure, status.GPU, "containers get no GPU of this host; everything else works", ""},
	{"api", true, status.RuntimeClass, aPressure, status.RuntimeClass, "pods with this runtime class stay in ContainerCreating", ""},
	{"components", false, " is not healthy: ", aSymptom, "", "", ""},
	{"components", false, "", aSymptom, "containers-unknown", "the state of the containers cannot be seen", "systemctl status containerd"},
	{"loadBalancer", true, status.AddressInUse, anEndpoint, status.AddressInUse, "some packets for the Service go to a host that does not serve it", ""},
	{"loadBalancer", true, status.StrictARP, aConfiguration, status.StrictARP, "packets for a Service go to any node, and not to the one that the load balancer chose: with externalTrafficPolicy Local, they are lost", ""},
	{"loadBalancer", true, status.PoolsRefused, aConfiguration, status.PoolsRefused, "Services of type LoadBalancer stay without an address", ""},
	{"loadBalancer", true, status.NoServiceAddress, aSymptom, status.NoServiceAddress, "clients outside of the cluster do not reach these Services", ""},
	{"lastBackup", false, "", aRun, "backup", "without a backup, a lost control plane cannot be restored", ""},
	{"lastRun", false, "", aConfiguration, "ledger", "the ledger lists what Airlift installed: init, join and reset need it", ""},
	{"lastRun", true, "", aRun, "last-run", "its changes may be incomplete; the same command continues where it stopped", ""},
}

func (s *suspicions) problems(e examined) {
	for i, p := range slices.Concat(e.status.Problems, e.status.Warnings) {
		for _, row := range ofStatus {
			if row.part != p.Part || row.warning != (i >= len(e.status.Problems)) || p.Name != row.has && !strings.Contains(p.Message, row.has) {
				continue
			}
			at, why, fix := row.at, row.why, cmp.Or(row.fix, p.Fix)
			switch row.name {
			case "etcd":
				fix = cmp.Or(fix, "tail -50 /var/log/pods/kube-system_etcd-*/etcd/*.log")
				if e.status.Etcd == nil { // this member does not answer, and knows nothing of another one
					at = aSymptom
				}
			case "api-unreachable":
				if e.status.Node.Role == node.Worker {
					why += ". The cause may be on the control plane, or a firewall between the hosts"
				}
			}
			if row.name != "" {
				s.add(at, row.name, why, fix, "%s", p.Message)
			}
			break
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

// ofComponents are why components matter, and what to type; "" shows their log.
var ofComponents = map[string]struct {
	at       rank
	why, fix string
}{
	"containerd":       {aRuntime, "without containerd no container starts, and the kubelet is not healthy", "systemctl status containerd; journalctl -u containerd -e; systemctl restart containerd"},
	"kubelet":          {aKubelet, "without the kubelet no pod starts, and the node becomes NotReady", "journalctl -u kubelet -e; systemctl restart kubelet"},
	"airlift-endpoint": {anEndpoint, "this node has no balancer, and cannot have the virtual address", "journalctl -u airlift-endpoint -e; systemctl restart airlift-endpoint"},
	"airlift-serving":  {aSymptom, "kubelets get no serving certificate here, and kubectl logs and exec fail without one", "journalctl -u airlift-serving -e; systemctl restart airlift-serving"},
	"etcd":             {aStore, "the API server needs etcd", ""},
	"kube-apiserver":   {anAPI, "kubelets, controllers and kubectl need the API server", ""},
	"coredns":          {aDNS, "pods cannot resolve the names of Services", ""},
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
		matters, ok := ofComponents[c.Name]
		if !ok {
			matters.at, matters.why = aContainer, "it is a component of the cluster"
		}
		at, why, fix := matters.at, matters.why, cmp.Or(matters.fix, "tail -50 /var/log/pods/kube-system_"+c.Name+"-*/*/*.log")
		if c.Kind == "static-pod" {
			fix += "; its flags: /etc/kubernetes/manifests/" + c.Name + ".yaml"
			if c.State == "missing" {
				at = max(at, aContainer)
				why += "; the kubelet does not start it while containerd does not run, or if its manifest is not valid"
				fix = "journalctl -u kubelet -e | grep " + c.Name
			}
		}
		// What fails only because something else does comes after that.
		if c.State == "unknown" && (c.Kind != "unit" || strings.Contains(c.Reason, "does not answer")) {
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
