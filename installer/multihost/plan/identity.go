package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"airlift/installer/multihost/facts"
	"airlift/installer/multihost/spec"
)

// Before anything is removed from a host, its facts have to prove that it is the host that is meant: by the name and the role of
// its node, and by the name and the CA of its cluster.

// is returns the node that a host is, or the one that a reset has begun to remove from it; nil for none.
func is(f *facts.Facts) *facts.Node {
	if f.Was != nil {
		return f.Was
	}
	return f.Node
}

// isHalf reports whether a command did not finish that makes a host a node, or removes it: a part of its files may be missing.
func isHalf(f *facts.Facts) bool {
	return slices.ContainsFunc([]string{Init, Join, "reset", "etcd restore"}, func(command string) bool { return host{Facts: f}.began(command) })
}

// isBare reports whether a host has nothing of a node that Airlift could remove.
func isBare(f *facts.Facts) bool {
	return is(f) == nil && f.Unfinished == "" && f.Unknown["node"] == ""
}

// clusterOf returns the name of the cluster of which a host reports to be a node, "" if it does not know it.
func clusterOf(f *facts.Facts) string {
	switch n := is(f); {
	case f.Cluster != nil:
		return f.Cluster.Name
	case n != nil:
		return n.ClusterName
	}
	return ""
}

// otherNode returns why a host is not the node with a name and a role; "" if it is, or if it is bare. A host without the name of a
// node, because a command did not finish, is known by the name of its machine.
func otherNode(f *facts.Facts, name, role string) string {
	n := is(f)
	switch {
	case f.Unknown["node"] != "":
		return "its node is not known: " + f.Unknown["node"]
	case isBare(f):
		return ""
	case n != nil && n.Name != "" && n.Name != name:
		return "is " + called(f)
	case n != nil && n.Name == "" && !isHalf(f):
		return "is " + called(f)
	case (n == nil || n.Name == "") && !strings.EqualFold(f.Hostname, name):
		return fmt.Sprintf("did not finish the command %q, and is the machine %s", f.Unfinished, cmp.Or(f.Hostname, "without a name"))
	case n != nil && n.Role != role && (f.Was != nil || !isHalf(f)):
		return "is " + called(f)
	}
	return ""
}

// called names what a host is: "the worker w1 of the cluster site".
func called(f *facts.Facts) string {
	n, of := is(f), ""
	if name := clusterOf(f); name != "" {
		of = " of the cluster " + name
	}
	if n == nil {
		return "the machine " + f.Hostname
	}
	return "the " + word(n.Role) + " " + cmp.Or(n.Name, "without a name") + of
}

func word(role string) string { return strings.ReplaceAll(role, "-", " ") }

// named returns the name of the cluster of which a host is a node, "" if it is not known. A worker does not know it: what its root
// reports must not make others strangers.
func (h host) named() string {
	if h.Role != spec.ControlPlane {
		return ""
	}
	return clusterOf(h.Facts)
}

// A cluster is hosts that trust a common CA, and the names of their cluster that its control planes know.
type cluster struct {
	hosts []host
	names []string
}

// byCA returns the hosts of the file that are nodes, by their clusters. While CAs are rotated, a node may trust two.
func byCA(c *spec.Cluster, answers map[string]Answer) (list []cluster) {
	for _, h := range c.Hosts {
		f := answers[h.Name].Facts
		if f == nil || is(f) == nil || is(f).CASHA256 == "" {
			continue
		}
		own := host{Host: h, Facts: f}
		one := cluster{hosts: []host{own}}
		if name := own.named(); name != "" {
			one.names = []string{name}
		}
		var rest []cluster
		for _, other := range list {
			if slices.ContainsFunc(other.hosts, func(o host) bool { return sameCA(is(o.Facts), is(f)) }) {
				one.hosts, one.names = append(other.hosts, one.hosts...), append(other.names, one.names...)
			} else {
				rest = append(rest, other)
			}
		}
		list = append(rest, one)
	}
	return list
}

