package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"airlift/installer/multihost/facts"
	"airlift/installer/multihost/spec"
	"airlift/internal/fault"
)

// maxClockSkew is how far clocks of two hosts may be apart. Certificates and Leases need less than a minute; k0sctl has the
// same limit.
const maxClockSkew = 30 * time.Second

func (s *site) check() {
	for _, name := range s.Skip {
		if !s.inFile(name) {
			s.problem("", "remove it from --skip", "", "--skip has %q, which is no host of cluster.yaml", name)
		}
	}
	s.checkAnswers()
	for i, h := range s.hosts {
		s.checkIdentity(h, s.hosts[:i])
		s.checkNode(h)
		s.checkUnfinished(h)
	}
	s.checkClocks()
	s.checkCA()
	s.checkAPI()
	if s.cluster != nil {
		s.checkCluster()
		s.checkEndpoint()
		s.checkVersions()
		s.checkMembership()
	}
	s.checkChanges()
	s.checkRemoval()
}

// mayBeUnknown are facts that no decision needs.
var mayBeUnknown = []string{"os", "addresses", "node.apiServer", "node.kubeletRunning", "cluster.blockedBy", "cluster.endpointAddresses"}

// matters reports whether a decision needs a field. What the API server of a control plane reports is needed of the leader
// only: another one may be down. After an interrupted init or join, parts of the node are missing, and it is continued.
func (s *site) matters(field string, h host) bool {
	switch {
	case slices.Contains(mayBeUnknown, field), field == "cluster.barePods" && !s.Remove,
		field == "node.timers" && s.Spec.Renewal == nil && s.Spec.Backups == nil, field == "node.registries" && s.Spec.Registries == nil,
		(field == "node.encryption" || field == "cluster.staleSecrets") && s.Spec.EncryptSecrets == nil:
		return false
	case field == "cluster", strings.HasPrefix(field, "cluster."):
		return s.cluster != nil && h.Name == s.leader
	case strings.HasPrefix(field, "node."):
		return !h.began(Init) && !h.began(Join)
	}
	return true
}

func (s *site) checkAnswers() {
	for _, h := range s.Spec.Hosts {
		a := s.Answers[h.Name]
		if s.skipped(h.Name) {
			continue
		}
		if a.Err != nil || a.Facts == nil {
			why := "it was not asked"
			if a.Err != nil {
				why = Reason(h.Name, a.Err)
			}
			hint := "to leave it alone, add: --skip " + h.Name
			if first := fault.Hint(a.Err); first != "" {
				hint = first + "; or " + hint
			}
			s.problem(h.Name, hint, why, "cannot be used")
			s.problems[len(s.problems)-1].isCause = true
			continue
		}
		for _, field := range sortedKeys(a.Facts.Unknown) {
			if s.matters(field, host{h, a.Facts}) {
				hint := "on that host: ./install status; or to leave it alone, add: --skip " + h.Name
				if field == "cluster.gate" {
					hint = "use the file that wrote it; or see which hosts it names: kubectl -n kube-system get configmap airlift-roll -o yaml; and, when they are healthy: kubectl -n kube-system delete configmap airlift-roll"
				}
				s.problem(h.Name, hint,
					a.Facts.Unknown[field], "its state is unknown: reading %q failed", field)
			}
		}
	}
}

// Reason returns the text of an error of a host for a line that begins with the name of the host.
func Reason(host string, err error) string {
	text := err.Error()
	if rest, found := strings.CutPrefix(text, host+" ("); found {
		if address, reason, found := strings.Cut(rest, "): "); found {
			return address + ": " + reason
		}
	}
	return strings.TrimPrefix(text, host+": ")
}

// checkIdentity compares a host with those before it in the file, which may be clones, or the same machine, and with the file.
func (s *site) checkIdentity(h host, before []host) {
	for _, other := range before {
		if what, hint := equalIdentity(h, other); what != "" {
			s.problem(h.Name, hint, "hosts of a cluster must differ in machine-id, MAC address and hostname", "has the same %s as host %s", what, other.Name)
			break
		}
	}
	for _, addr := range texts(h.NodeIP) {
		if len(h.Addresses) > 0 && !slices.Contains(h.Addresses, addr) {
			s.problem(h.Name, "on that host: ip address; then correct nodeIP in cluster.yaml",
				"its addresses are "+strings.Join(h.Addresses, ", "), "has no address %s", addr)
		}
	}
	if h.Arch != s.Arch {
		s.problem(h.Name, "build a file for it: bundle build --arch "+h.Arch, "one file has one architecture",
			"its processor is %s, and this file is for %s", h.Arch, s.Arch)
	}
}

