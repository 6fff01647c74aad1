// Package spec reads cluster.yaml, the description of a cluster of several hosts.
package spec

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"airlift/installer/config"
)

// DefaultFile is the file that the commands read without --file.
const DefaultFile = "cluster.yaml"

// Roles of a host.
const (
	ControlPlane = "control-plane"
	Worker       = "worker"
)

// A Cluster is a cluster.yaml: apiVersion airlift/v1, kind Cluster. Only Registries, and the file of Backups, have secrets. Read fills the values of groups
// and the defaults in, so each Host is complete.
type Cluster struct {
	// Name of the cluster, kubeadm's clusterName.
	Name string
	// Hosts in the order of the file, with names that differ.
	Hosts []Host
	// Groups in the order of the file. Hosts without a group are in a group of their role, which Read adds:
	// "control-plane" or "worker".
	Groups   []Group
	Endpoint Endpoint
	// EmbeddedRegistry lets the control planes keep the file and serve it. The default is true if the cluster has more
	// than one host.
	EmbeddedRegistry bool
	// Kubeadm has kubeadm's documents, YAML: InitConfiguration, ClusterConfiguration, JoinConfiguration,
	// KubeletConfiguration, KubeProxyConfiguration, UpgradeConfiguration. It may be empty.
	Kubeadm []byte
	Roll    Roll
	// Renewal and Backups are timers of the control planes. nil: apply leaves the timers as they are.
	Renewal *Renewal
	Backups *Backups
	// Registries are for all hosts. nil: apply leaves the registries as they are.
	Registries *Registries
	// EncryptSecrets reports whether Secrets are encrypted in etcd. nil: apply leaves that as it is.
	EncryptSecrets *bool
	// EncryptsByProfile reports that the file does not say so, and Profile does. An encryption of the site then stays.
	EncryptsByProfile bool
	// Profile is Hardened or NoProfile. "": apply leaves the cluster as it is.
	Profile string
	// Digest is the sha256 of the file, of kubeadm's documents, of the patches and of the CAs of registries, hex.
	Digest string
	// Warnings are lines for the user, with the line of the file in front.
	Warnings []string
}

// A Host is one machine.
type Host struct {
	Name  string // of the Node: lower case
	Role  string // ControlPlane or Worker
	Group string // the name of a group
	// NodeIP are the addresses of the node in the cluster, one or one of each family. Empty: the host chooses.
	NodeIP []netip.Addr
	SSH    SSH
	// Match is how a host finds itself in a seed; nil for a host that no seed makes a node.
	Match *Match
	Line  int // in cluster.yaml
	NodeValues
}

// A Match is what the machine of a host has, and no other machine. One field is set.
type Match struct {
	Serial string `json:"serial,omitempty" is:"serial"` // of the firmware (SMBIOS, device tree)
	MAC    string `json:"mac,omitempty" is:"mac"`       // of a network interface
	Label  string `json:"label,omitempty" is:"matchLabel"`
}

// String is the field and its value: "serial ABC123".
func (m *Match) String() string {
	what, value := m.field()
	return what + " " + value
}

func (m *Match) field() (what, value string) {
	switch {
	case m.Serial != "":
		return "serial", m.Serial
	case m.MAC != "":
		return "MAC address", m.MAC
	}
	return "label", m.Label
}

// NodeValues are values of a node, or of all nodes of a group.
type NodeValues struct {
	Labels map[string]string `json:"labels" is:"labelValue" names:"labelName"`
	// Taints in the form of kubectl: key=value:Effect or key:Effect. nil: kubeadm's default of the role; empty: none.
	Taints  []string `json:"taints" is:"taint"`
	Patches string   `json:"patches" is:"patches"` // an absolute path of a directory on the driver's machine, or ""
}

// SSH is how a host is reached.
type SSH struct {
	Address string // an IP address or a DNS name
	Port    int    // default 22
	User    string // default root
	// KeyFile is an absolute path of a private key on the driver's machine. "": the agent and the default keys.
	KeyFile string
	// HostKey pins the host's key: SHA256:… or "TYPE BASE64" as in a .pub file. "": known_hosts.
	HostKey string
	// Jump are hosts to go through, the first one first. They have no Jump of their own.
	Jump []SSH
	// OpenSSH uses the command ssh and its ~/.ssh/config instead: for cards, FIDO keys and certificates.
	OpenSSH bool
	// Options are arguments of the command ssh, only with OpenSSH.
	Options []string
}

// A Group has values that its hosts share, and rules for a roll. Hosts may have their own labels and taints in addition.
type Group struct {
	Name string
	Roll GroupRoll
}

// GroupRoll are the rules of a group for an upgrade.
type GroupRoll struct {
	// MaxUnavailable is how many hosts of the group may be down at once: a number, or a percentage that is rounded
	// down, and at least 1. Default 1. For control planes it is always 1.
	MaxUnavailable string
	// Soak is how long the nodes of a batch and their system pods must be healthy in a row before the next batch.
	Soak time.Duration
	// Pause stops the roll after this group, until apply runs again with --continue.
	Pause bool
	// Check is a command with its arguments. It runs on the driver's machine after the soak of each batch, and must succeed.
	Check []string
	// Window is when hosts of the group may be changed. nil: always.
	Window *Window
}

// A Window is a time of the week in a time zone.
type Window struct {
	Days       []time.Weekday // empty: each day
	Start, End time.Duration  // since midnight; an End before Start is on the next day
	Zone       *time.Location // default UTC
}

// String returns the window as it is in the file: "Sat, Sun 22:00-04:00 UTC".
func (w *Window) String() string {
	var days []string
	for _, d := range w.Days {
		days = append(days, d.String()[:3])
	}
	clock := func(d time.Duration) string { return fmt.Sprintf("%02d:%02d", d/time.Hour, d%time.Hour/time.Minute) }
	return strings.TrimSpace(fmt.Sprintf("%s %s-%s %v", strings.Join(days, ", "), clock(w.Start), clock(w.End), cmp.Or(w.Zone, time.UTC)))
}

// Roll are the rules of a roll for all groups.
type Roll struct {
	// Order has the names of the groups, the canary first. Groups that are not named follow in the order of the file.
	// Control planes always come before workers.
	Order []string
	// Drain moves the pods of a node away before it changes. Default true.
	Drain        bool
	DrainTimeout time.Duration // default 10m
	// Undo takes the upgrade of a node back that fails. Default false: the roll stops.
	Undo bool
}

// Renewal is the timer that renews certificates.
type Renewal struct {
	On       bool   // false: there is no timer
	TimeZone string // "": of the host
}

// Backups are the timer that writes backups of the cluster.
type Backups struct {
	On         bool   // false: there is no timer
	Directory  string // of each control plane, absolute
	Target     string // a URL, instead of Directory
	Config     string // the absolute path of the file with the target's credentials, on the driver's machine
	Digest     string // of Config
	Every      time.Duration
	Keep       int
	TimeZone   string
	Recipients []string // age1…
}

// Registries are the mirrors, CAs and credentials of registries.
type Registries struct {
	Flags config.RegistryFlags // with absolute paths of the driver's machine
	List  []config.Registry    // what the flags mean; it has secrets
}

// Endpoint is how the API is reached.
type Endpoint struct {
	VIP      []netip.Addr // control-plane-vip
	Balancer bool         // control-plane-balancer
	Address  string       // one's own: HOST or HOST:PORT; not together with VIP
}
