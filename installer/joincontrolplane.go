package installer

import (
	"bytes"
	"cmp"
	"context"
	"encoding/pem"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"airlift/fault"
	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/pki"
)

// controlPlaneJoin is the part of join that only another control plane needs.
type controlPlaneJoin struct {
	*nodeJoin
	local *controlPlane
}

func newControlPlaneJoin(p *Plan, m *machine) *controlPlaneJoin {
	c := &controlPlaneJoin{nodeJoin: newNodeJoin(p, m)}
	c.role, c.local = c, &controlPlane{node: c.node, hold: c.holdsStaticPod, mayRestart: c.mayRestart}
	return c
}

// holdsStaticPod reports whether a static pod's manifest is written only after
// the kubelet has its certificate.
func (c *controlPlaneJoin) holdsStaticPod(pod pki.File) bool {
	return c.stream != nil && !c.plan.onePhase && isAPIClient(pod) && !c.plan.skips("kubelet-start") && !c.plan.skips("kubelet-wait-bootstrap")
}

// preflight finds the cluster first, because the checks depend on the cluster's
// configuration. If that fails, it still reports the problems of the host.
func (c *controlPlaneJoin) preflight(ctx context.Context) error {
	lost := c.needCluster(ctx)
	if ctx.Err() != nil {
		return lost
	}
	err := c.nodeJoin.preflight(ctx)
	if err == nil {
		return lost
	}
	if lost != nil {
		c.console.Warn("%s", lost)
	}
	return err
}

// findCluster returns the cluster of which this host is a control plane
// already, or else the cluster that the user named.
func (c *controlPlaneJoin) findCluster(ctx context.Context) (*cluster.Found, *cluster.FetchedConfig, error) {
	found, fetched, err := c.knownCluster(ctx)
	if found == nil && err == nil {
		found, fetched, err = c.discoverCluster(ctx)
	}
	if err != nil {
		return nil, nil, err
	}
	client, err := cluster.New(found.Kubeconfig, "")
	if err != nil {
		return nil, nil, err
	}
	return found, fetched, checkNoRotation(ctx, client)
}

// checkNoRotation refuses a cluster whose CAs are being rotated: the new control plane would have the
// CAs and keys of one stage, and miss the others.
func checkNoRotation(ctx context.Context, client *cluster.Client) error {
	rotation, err := client.Rotation(ctx)
	if err != nil || rotation == nil {
		return err
	}
	return fault.New(fault.Preflight,
		"finish or cancel the rotation on the other nodes, see there: ./install certs rotate-ca status; then, if this host has certificates of the cluster: ./install reset --force; and join again",
		"the cluster's CAs are being rotated (stage %q): no control plane can join meanwhile", rotation.Stage)
}

// mayRestart fails if a component of this control plane, which has joined already, must not be restarted
// now.
func (c *controlPlaneJoin) mayRestart(ctx context.Context, component string) error {
	if err := c.needTurn(ctx); err != nil || component != etcdPod {
		return err
	}
	return c.checkQuorum(ctx)
}

// needTurn waits, once, until no other control plane is changed: an upgrade, a rotation of the CAs and
// a restart of etcd do not expect a new control plane. It then looks at what they may have changed.
// Later it fails if the turn is lost.
func (c *controlPlaneJoin) needTurn(ctx context.Context) (err error) {
	if c.turn != nil {
		return c.turn.confirm(ctx)
	}
	if c.client == nil {
		return fault.New(fault.Failure, "run the phase control-plane-prepare/kubeconfig first", "%s does not exist, and join needs it to connect to the cluster", adminConf)
	}
	if c.turn, err = takeTurn(ctx, c.machine, c.config.NodeRegistration.Name, adminConf, 0, c.cluster.found.Server); err != nil {
		return err
	}
	if err := checkNoRotation(ctx, c.client); err != nil {
		return err
	}
	fetched, err := c.client.FetchConfig(ctx)
	if err != nil {
		return err
	}
	return c.checkVersion(fetched.Cluster.KubernetesVersion)
}

