package installer

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"airlift/bundle"
	"airlift/installer/timeline"
)

// A controller manager up to v1.30 sleeps for ten seconds in the middle of its
// first start (nodeipam's listNodes polls, and pauses before the first look),
// and until then none of its controllers does anything, because their caches
// are started behind all of them. So the first control plane's pods would be
// made ten seconds late.
//
// Meanwhile a stand-in does it: the same program, from the same image, as a
// transient unit of systemd, with only those controllers that the system pods
// and joining nodes need. systemd ends it, whatever becomes of the installer,
// before the real one can have woken: that sleeps from when it becomes the
// leader, and was put in place just before the stand-in. It is not needed for
// the result: where it fails, everything comes as late as it would without it.

const (
	// lastSleeper is the last minor version that sleeps.
	lastSleeper = 30
	// standInTime is nodeipam's nodePollInterval of ten seconds, and half of
	// what the real one takes at least to be started and to become the leader.
	standInTime = 10*time.Second + 500*time.Millisecond

	standInUnit = "airlift-stand-in.service"
)

// standInControllers make pods of Deployments and DaemonSets, let pods onto a
// node that is Ready, give them the cluster's CA and make their Services
// known; sign the cluster's address for those who join, and their certificates.
var standInControllers = strings.Join([]string{
	"deployment-controller", "replicaset-controller", "daemonset-controller",
	"node-lifecycle-controller", "root-ca-certificate-publisher-controller", "serviceaccount-controller",
	"endpointslice-controller", "endpoints-controller", "clusterrole-aggregation-controller",
	"bootstrap-signer-controller", "certificatesigningrequest-approving-controller", "certificatesigningrequest-signing-controller",
}, ",")

// startStandIn starts the stand-in where one is wanted. The cluster must be
// new: there may be a controller manager elsewhere.
func (n *Node) startStandIn(ctx context.Context) {
	if n.Config.Minor() > lastSleeper || n.Single || n.store == nil || !n.exists(superAdminConf) {
		return
	}
	ctx, span := timeline.Start(ctx, timeline.Background, "controller manager's stand-in")
	defer span.End()
	if err := n.runStandIn(ctx); err != nil {
		n.Console.Debug(1, "no stand-in for the controller manager: %v", err)
	}
}

func (n *Node) runStandIn(ctx context.Context) error {
	flags, _, err := n.staticPod("kube-controller-manager")
	if err != nil {
		return err
	}
	i := slices.IndexFunc(n.manifest.Images, func(i bundle.Image) bool { return i.Name == "kube-controller-manager" })
	if flags == nil || i < 0 {
		return errors.New("there is no controller manager here")
	}
	program, err := n.store.ProgramPath(ctx, n.manifest.Images[i], "kube-controller-manager")
	if err != nil {
		return err
	}
	command := []string{
		program,
		"--kubeconfig=" + n.Host.Path(superAdminConf),
		"--controllers=" + standInControllers,
		"--leader-elect=false", "--allocate-node-cidrs=false", "--use-service-account-credentials=false",
		"--secure-port=0", // it serves nothing
		"--kube-api-qps=200", "--kube-api-burst=400",
	}
	for _, flag := range []string{"root-ca-file", "cluster-signing-cert-file", "cluster-signing-key-file", "cluster-signing-duration", "feature-gates"} {
		if value := flags[flag]; value != "" {
			command = append(command, "--"+flag+"="+value)
		}
	}
	return n.Host.RunFor(ctx, standInTime, standInUnit, "First controllers of a new Kubernetes cluster", command...)
}
