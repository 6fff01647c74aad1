package installer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"airlift/fault"
	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/pki"
	"airlift/installer/preflight"
	"airlift/installer/render"
)

// Kubeconfig files, as kubeadm names them.
const (
	adminConf      = config.KubernetesDir + "/admin.conf"
	superAdminConf = config.KubernetesDir + "/super-admin.conf"
	kubeletConf    = config.KubernetesDir + "/kubelet.conf"
	bootstrapConf  = config.KubernetesDir + "/bootstrap-kubelet.conf"
)

// joinTokenLife is how long an existing token must still live to be shown in
// the join command of a second run instead of a new one.
const joinTokenLife = 10 * time.Minute

// Init lists the steps that make this host the first control plane.
func (n *Node) Init() []Step {
	n.role = preflight.Init
	return []Step{
		{Name: "preflight", Doc: "check this host", Run: n.preflight},
		{Name: "unpack", Doc: "install the programs from the bundle", Run: n.unpack, Needed: true},
		{Name: "runtime", Doc: "prepare the kernel and start containerd", Run: n.runtime, Needed: true},
		{Name: "certs", Doc: "make the certificates", Run: n.certs},
		{Name: "kubeconfig", Doc: "make the kubeconfig files", Run: n.kubeconfig},
		{Name: "etcd", Doc: "write the static pod of etcd", Run: n.etcd},
		{Name: "control-plane", Doc: "write the control plane's static pods", Run: n.controlPlane},
		{Name: "images", Doc: "import the control plane's images", Run: n.waitImages("pause", "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")},
		{Name: "kubelet-start", Doc: "start the kubelet", Run: n.kubeletStart},
		{Name: "wait-control-plane", Doc: "wait for a healthy control plane", Run: n.withAPI(n.waitControlPlane)},
		{Name: "upload-config", Doc: "store the configuration in the cluster", Run: n.withAPI(n.uploadConfig)},
		{Name: "upload-certs", Doc: "store the encrypted certificates in the cluster", Run: n.withAPI(n.uploadCerts)},
		{Name: "mark-control-plane", Doc: "label and taint this node", Run: n.withAPI(n.markControlPlane)},
		{Name: "bootstrap-token", Doc: "make the token that nodes join with", Run: n.withAPI(n.bootstrapToken)},
		{Name: "kubelet-finalize", Doc: "check that the kubelet rotates its certificate", Run: n.kubeletFinalize},
		{Name: "addon", Doc: "install CoreDNS and kube-proxy", Steps: []Step{
			{Name: "coredns", Doc: "install CoreDNS", Run: n.withAPI(n.apply(render.CoreDNS))},
			{Name: "kube-proxy", Doc: "install kube-proxy", Run: n.withAPI(n.apply(render.KubeProxy))},
		}},
		{Name: "pod-network", Doc: "install the pod network", Run: n.withAPI(n.initPodNetwork)},
		{Name: "wait-node", Doc: "wait for the node and its system pods", Run: n.withAPI(n.waitSystem)},
		{Name: "show-join-command", Doc: "say what to do next", Run: n.showJoinCommand},
	}
}

func (n *Node) certs(ctx context.Context) error {
	made, err := pki.Ensure(n.Config, n.root(), time.Now())
	if err != nil {
		return err
	}
	n.sayKept(made)
	return n.write(made.Files...)
}

func (n *Node) kubeconfig(ctx context.Context) error {
	made, err := pki.Kubeconfigs(n.Config, n.root(), time.Now())
	if err != nil {
		return err
	}
	kubelet, err := pki.KubeletClient(n.Config, n.root(), time.Now())
	if err != nil {
		return err
	}
	n.sayKept(made)
	return n.write(append(made.Files, kubelet.Files...)...)
}

func (n *Node) sayKept(r pki.Result) {
	if len(r.Kept) > 0 {
		n.Console.Note("%d made, %d valid ones kept", len(r.Files), len(r.Kept))
	}
	for _, f := range r.Kept {
		n.Console.Debug(1, "kept %s", f)
	}
}