func (c *controlPlaneJoin) useCluster(found *cluster.Found, fetched config.Cluster) error {
	if err := c.checkVersion(fetched.KubernetesVersion); err != nil {
		return err
	}
	merged := *c.config
	if err := merged.UseCluster(fetched); err != nil {
		return err
	}
	// The ConfigMap omits defaults: set them as init does. An empty pod subnet
	// is not a default there, so it stays empty.
	pods := merged.Networking.PodSubnet
	merged.CompleteInit()
	merged.Networking.PodSubnet = pods
	c.config = &merged
	return c.checkReady(found)
}

func (c *controlPlaneJoin) clientKubeconfig() string {
	if c.exists(adminConf) {
		return adminConf
	}
	return ""
}

// bootstrapServer is this host's own API server in those versions of Kubernetes
// in which a control plane's kubelet uses it. Then etcd must join before the
// kubelet can get a certificate.
func (c *controlPlaneJoin) bootstrapServer() string {
	if c.config.ControlPlaneKubeletLocalMode() {
		return c.config.LocalURL()
	}
	return ""
}

// keepsCA is true: the certificates of this host are signed with the CA file
// that checkReady accepted.
func (c *controlPlaneJoin) keepsCA() bool { return true }

// startKubelet starts the kubelet. If the phase runs alone, it includes the wait
// for the kubelet's certificate, unless etcd must join before.
func (c *controlPlaneJoin) startKubelet(ctx context.Context) error {
	if err := c.nodeJoin.startKubelet(ctx); err != nil || !c.plan.onePhase || c.bootstrapServer() != "" {
		return err
	}
	return c.waitBootstrap(ctx)
}

// waitBootstrap waits until the kubelet has its client certificate, and writes
// the static pods that wait for that.
func (c *controlPlaneJoin) waitBootstrap(ctx context.Context) error {
	if err := c.replacePods(ctx); err != nil {
		return err
	}
	if err := c.nodeJoin.waitBootstrap(ctx); err != nil {
		return err
	}
	return c.local.placeHeld()
}

// replacePods replaces changed static pods if the kubelet uses this host's own
// API server. A kubelet that uses another one replaces them itself.
func (c *controlPlaneJoin) replacePods(ctx context.Context) error {
	if len(c.local.replaced) == 0 || c.bootstrapServer() == "" {
		return nil
	}
	api, err := loadClient(c.host, adminConf, c.config.LocalURL(), c.config.Timeouts.KubernetesAPICall)
	if err != nil {
		return err
	}
	return c.local.replacePods(ctx, api)
}

// knownCluster uses the admin.conf that an earlier run wrote. A join that
// continues then needs no valid token. It returns nil if there is no admin.conf
// or if it does not work.
func (j *controlPlaneJoin) knownCluster(ctx context.Context) (*cluster.Found, *cluster.FetchedConfig, error) {
	if !fileExists(j.existing, adminConf) {
		return nil, nil, nil
	}
	d := j.config.Discovery
	client, err := loadClient(j.existing, adminConf, d.APIServerEndpoint, j.config.Timeouts.KubernetesAPICall)
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
			return nil, nil, fault.Wrap(fmt.Errorf("this host belongs to another cluster, according to %s: %w", adminConf, err), fault.Preflight,
				"to remove everything Airlift installed: ./install reset --force")
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
	} else if found.Kubeconfig, err = os.ReadFile(j.existing.Path(adminConf)); err != nil {
		return nil, nil, err
	}
	return found, fetched, nil
}

// checkVersion refuses a cluster of another Kubernetes version. All control
// planes must run the same version, and a bundle contains only one.
func (j *controlPlaneJoin) checkVersion(running string) error {
	if running == j.config.KubernetesVersion {
		return nil
	}
	return fault.New(fault.Preflight, "use a bundle built with 'bundle build --version "+running+"', or upgrade the cluster first",
		"this bundle's control plane is %s and the cluster's is %s: all control planes must have the same version",
		j.config.KubernetesVersion, running)
}

// checkReady checks that the cluster can have another control plane, and that
// this host has, or can download, the certificates that all control planes
// share.
func (j *controlPlaneJoin) checkReady(found *cluster.Found) error {
	if j.config.ControlPlaneEndpoint == "" {
		return fault.New(fault.Preflight,
			"create the cluster with --control-plane-endpoint; or add an endpoint: on its control plane, create an API server certificate for that name, and set controlPlaneEndpoint in ConfigMap kube-system/kubeadm-config",
			"the cluster has no controlPlaneEndpoint, a stable address for more than one control plane")
	}
	if j.config.CertificateKey != "" {
		return nil
	}
	if err := pki.CheckShared(j.config, j.files(), time.Now()); err != nil {
		return fault.Wrap(err, fault.Preflight,
			"copy them from a control plane's "+j.config.CertificatesDir+", or download them with --certificate-key; to get the key, run on a control plane: ./install init phase upload-certs --upload-certs")
	}
	return j.checkCA(found.CA)
}