func equalIdentity(a, b host) (what, hint string) {
	var equal []string
	if a.MachineID != "" && a.MachineID == b.MachineID {
		equal = append(equal, "machine-id "+a.MachineID)
		hint = "on one of them: rm /etc/machine-id && systemd-machine-id-setup && reboot"
	}
	for _, mac := range a.MACs {
		if slices.ContainsFunc(b.MACs, func(m string) bool { return strings.EqualFold(m, mac) }) {
			equal = append(equal, "MAC address "+mac)
			if hint = "give the virtual machine its own MAC address"; a.MachineID == b.MachineID {
				hint = "if it is one machine, correct ssh.address in cluster.yaml; if it is a clone, give it its own MAC address and machine-id"
			}
			break
		}
	}
	if a.Hostname != "" && strings.EqualFold(a.Hostname, b.Hostname) {
		equal = append(equal, "hostname "+a.Hostname)
		if hint == "" {
			hint = "on that host: hostnamectl set-hostname " + a.Name
		}
	}
	return strings.Join(equal, ", "), hint
}

// checkClocks compares the clocks of the hosts. The driver's own clock is only the ruler: it may be wrong.
func (s *site) checkClocks() {
	ahead := func(h host) time.Duration { return h.Time.Sub(s.Answers[h.Name].At) }
	hosts := filter(s.hosts, func(h host) bool { return !h.Time.IsZero() && !s.Answers[h.Name].At.IsZero() })
	if len(hosts) == 0 {
		return
	}
	slices.SortStableFunc(hosts, func(a, b host) int { return cmp.Compare(ahead(a), ahead(b)) })
	usual := hosts[(len(hosts)-1)/2]
	found := false
	differ := func(h, from host) {
		d := ahead(h) - ahead(from)
		if d.Abs() <= maxClockSkew {
			return
		}
		word := "ahead of"
		if d < 0 {
			word = "behind"
		}
		found = true
		now := s.Answers[h.Name].At
		s.problem(h.Name, "on that host: timedatectl set-ntp true; or date -u -s TIME",
			fmt.Sprintf("it was %s here and %s there at that moment; at most %v are allowed", clock(h.Time), clock(now.Add(ahead(from))), maxClockSkew),
			"its clock is %v %s the clock of %s", d.Abs().Round(time.Second), word, from.Name)
	}
	for _, h := range hosts {
		differ(h, usual)
	}
	if !found {
		differ(hosts[len(hosts)-1], hosts[0])
	}
	if ahead(usual).Abs() > maxClockSkew {
		s.note("the clock of this machine differs by %v from the clocks of the hosts; windows of a roll follow this machine",
			ahead(usual).Round(time.Second))
	}
}

func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// checkCA refuses hosts that are nodes of other clusters. If the whole site is another cluster, checkCluster refuses it.
func (s *site) checkCA() {
	if s.cluster != nil && s.cluster.Name != s.Spec.Name {
		return
	}
	answers := map[string]Answer{}
	for _, h := range s.hosts {
		answers[h.Name] = s.Answers[h.Name]
	}
	s.problems = append(s.problems, OtherClusters(s.Spec, answers)...)
}

// checkNode compares a host with its entry in the file.
func (s *site) checkNode(h host) {
	n := h.Node
	switch {
	case h.Seed != "":
		s.problem(h.Name, "on that host: ./install seed status; wait until it has ended, or end it: ./install seed end", "the seed changes the same hosts, and the certificates in the cluster",
			"runs the seed of cluster %s", h.Seed)
	case n == nil && len(h.Leftovers) > 0:
		s.problem(h.Name, "on that host, with the tool that installed it: kubeadm reset; then remove these files",
			"Airlift did not write "+strings.Join(h.Leftovers, ", "), "has files of another installation")
	case n == nil:
	case !n.Airlift && h.Unknown["node.airlift"] == "": // else checkAnswers refuses it
		s.problem(h.Name, "on that host: ./install adopt; or remove it from cluster.yaml", "it has no ledger", "is a node that Airlift did not install")
	case n.Name != h.Name && n.Name != "":
		s.otherName(h)
	case n.Role != h.Role:
		s.problem(h.Name, "write role: "+n.Role+" in cluster.yaml; or take it out, run ./install cluster apply --remove, and add it again",
			"the role of a node cannot change", "is a %s, and cluster.yaml has %s", n.Role, h.Role)
	}
}