func (n *Node) etcd(ctx context.Context) error {
	if n.Config.Etcd.External != nil {
		n.Console.Note("external etcd: nothing to do")
		return nil
	}
	if err := n.Host.MkdirAll(n.Config.Etcd.Local.DataDir, 0o700); err != nil {
		return err
	}
	pod, err := render.Etcd(n.Config)
	if err != nil {
		return err
	}
	return n.writeManifest("etcd", pod)
}

func (n *Node) controlPlane(ctx context.Context) error {
	pods, err := render.ControlPlane(n.Config, n.root())
	if err != nil {
		return err
	}
	for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		if err := n.writeManifest(name, pods[name]); err != nil {
			return err
		}
	}
	return nil
}

func (n *Node) writeManifest(name string, pod any) error {
	data, err := render.YAML(pod)
	if err != nil {
		return err
	}
	return n.write(pki.File{Path: path.Join(config.ManifestsDir, name+".yaml"), Data: data, Mode: 0o600})
}

func (n *Node) kubeletStart(ctx context.Context) error {
	settings, err := render.KubeletConfig(n.Config)
	if err != nil {
		return err
	}
	return n.startKubelet(ctx, settings, false)
}

// waitControlPlane waits for the API and makes the administrator one. It goes
// by the address this host serves the API on: a load balancer or virtual IP in
// front of it may come later.
func (n *Node) waitControlPlane(ctx context.Context) error {
	superAdmin, err := n.loadClient(superAdminConf, n.Config.LocalURL())
	if errors.Is(err, fs.ErrNotExist) {
		superAdmin = nil
	} else if err != nil {
		return err
	}
	if err := n.client.WaitForAPI(ctx, n.Config.APIServer.TimeoutForControlPlane, n.report); err != nil {
		return err
	}
	return n.applied(cluster.EnsureAdmin(ctx, n.client, superAdmin, render.ClusterAdmins()))
}

func (n *Node) uploadConfig(ctx context.Context) error {
	objects, err := render.UploadConfig(n.Config)
	if err != nil {
		return err
	}
	if err := n.applied(n.client.Apply(ctx, objects...)); err != nil {
		return err
	}
	name := n.Config.NodeRegistration.Name
	if err := n.client.WaitForNode(ctx, name, nodeTimeout, n.report); err != nil {
		return err
	}
	changed, err := n.client.AnnotateCRISocket(ctx, name, n.Config.NodeRegistration.CRISocket)
	n.changed(changed)
	return err
}

func (n *Node) uploadCerts(ctx context.Context) error {
	if !n.Config.UploadCerts {
		n.Console.Note("skipped: --upload-certs was not given")
		return nil
	}
	if n.Config.CertificateKey == "" {
		n.Config.CertificateKey = cluster.NewCertificateKey()
	}
	changed, err := n.client.UploadCerts(ctx, n.Config, n.Config.CertificateKey)
	n.changed(changed)
	if err != nil {
		return err
	}
	return n.applied(n.client.Apply(ctx, render.UploadCertsRBAC()...))
}

func (n *Node) markControlPlane(ctx context.Context) error {
	changed, err := n.client.MarkControlPlane(ctx, n.Config.NodeRegistration.Name, n.Config.NodeRegistration.Taints)
	n.changed(changed)
	return err
}

func (n *Node) bootstrapToken(ctx context.Context) error {
	if n.rerun && !n.UserToken {
		token, err := n.client.FindJoinToken(ctx, joinTokenLife)
		if err != nil {
			return err
		}
		n.token = token
	}
	if n.token == "" {
		if err := n.applied(n.client.EnsureTokens(ctx, n.Config.BootstrapTokens)); err != nil {
			return err
		}
		if len(n.Config.BootstrapTokens) > 0 {
			n.token = n.Config.BootstrapTokens[0].Token
		}
	}
	ca, err := os.ReadFile(n.Host.Path(path.Join(n.Config.CertificatesDir, "ca.crt")))
	if err != nil {
		return err
	}
	return n.applied(n.client.Apply(ctx, append(render.BootstrapRBAC(), render.ClusterInfo(n.Config, ca)...)...))
}

