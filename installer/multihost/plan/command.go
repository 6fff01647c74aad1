package plan

import (
	"fmt"
	"slices"
	"strings"

	"airlift/installer/backup/target"
	"airlift/installer/multihost/spec"
)

// PatchesDir is where the patches of a host are.
const PatchesDir = "/var/lib/airlift/cluster/patches"

// ReadsFile reports whether the command of an action reads images and binaries of the file.
func (a Action) ReadsFile() bool {
	return a.Images || slices.Contains([]string{Init, Join, Unpack, UpgradeApply, Upgrade}, a.Verb)
}

// ReadsPatches reports whether the command of an action reads the patches of its host.
func (a Action) ReadsPatches() bool {
	return slices.Contains([]string{Init, Join, UpgradeApply, Upgrade, Reconfigure, ReconfigureNode, SecretsEnable, SecretsDisable}, a.Verb)
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
	for i, st := range stages {
		switch {
		case slices.ContainsFunc(st.Actions, keeps):
			return stages
		case slices.ContainsFunc(st.Actions, func(a Action) bool { return a.ReadsFile() && a.Verb != Init }):
			keep := Action{Host: s.leader, Verb: Registry, Why: "keeps this file, which other hosts read", Effect: Reload}
			return slices.Insert(stages, i, Stage{Name: keepsFile, Limit: 1, Actions: []Action{keep}})
		}
	}
	return stages
}

// commands returns the arguments of the commands of the installer that do an action, in their order. The run adds only the path of the
// file, --progress, and standard input for "--config -".
func (s *site) commands(a Action) [][]string {
	c, h := s.Spec, hostOf(s.Spec, a.Host)
	one := func(command string, flags ...[]string) [][]string {
		return [][]string{append(strings.Fields(command), slices.Concat(flags...)...)}
	}
	switch a.Verb {
	case Init:
		return one("init", InitFlags(c), strings.Fields("--skip-token-print --skip-certificate-key-print"))
	case Join:
		return one("join", JoinFlags(h))
	case Unpack:
		if a.Host == s.leader && c.EmbeddedRegistry && s.cluster.EmbeddedRegistry { // it keeps the file, for the other hosts
			return append(one("upgrade apply phase unpack"), one("upgrade apply phase registry")...)
		}
		return one("upgrade node phase unpack")
	case UpgradeApply:
		return one("upgrade apply --yes", a.drainFlags(c), upgradeFlags(c, h))
	case Upgrade:
		return one("upgrade node", a.drainFlags(c), upgradeFlags(c, h))
	case EndpointApply:
		flags := endpointFlags(c)
		if own := c.Endpoint.Address; own != "" {
			flags = append(flags, "--control-plane-endpoint", own)
		}
		return one("endpoint apply", flags)
	case Endpoint:
		return one("endpoint node")
	case Registry:
		return one("registry enable")
	case Mirrors:
		return [][]string{s.mirrorsCommand()}
	case Renewal:
		if command := s.renewalCommand(); command != nil {
			return [][]string{command}
		}
		return one("certs auto --off")
	case Backups:
		if command := s.backupsCommand(); command != nil {
			if s.Spec.Backups.Target != "" {
				command = append(command, "--target-config", target.Stdin)
			}
			return [][]string{command}
		}
		return one("etcd snapshot --every off")
	case Reconfigure:
		return one("reconfigure", ReconfigureFlags(c, s.cluster.Profile), patchesFlags(h), []string{"--yes"})
	case SecretsEnable, SecretsDisable:
		return one(a.Verb+" --yes", patchesFlags(h))
	case ReconfigureNode:
		return one("reconfigure node", patchesFlags(h))
	case NodeMeta:
		return one("cluster host nodes")
	case Remove, RemoveOff: // on another control plane, but for reset
		remove := one("node remove "+a.Host+" --yes", a.drainFlags(c))
		f := s.Answers[a.Host].Facts
		switch {
		case a.Verb == RemoveOff || f.Node == nil && f.Unfinished == "":
			return remove
		case f.Node == nil:
			return append([][]string{ResetCommand(a.Adopted)}, remove...)
		} // without --keep-node, a run that continues would not find the host
		return [][]string{append(slices.Clone(remove[0]), "--keep-node"), ResetCommand(a.Adopted), remove[0]}
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

// endpointFlags are the flags for how the API is reached.
func endpointFlags(c *spec.Cluster) (flags []string) {
	if len(c.Endpoint.VIP) > 0 {
		flags = append(flags, "--control-plane-vip", strings.Join(texts(c.Endpoint.VIP), ","))
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
	if c.EncryptSecrets != nil {
		flags = append(flags, fmt.Sprintf("--encrypt-secrets=%t", *c.EncryptSecrets))
	}
	if c.Profile == spec.Hardened {
		flags = append(flags, "--profile", c.Profile)
	}
	return append(flags, endpointFlags(c)...)
}

// JoinFlags are the flags of join and of its preflight checks.
func JoinFlags(h spec.Host) []string {
	flags := []string{"--config", "-"}
	if len(h.NodeIP) > 0 {
		flags = append(flags, "--node-ip", strings.Join(texts(h.NodeIP), ","))
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