// OtherClusters returns the hosts that are nodes of another cluster than the one in the file, or of another one than the other
// hosts. If it is not clear which hosts are the cluster, it returns all.
func OtherClusters(c *spec.Cluster, answers map[string]Answer) (list []Problem) {
	problem := func(host string, f *facts.Facts, what string, args ...any) {
		list = append(list, Problem{Host: host, What: fmt.Sprintf(what, args...), Why: "its CA has the hash " + cmp.Or(strings.Join(casOf(is(f)), ", "), "unknown"),
			Hint: "use the cluster.yaml of its cluster; or correct or remove the host in cluster.yaml; or leave it alone: --skip " + host + "; " + byItself})
	}
	for _, h := range c.Hosts {
		if f := answers[h.Name].Facts; f != nil && !isNamed(host{Host: h, Facts: f}, c) {
			problem(h.Name, f, "is %s, and cluster.yaml describes the cluster %s", called(f), c.Name)
		}
	}
	clusters := byCA(c, answers)
	var own []cluster
	for _, one := range clusters {
		if slices.Contains(one.names, c.Name) {
			own = append(own, one)
		}
	}
	for _, one := range clusters {
		mine := slices.Contains(one.names, c.Name)
		for _, h := range one.hosts {
			switch {
			case !isNamed(h, c):
			case len(own) == 1 && !mine:
				problem(h.Name, h.Facts, "is a node of another cluster than %s", own[0].hosts[0].Name)
			case len(own) == 0 && len(one.names) > 0:
				problem(h.Name, h.Facts, "is a node of the cluster %s, and cluster.yaml describes the cluster %s", one.names[0], c.Name)
			case len(own) != 1 && len(clusters) > 1:
				problem(h.Name, h.Facts, "is %s, and the hosts are nodes of %d clusters", called(h.Facts), len(clusters))
			}
		}
	}
	return list
}

// isNamed reports whether the name of a host's cluster is the one in the file, or not known.
func isNamed(h host, c *spec.Cluster) bool { return h.named() == "" || h.named() == c.Name }

// byItself is the way for a host that cannot prove that it is meant.
const byItself = "if its installation is to go, on that host: ./install reset"

func casOf(n *facts.Node) (list []string) {
	for _, ca := range append(slices.Clone(n.CASHA256s), n.CASHA256) {
		if ca != "" && !slices.Contains(list, ca) {
			list = append(list, ca)
		}
	}
	return list
}

func common(a, b []string) bool {
	return slices.ContainsFunc(a, func(ca string) bool { return slices.Contains(b, ca) })
}

// sameCA reports whether two nodes trust a common CA: while CAs are rotated, a node may trust two.
func sameCA(a, b *facts.Node) bool { return common(casOf(a), casOf(b)) }

// CheckReset returns why hosts of the file cannot be reset: what they are, and what the file has. A host without an answer is not
// in it.
func CheckReset(c *spec.Cluster, answers map[string]Answer) []Problem {
	list := OtherClusters(c, answers)
	known := false
	for _, h := range c.Hosts {
		f := answers[h.Name].Facts
		known = known || f != nil && host{Host: h, Facts: f}.named() == c.Name
	}
	for _, h := range c.Hosts {
		f := answers[h.Name].Facts
		if f == nil || slices.ContainsFunc(list, func(p Problem) bool { return p.Host == h.Name }) {
			continue
		}
		n := is(f)
		hint := "correct the host in cluster.yaml; or leave it alone: --skip " + h.Name + "; " + byItself
		switch what := otherNode(f, h.Name, h.Role); {
		case what != "":
			list = append(list, Problem{Host: h.Name, What: what, Why: "cluster.yaml has the " + word(h.Role) + " " + h.Name + " of the cluster " + c.Name, Hint: hint})
		case n == nil || isHalf(f) && n.CASHA256 == "":
		case !known || n.CASHA256 == "":
			list = append(list, Problem{Host: h.Name, What: "is " + called(f) + ", and does not prove that it is a node of the cluster " + c.Name,
				Why: unproven(f, known), Hint: "leave it alone: --skip " + h.Name + "; " + byItself})
		case f.Unknown["node.airlift"] != "":
			list = append(list, Problem{Host: h.Name, What: "it is unknown whether Airlift installed this node", Why: f.Unknown["node.airlift"],
				Hint: "on that host: ./install status; or leave it alone: --skip " + h.Name})
		case f.Was == nil && f.Node != nil && !f.Node.Airlift && f.Unfinished == "":
			list = append(list, Problem{Host: h.Name, What: "is a node that Airlift did not install", Why: "it has no ledger",
				Hint: "on that host: ./install adopt; or, to remove it there: ./install reset --without-ledger; or leave it alone: --skip " + h.Name})
		}
	}
	return list
}

func unproven(f *facts.Facts, known bool) string {
	if known {
		return "its CA is not known: " + cmp.Or(f.Unknown["node.caSHA256"], "it has none")
	}
	return "a worker does not know the name of its cluster, and no control plane of cluster.yaml has it"
}
