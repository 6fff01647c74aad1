// Package upgradecheck checks, before anything is changed, whether a cluster and this host can
// be upgraded to a bundle's Kubernetes version. It reports all problems at once, each with a
// fix, in the form of package preflight. Checks that kubeadm upgrade has too have kubeadm's
// names. The checks compute from a Target, which package installer reads.
package upgradecheck

import (
	"context"
	"io/fs"
	"slices"
	"time"

	"airlift/installer/cluster/inventory"
	"airlift/installer/config"
	"airlift/installer/etcd"
	"airlift/installer/gpucheck"
	"airlift/installer/kubeletcheck"
	"airlift/installer/pki"
	"airlift/installer/preflight"
	"airlift/installer/runtimecheck"
)

// A Command is the command that will run after the checks.
type Command string

const (
	Plan  Command = "plan"  // nothing: all findings of the cluster are reported
	Apply Command = "apply" // the upgrade of the first control plane
	Node  Command = "node"  // the upgrade of another node, after apply
	// Reconfigure is a change of the configuration, which keeps the version.
	Reconfigure Command = "reconfigure"
)

// A Target has the data that the checks inspect. The checks only read it.
type Target struct {
	Command Command
	// From is the cluster's Kubernetes version, and To is the bundle's.
	From, To string
	// Platform is the bundle's: "linux/amd64". HostPlatform is this host's.
	Platform, HostPlatform string
	// AllowExperimental allows alpha, beta and release candidates, AllowRC only the last.
	AllowExperimental, AllowRC bool
	// Drain is set if the pods of a node are evicted before its kubelet is replaced.
	Drain bool
	// Continues is set if an earlier run of this upgrade was interrupted. What it may have left is
	// a warning.
	Continues bool
	// Kept are the paths of the previous files that the interrupted run has kept.
	Kept []string
	// Root is the host's root file system, for the free space; Files are its files.
	Root  string
	Files fs.FS
	// Kubelet is the version of this node's kubelet: the cluster may have the version To already.
	Kubelet string
	// NodeName is this host's node, and ControlPlane is set if it runs a control plane.
	NodeName     string
	ControlPlane bool
	// Config is the configuration of this node, with the version To.
	Config *config.Config
	// MissingImages are the components whose images this node needs and the bundle does not
	// have. ImageNames is why the configured image names cannot be used.
	MissingImages []string
	ImageNames    error
	// Cluster is nil if this host's kubeconfig may not read it.
	Cluster *inventory.Cluster
	// Uses are the uses of APIs that To no longer serves, and the objects that it cannot read.
	Uses []inventory.APIUse
	// Etcd is nil with an external etcd and on a worker.
	Etcd *Etcd
	// Certificates are this host's certificates, including CAs.
	Certificates []pki.Expiration
	// KubeletProblems are the options that the new kubelet would refuse.
	KubeletProblems []kubeletcheck.Problem
	// ContainerdFiles are the problems with files that containerd reads at its next start.
	ContainerdFiles []runtimecheck.Problem
	// Disk is how much will be written to which directories.
	Disk []preflight.Space
	Now  time.Time
}

// Etcd is the state of the stacked etcd.
type Etcd struct {
	Members []etcd.Status
	Own     uint64 // the ID of this host's member
	// Err is why the members cannot be listed.
	Err error
}

// A check is one row of the table. run returns its problems, none if the check passed.
type check struct {
	name string
	run  func(*Target) []preflight.Problem
	// health is set if an interrupted upgrade may be the cause.
	health bool
}

// checks is the table: kubeadm's checks in its order, then Airlift's own.
func checks() []check {
	list := []check{
		{"ControlPlaneNodesReady", (*Target).controlPlanesReady, true},
		{"StaticPodManifest", (*Target).staticPods, false},
		{"KubernetesVersion", (*Target).version, false},
		{"VersionSkew", (*Target).skew, false},
		{"ImagePull", (*Target).images, false},
		{"Architecture", (*Target).architecture, false},
		{EtcdHealth, (*Target).etcdHealth, true},
		{"Certificates", (*Target).certificates, false},
		{"FeatureGates", (*Target).featureGates, false},
		{"RemovedFlags", (*Target).removedFlags, false},
		{"RemovedAPIs", (*Target).removedAPIs, false},
		{"UpgradeNotes", (*Target).upgradeNotes, false},
		{"ContainerRuntimeVersion", (*Target).runtimes, false},
		{runtimecheck.Name, func(t *Target) []preflight.Problem { return preflight.OfRuntime(t.ContainerdFiles) }, false},
		{gpucheck.Name, func(t *Target) []preflight.Problem { return preflight.OfGPU(gpucheck.OnHost(t.Root)) }, false},
	}
	for _, name := range kubeletcheck.Names() {
		list = append(list, check{name, func(t *Target) []preflight.Problem { return preflight.OfKubelet(t.KubeletProblems, name) }, false})
	}
	return append(list,
		check{"NodesReady", (*Target).nodesReady, false},
		check{"Drain", (*Target).drain, true},
	)
}

// ofConfiguration are the checks that need only a cluster's configuration, and the files and certificates of this host.
var ofConfiguration = []string{"KubernetesVersion", "Certificates", "FeatureGates", "RemovedFlags", "UpgradeNotes"}

// Configuration runs only the checks of a cluster's configuration, and of the files and certificates of this host. It
// changes nothing, and reads only Files.
func Configuration(t *Target) preflight.Report {
	report := preflight.NewReport()
	for _, c := range checks() {
		if slices.Contains(ofConfiguration, c.name) {
			report.AddFound(c.name, c.run(t), nil)
		}
	}
	return report
}

// EtcdHealth is the name of the check of etcd's members.
const EtcdHealth = "EtcdHealth"

// Run runs all checks. Errors of the checks in ignore become warnings; "all" means every check,
// and case does not matter. If errors remain, it returns one error (fault.Preflight) that lists
// them with their fixes.
func Run(ctx context.Context, t *Target, ignore []string) (preflight.Report, error) {
	report := preflight.NewReport()
	for _, c := range checks() {
		found := c.run(t)
		for i := range found {
			found[i].Warning = found[i].Warning || t.Continues && c.health
		}
		report.AddFound(c.name, found, ignore)
	}
	space, err := preflight.CheckSpace(ctx, t.Root, t.Disk...)
	if err != nil && len(space.Errors) == 0 {
		return report, err
	}
	for _, p := range space.Warnings {
		report.Add(p, true, ignore)
	}
	for _, p := range space.Errors {
		report.Add(p, false, ignore)
	}
	return report, report.Err("checking the upgrade")
}
