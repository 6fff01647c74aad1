package plan

import (
	"slices"
	"strings"

	"airlift/installer/multihost/facts"
	"airlift/installer/multihost/spec"
)

// PatchesDir is where the patches of a host are.
const PatchesDir = "/var/lib/airlift/cluster/patches"

// setCommands sets the commands of all actions.
func (s *site) setCommands(p *Plan) {
	keeps := s.Spec.EmbeddedRegistry && (s.cluster == nil || s.cluster.EmbeddedRegistry)
	for i := range p.Stages {
		for j := range p.Stages[i].Actions {
			a := &p.Stages[i].Actions[j]
			a.Commands = a.commands(s.Spec, keeps && a.Host == s.leader, s.Answers[a.Host].Facts)
		}
	}
}

// keepFile lets the leader keep the file before the first stage in which another host reads it. A cluster of this version may have been
// installed by another file.
func (s *site) keepFile(stages []Stage) []Stage {
	if s.cluster == nil || !s.Spec.EmbeddedRegistry || s.cluster.Keeps(s.Bundle) {
		return stages
	}
	keeps := func(a Action) bool {
		return a.Host == s.leader && (a.Verb == Registry || a.Verb == Unpack && s.cluster.EmbeddedRegistry)
	}
	reads := func(a Action) bool {
		return a.Images || slices.Contains([]string{Join, Unpack, Upgrade, UpgradeApply}, a.Verb)
	}
	for i, st := range stages {
		switch {
		case slices.ContainsFunc(st.Actions, keeps):
			return stages
		case slices.ContainsFunc(st.Actions, reads):
			keep := Action{Host: s.leader, Verb: Registry, Why: "keeps this file, which other hosts read", Effect: Reload}
			return slices.Insert(stages, i, Stage{Name: keepsFile, Limit: 1, Actions: []Action{keep}})
		}
	}
	return stages
}

// commands returns the arguments of the commands of the installer that do an action, in their order. keeps is set on the leader if
// it keeps the file for the other hosts, and f are the facts of the host. The run adds only the path of the file, --progress, and
// standard input for "--config -".
func (a Action) commands(c *spec.Cluster, keeps bool, f *facts.Facts) [][]string {
	h := hostOf(c, a.Host)
	one := func(args ...[]string) [][]string { return [][]string{slices.Concat(args...)} }
	words := func(text string) []string { return strings.Fields(text) }
	switch a.Verb {
	case Init:
		return one(words("init"), InitFlags(c), words("--skip-token-print --skip-certificate-key-print"))
	case Join:
		return one(words("join"), JoinFlags(h))
	case Unpack:
		if keeps { // the file, for the other hosts
			return [][]string{words("upgrade apply phase unpack"), words("upgrade apply phase registry")}
		}
		return one(words("upgrade node phase unpack"))
	case UpgradeApply:
		return one(words("upgrade apply --yes"), a.drainFlags(c), upgradeFlags(c, h))
	case Upgrade:
		return one(words("upgrade node"), a.drainFlags(c), upgradeFlags(c, h))
	case EndpointApply:
		flags := EndpointFlags(c)
		if own := c.Endpoint.Address; own != "" {
			flags = append(flags, "--control-plane-endpoint", own)
		}
		return one(words("endpoint apply"), flags)
	case Endpoint:
		return one(words("endpoint node"))
	case Registry:
		return one(words("registry enable"))
	case Reconfigure:
		return one(words("reconfigure"), ReconfigureFlags(a.Verb), patchesFlags(h), words("--yes"))
	case ReconfigureNode:
		return one(words("reconfigure node"), ReconfigureFlags(a.Verb), patchesFlags(h))
	case NodeMeta:
		return one(words("cluster host nodes"))
	case RemoveOff: // on another control plane
		return one(words("node remove "+a.Host+" --yes"), a.drainFlags(c))
	case Remove: // there, too, but for reset
		remove := slices.Concat(words("node remove "+a.Host+" --yes"), a.drainFlags(c))
		var list [][]string
		if f.Node != nil {
			list = append(list, append(slices.Clone(remove), "--keep-node")) // without it, a run that continues would not find the host
		}
		if f.Node != nil || f.Unfinished != "" {
			list = append(list, ResetCommand(a.Adopted))
		}
		return append(list, remove)
	}
	return nil
}

// ResetCommand is the command that resets a host. Of an adopted node, it would only take back what Airlift changed.
func ResetCommand(adopted bool) []string {
	if adopted {
		return []string{"reset", "--force", "--remove-node"}
	}
	return []string{"reset", "--force"}
}

// drainFlags are the flags for how pods leave the node. Pods that the plan does not move keep running, or are on a node that is down.
func (a Action) drainFlags(c *spec.Cluster) []string {
	if a.Effect != Drain || !c.Roll.Drain {
		return []string{"--drain=false"}
	}
	return []string{"--drain-timeout", c.Roll.DrainTimeout.String()}
}

// EndpointFlags are the flags for how the API is reached.
func EndpointFlags(c *spec.Cluster) (flags []string) {
	var vips []string
	for _, ip := range c.Endpoint.VIP {
		vips = append(vips, ip.String())
	}
	if len(vips) > 0 {
		flags = append(flags, "--control-plane-vip", strings.Join(vips, ","))
	}
	if c.Endpoint.Balancer {
		flags = append(flags, "--control-plane-balancer")
	}
	return flags
}

// InitFlags are the flags of init and of its preflight checks.
func InitFlags(c *spec.Cluster) []string {
	flags := []string{"--config", "-"}
	if c.EmbeddedRegistry {
		flags = append(flags, "--embedded-registry")
	}
	return append(flags, EndpointFlags(c)...)
}

// JoinFlags are the flags of join and of its preflight checks.
func JoinFlags(h spec.Host) []string {
	flags := []string{"--config", "-"}
	var texts []string
	for _, ip := range h.NodeIP {
		texts = append(texts, ip.String())
	}
	if len(texts) > 0 {
		flags = append(flags, "--node-ip", strings.Join(texts, ","))
	}
	return flags
}

// upgradeFlags are the flags for the user's document for upgrades, which names the patches, or for the patches alone.
func upgradeFlags(c *spec.Cluster, h spec.Host) []string {
	if slices.Contains(kindsOf(c.Kubeadm), "UpgradeConfiguration") {
		return []string{"--config", "-"}
	}
	return patchesFlags(h)
}

// patchesFlags are the flags for the patches of a host, if it has some.
func patchesFlags(h spec.Host) []string {
	if h.Patches == "" {
		return nil
	}
	return []string{"--patches", PatchesDir}
}

// ReconfigureFlags are the flags of Reconfigure and ReconfigureNode, and of their plans, without patches.
func ReconfigureFlags(verb string) []string {
	if verb == Reconfigure {
		return []string{"--config", "-"}
	}
	return nil
}