// otherName refuses a host that is a node under another name: another host, or the same one, which the user wants to rename.
func (s *site) otherName(h host) {
	hint := fmt.Sprintf("write name: %s in cluster.yaml", h.Node.Name)
	if _, member := s.nodes[h.Node.Name]; !member || !s.isMember(h.Node) {
		s.problem(h.Name, hint+"; or correct ssh.address", "the name of a node cannot change", "is the node %s already", h.Node.Name)
		return
	}
	if s.inFile(h.Node.Name) {
		hint = "correct ssh.address: cluster.yaml has " + h.Node.Name + ", too"
	}
	s.problem(h.Name, hint+"; to rename it, take it out of cluster.yaml, run ./install cluster apply --remove, and add it with its new name",
		"the name of a node cannot change", "is the node %s of this cluster, under another name", h.Node.Name)
}

// byHand are commands that only their user can finish: apply neither knows what they should reach nor may undo them.
var byHand = []string{"reset", "upgrade undo", "reconfigure undo", "endpoint undo", "certs rotate-ca", "etcd restore"}

// checkUnfinished refuses what an interrupted command left, unless this plan runs the same command with the same file.
func (s *site) checkUnfinished(h host) {
	if i := slices.IndexFunc(byHand, func(command string) bool { return h.began(command) || h.Reconfiguring == command }); i >= 0 {
		s.problem(h.Name, "on that host: ./install "+byHand[i], "it ended with an error or was killed", "did not finish the command %q", byHand[i])
		return
	}
	continues := slices.ContainsFunc([]string{Init, Join, "upgrade"}, h.began)
	if v := lastVersion(h.Facts); continues && v != "" && v != s.Version {
		hint := fmt.Sprintf("finish it with the file of %s: ./install cluster apply", v)
		if h.began("upgrade") {
			hint += "; or, on that host: ./install upgrade undo"
		}
		s.problem(h.Name, hint, fmt.Sprintf("this file has %s", s.Version), "did not finish the command %q of %s", h.Unfinished, v)
	}
}

// lastVersion returns the version of the file with which the unfinished command ran, or "".
func lastVersion(f *facts.Facts) string {
	for _, r := range slices.Backward(f.Runs) {
		if r.Command == f.Unfinished {
			return r.Version
		}
	}
	return ""
}

// checkAPI refuses a plan if a cluster exists whose API is down, and a new CA if there may be one already.
func (s *site) checkAPI() {
	existing := filter(s.hosts, func(h host) bool { return h.Node != nil })
	planes := filter(existing, func(h host) bool { return h.Node.Role == spec.ControlPlane })
	switch {
	case s.cluster != nil:
		for _, h := range s.hosts { // to continue it would create a second one
			if h.began(Init) && (h.Node == nil || h.Role == spec.Worker) {
				s.noInit(h, "the cluster exists: "+s.leader+" is a control plane")
			}
		}
	case s.leader == "":
		s.problem("", "add a control plane; or do not skip it", "each control plane of cluster.yaml is skipped or does not answer",
			"no control plane can be used")
	case len(existing) == 0 || len(existing) == 1 && existing[0].began(Init):
		s.checkBare()
	case len(planes) == 0:
		s.problem(existing[0].Name, "add a control plane of that cluster to cluster.yaml; or, to delete its installation, on that host: ./install reset",
			"a new cluster would have another CA", "is a node of a cluster whose control planes do not answer or are not in cluster.yaml")
	default:
		for _, h := range planes {
			s.problem(h.Name, "on that host: ./install status; journalctl -u kubelet -e", h.Unknown["cluster"],
				"its API server does not answer, and no other one does")
		}
	}
}

// noInit refuses to continue an init.
func (s *site) noInit(h host, why string) {
	s.problem(h.Name, "on that host: ./install reset", why, "did not finish the command %q", h.Unfinished)
}

// checkBare refuses to create a CA if a control plane that is left alone could have one.
func (s *site) checkBare() {
	for _, h := range s.Spec.Hosts {
		if h.Role == spec.ControlPlane && s.skipped(h.Name) {
			s.problem(h.Name, "take it out of cluster.yaml until it answers", "no other host has a cluster, and this one may have its CA",
				"cannot be skipped before there is a cluster")
		}
	}
	for i, h := range filter(s.hosts, func(h host) bool { return h.began(Init) }) {
		if h.Role == spec.Worker || i > 0 {
			s.noInit(h, "only one control plane may create the cluster")
		}
	}
}