// checkCA checks that this host's CA is one of the cluster's trusted CAs.
func (j *controlPlaneJoin) checkCA(trusted []byte) error {
	data, err := fs.ReadFile(j.files(), strings.TrimPrefix(j.caFile(), "/"))
	if err != nil {
		return fmt.Errorf("reading the cluster's CA: %w", err)
	}
	return j.checkCAData(data, trusted)
}

func (j *controlPlaneJoin) caFile() string { return path.Join(j.config.CertificatesDir, "ca.crt") }

// checkCAData is checkCA for a ca.crt that is not on the host yet. This host
// signs with the first certificate in it.
func (j *controlPlaneJoin) checkCAData(data, trusted []byte) error {
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
	if hashes, err := pki.CAHashes(data); err == nil && len(j.config.Discovery.CACertHashes) > 0 {
		hint += "; if the cluster is replacing its CA, pass --discovery-token-ca-cert-hash " + hashes[0] + " too"
	}
	return fault.New(fault.Preflight, hint, "%s is not the CA of the cluster at %s", j.caFile(), j.config.ServerURL())
}

// downloadCerts downloads the certificates that all control planes share,
// unless this host already has them.
func (j *controlPlaneJoin) downloadCerts(ctx context.Context) error {
	if j.config.CertificateKey == "" {
		j.console.Note("no --certificate-key: using the certificates that are already on this host")
		return nil
	}
	if err := pki.CheckShared(j.config, j.files(), time.Now()); err == nil {
		return nil
	}
	client, err := cluster.New(j.cluster.found.Kubeconfig, "")
	if err != nil {
		return err
	}
	files, err := client.DownloadCerts(ctx, j.config, j.config.CertificateKey)
	if err != nil {
		return err
	}
	if ca := files[j.caFile()]; ca != nil {
		if err := j.checkCAData(ca, j.cluster.found.CA); err != nil {
			return err
		}
	}
	var list []pki.File
	for name, data := range files {
		mode := os.FileMode(0o600)
		if strings.HasSuffix(name, ".crt") {
			mode = 0o644
		}
		list = append(list, pki.File{Path: name, Data: data, Mode: mode})
	}
	slices.SortFunc(list, func(a, b pki.File) int { return cmp.Compare(a.Path, b.Path) })
	return j.write(list...)
}

// certs creates this node's own certificates.
func (j *controlPlaneJoin) certs(ctx context.Context) error {
	if err := j.checkCA(j.cluster.found.CA); err != nil {
		return err
	}
	return j.local.certs()(ctx)
}

// waitControlPlane waits for the API server on this host and, in those versions of Kubernetes
// in which kubeadm does, for the controller manager and the scheduler.
func (j *controlPlaneJoin) waitControlPlane(ctx context.Context) error {
	local, err := loadClient(j.host, adminConf, j.config.LocalURL(), j.config.Timeouts.KubernetesAPICall)
	if err != nil {
		return err
	}
	timeout := j.config.APIServer.TimeoutForControlPlane
	err = j.watched(ctx, j.localAPI(), func(ctx context.Context) error {
		return local.WaitForAPI(ctx, timeout, j.report)
	})
	if err != nil || !j.config.WaitForAllControlPlaneComponents() {
		return err
	}
	for _, c := range []struct {
		name string
		port int
	}{
		{"kube-controller-manager", config.ControllerManagerPort},
		{"kube-scheduler", config.SchedulerPort},
	} {
		url, err := healthURL(j.host, c.name, c.port)
		if err != nil {
			return err
		}
		needs := dependency{components: []string{c.name}, apiAnswers: local.Answers}
		err = j.watched(ctx, needs, func(ctx context.Context) error {
			return cluster.WaitForComponent(ctx, c.name, url, timeout, j.report)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// updateStatus does nothing: kubeadm keeps this phase for compatibility.
func (j *controlPlaneJoin) updateStatus(context.Context) error { return nil }
