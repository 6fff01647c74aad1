package installer

import (
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"os"
	"path"
	"slices"
	"time"

	"airlift/fault"
	"airlift/installer/cluster"
	"airlift/installer/pki"
	"airlift/installer/preflight"
)

// How join gets to know the cluster. Any step may be the first that needs it:
// discovery in a whole run, any other when a phase is run alone.

// discovery learns whom to trust, and from them what the cluster is like,
// before anything on this host changes.
func (n *Node) discovery(ctx context.Context) error {
	if err := n.needCluster(ctx); err != nil {
		return err
	}
	if !n.rerun {
		if err := n.checkNodeName(ctx); err != nil {
			return err
		}
	}
	n.Console.Note("cluster %s at %s, Kubernetes %s", n.Config.ClusterName, n.found.Server, n.clusterVersion)
	return nil
}

// withCluster finds the cluster before a step that no earlier one has found it
// for.
func (n *Node) withCluster(run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := n.needCluster(ctx); err != nil {
			return err
		}
		if err := n.needClient(); err != nil {
			return err
		}
		return run(ctx)
	}
}

// needCluster finds the cluster, once, and takes over what all nodes share.
func (n *Node) needCluster(ctx context.Context) error {
	if n.found != nil {
		return nil
	}
	found, fetched, err := n.knownCluster(ctx)
	if found == nil && err == nil {
		found, fetched, err = n.discoverCluster(ctx)
	}
	if err != nil {
		return err
	}
	for _, w := range slices.Concat(found.Warnings, fetched.Warnings) {
		n.Console.Warn("%s", w)
	}
	n.clusterVersion = fetched.Cluster.KubernetesVersion
	if n.role == preflight.JoinControlPlane {
		if err := n.checkVersion(); err != nil {
			return err
		}
	}
	if err := n.Config.UseCluster(fetched.Cluster); err != nil {
		return err
	}
	if n.role == preflight.JoinControlPlane {
		// What kubeadm's ConfigMap leaves out, as init has filled it; the
		// pod network's range is not a default there.
		pods := n.Config.Networking.PodSubnet
		n.Config.CompleteInit()
		n.Config.Networking.PodSubnet = pods
		if err := n.checkReady(found); err != nil {
			return err
		}
	}
	if err := n.NameImages(); err != nil {
		return err
	}
	n.found, n.kubelet, n.kubeProxy = found, fetched.Kubelet, fetched.KubeProxy
	return nil
}

// discoverCluster goes by the token or the file that the user gave.
func (n *Node) discoverCluster(ctx context.Context) (*cluster.Found, *cluster.FetchedConfig, error) {
	found, err := cluster.Discover(ctx, n.Config.Discovery, n.report)
	if err != nil {
		return nil, nil, err
	}
	client, err := cluster.New(found.Kubeconfig, "")
	if err != nil {
		return nil, nil, err
	}
	fetched, err := client.FetchConfig(ctx)
	return found, fetched, err
}

// knownCluster goes by the administrator's kubeconfig that an earlier run has
// left here, so that a token that has expired since does not stop the rest.
// Nothing is found where there is none, or it does not serve.
func (n *Node) knownCluster(ctx context.Context) (*cluster.Found, *cluster.FetchedConfig, error) {
	if n.role == preflight.Join || !n.exists(adminConf) {
		return nil, nil, nil
	}
	d := n.Config.Discovery
	client, err := n.loadClient(adminConf, d.APIServerEndpoint)
	if err != nil {
		return nil, nil, nil
	}
	ca := client.CA()
	if len(d.CACertHashes) > 0 {
		pins, err := cluster.ParsePins(d.CACertHashes)
		if err != nil {
			return nil, nil, err
		}
		if ca, err = pins.Trusted(ca); err != nil {
			return nil, nil, fault.Wrap(fmt.Errorf("this host belongs to another cluster, by %s: %w", adminConf, err), fault.Preflight,
				"./install reset --force makes it a bare host again")
		}
	}
	probe, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	fetched, err := client.FetchConfig(probe)
	if err != nil {
		return nil, nil, ctx.Err()
	}
	found := &cluster.Found{Server: client.Server(), CA: ca}
	if d.TLSBootstrapToken != "" {
		found.Kubeconfig = pki.BootstrapKubeconfig(found.Server, found.CA, d.TLSBootstrapToken)
	} else if found.Kubeconfig, err = os.ReadFile(n.Host.Path(adminConf)); err != nil {
		return nil, nil, err
	}
	return found, fetched, nil
}