// kubeletFinalize has little to do: kubeadm repoints kubelet.conf to the
// rotatable certificate here and restarts the kubelet, ours was there from the
// start.
func (n *Node) kubeletFinalize(ctx context.Context) error {
	data, err := os.ReadFile(n.Host.Path(kubeletConf))
	if err != nil {
		return err
	}
	if want := path.Join(config.KubeletPKIDir, "kubelet-client-current.pem"); !strings.Contains(string(data), want) {
		return fault.New(fault.Failure, "remove it and run init again", "%s does not use %s, so its certificate would expire", kubeletConf, want)
	}
	return nil
}

// apply makes a step of objects that render makes from the Config.
func (n *Node) apply(objects func(*config.Config) ([]runtime.Object, error)) func(context.Context) error {
	return func(ctx context.Context) error {
		list, err := objects(n.Config)
		if err != nil {
			return err
		}
		return n.applied(n.client.Apply(ctx, list...))
	}
}

func (n *Node) initPodNetwork(ctx context.Context) error {
	if err := n.apply(n.networkObjects)(ctx); err != nil {
		return err
	}
	return n.podNetwork(ctx)
}

func (n *Node) waitSystem(ctx context.Context) error {
	if err := n.waitNode(ctx); err != nil {
		return err
	}
	if n.Config.CNI == "none" {
		return nil
	}
	if slices.Contains(n.SkipPhases, "addon") || slices.Contains(n.SkipPhases, "addon/kube-proxy") {
		n.Console.Note("not waiting for pods: without kube-proxy they have no Services")
		return nil
	}
	namespaces := []string{"kube-system"}
	if n.Config.CNI == "flannel" {
		namespaces = append(namespaces, "kube-flannel")
	}
	return n.client.WaitForPods(ctx, cluster.Pods{Namespaces: namespaces}, nodeTimeout, n.report)
}

func (n *Node) showJoinCommand(ctx context.Context) error {
	ca, err := os.ReadFile(n.Host.Path(path.Join(n.Config.CertificatesDir, "ca.crt")))
	if err != nil {
		return err
	}
	hash, err := pki.CAHash(ca)
	if err != nil {
		return err
	}
	n.Console.Summary(initSummary{
		version:   n.Config.KubernetesVersion,
		unchanged: n.changes == 0,
		join:      cluster.JoinCommand(strings.TrimPrefix(n.Config.ServerURL(), "https://"), n.token, hash),
		token:     n.token != "",
		key:       n.Config.CertificateKey,
		network:   n.Config.CNI,
	}.String())
	return nil
}

type initSummary struct {
	version, join, key, network string
	unchanged, token            bool
}

func (s initSummary) String() string {
	var b strings.Builder
	if s.unchanged {
		fmt.Fprintf(&b, "Kubernetes %s is already running here. Nothing was changed.\n", s.version)
	} else {
		fmt.Fprintf(&b, "Kubernetes %s is running on this host.\n", s.version)
	}
	b.WriteString("\nUse it as root:\n\n    export KUBECONFIG=" + adminConf + "\n    kubectl get nodes\n")
	if s.network == "none" {
		b.WriteString("\nInstall a pod network next; the node is NotReady until then.\n")
	}
	if s.token {
		b.WriteString("\nAdd a worker: carry this file to it and run there, as root:\n\n    " + s.join + "\n")
	}
	if s.key != "" {
		b.WriteString("\nThe control-plane certificates are stored in the cluster for two hours,\nencrypted with this key. Keep it as secret as the certificates:\n\n    " + s.key + "\n")
	}
	return b.String()
}