// needClient gives a control plane the administrator's client as soon as there
// is one. It goes by the address that the cluster was found at: this host's own
// API server is the last to come. A worker's is its kubelet's.
func (n *Node) needClient() (err error) {
	switch {
	case n.client != nil:
	case n.role == preflight.JoinControlPlane && n.exists(adminConf):
		n.client, err = n.loadClient(adminConf, n.found.Server)
	case n.role == preflight.Join && n.exists(kubeletConf) && !n.exists(bootstrapConf):
		n.client, err = n.loadClient(kubeletConf, n.found.Server)
	}
	return err
}

// checkNodeName fails when somebody else in the cluster goes by this node's
// name.
func (n *Node) checkNodeName(ctx context.Context) error {
	if n.exists(kubeletConf) {
		return nil
	}
	client, err := cluster.New(n.found.Kubeconfig, "")
	if err != nil {
		return err
	}
	return client.CheckNodeNameFree(ctx, n.Config.NodeRegistration.Name)
}

// checkVersion wants the cluster's own version for another control plane:
// kubeadm would start that one here, and the bundle has just one.
func (n *Node) checkVersion() error {
	if n.clusterVersion == n.Config.KubernetesVersion {
		return nil
	}
	return fault.New(fault.Preflight, "use a bundle made with 'bundle build --version "+n.clusterVersion+"', or upgrade the cluster first",
		"this bundle's control plane is %s and the cluster's is %s: all control planes must have one version",
		n.Config.KubernetesVersion, n.clusterVersion)
}

// checkReady says whether the cluster can have another control plane, and
// whether this host has, or will get, what they all share.
func (n *Node) checkReady(found *cluster.Found) error {
	if n.Config.ControlPlaneEndpoint == "" {
		return fault.New(fault.Preflight,
			"init the cluster with --control-plane-endpoint, or give it one: on its control plane make a certificate for that name, and set controlPlaneEndpoint in ConfigMap kube-system/kubeadm-config",
			"the cluster has no controlPlaneEndpoint, a stable address for more than one control plane")
	}
	if n.Config.CertificateKey != "" {
		return nil
	}
	if err := pki.CheckShared(n.Config, n.root(), time.Now()); err != nil {
		return fault.Wrap(err, fault.Preflight,
			"copy them from a control plane's "+n.Config.CertificatesDir+", or let them be downloaded: give --certificate-key, as 'install init phase upload-certs --upload-certs' prints it on a control plane")
	}
	return n.checkCA(found.CA)
}

// checkCA wants this host's CA to be one of the cluster's that are trusted.
func (n *Node) checkCA(trusted []byte) error {
	data, err := os.ReadFile(n.Host.Path(n.caFile()))
	if err != nil {
		return fmt.Errorf("reading the cluster's CA: %w", err)
	}
	return n.checkCAData(data, trusted)
}

func (n *Node) caFile() string { return path.Join(n.Config.CertificatesDir, "ca.crt") }

// checkCAData is checkCA for a ca.crt that is not on the host yet. The first
// certificate in it is the one that this host will sign with.
func (n *Node) checkCAData(data, trusted []byte) error {
	mine, _ := pem.Decode(data)
	for rest := trusted; mine != nil; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if bytes.Equal(block.Bytes, mine.Bytes) {
			return nil
		}
	}
	hint := "copy the certificates from a control plane of this cluster, or remove them and give --certificate-key"
	if hashes, err := pki.CAHashes(data); err == nil && len(n.Config.Discovery.CACertHashes) > 0 {
		hint += "; if the cluster is replacing its CA, give --discovery-token-ca-cert-hash " + hashes[0] + " too"
	}
	return fault.New(fault.Preflight, hint, "%s is not the CA of the cluster at %s", n.caFile(), n.Config.ServerURL())
}

// OwnKubeconfig is the kubeconfig with which this host reaches the cluster that
// it is a node of, the administrator's before the kubelet's, or "". A phase
// that is run alone goes by it.
func (n *Node) OwnKubeconfig() string {
	for _, file := range []string{adminConf, kubeletConf} {
		if n.exists(file) {
			return file
		}
	}
	return ""
}
