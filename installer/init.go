package installer

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

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
		{Name: "certs", Doc: "make the certificates", Run: n.certs(), Steps: each(pki.Names(), n.certs)},
		{Name: "kubeconfig", Doc: "make the kubeconfig files", Run: n.kubeconfig(), Steps: each(pki.KubeconfigNames(), n.kubeconfig)},
		{Name: "etcd", Doc: "write the static pod of etcd", Steps: []Step{
			{Name: "local", Doc: "write the static pod of a local etcd", Run: n.etcd},
		}},
		{Name: "control-plane", Doc: "write the control plane's static pods", Steps: []Step{
			{Name: "apiserver", Doc: "write the static pod of the API server", Run: n.controlPlane("kube-apiserver")},
			{Name: "controller-manager", Doc: "write the static pod of the controller manager", Run: n.controlPlane("kube-controller-manager")},
			{Name: "scheduler", Doc: "write the static pod of the scheduler", Run: n.controlPlane("kube-scheduler")},
		}},
		{Name: "kubelet-start", Doc: "start the kubelet", Run: n.kubeletStart},
		{Name: "images", Doc: "import the control plane's images", Run: n.controlPlaneImages},
		{Name: "wait-control-plane", Doc: "wait for a healthy control plane", Run: n.withAPI(n.waitControlPlane)},
		{Name: "upload-config", Doc: "store the configuration in the cluster", Steps: []Step{
			{Name: "kubeadm", Doc: "store the ClusterConfiguration", Run: n.withAPI(n.apply(render.UploadClusterConfig))},
			{Name: "kubelet", Doc: "store the KubeletConfiguration", Run: n.withAPI(n.uploadKubeletConfig)},
		}},
		{Name: "upload-certs", Doc: "store the encrypted certificates in the cluster", Run: n.withAPI(n.uploadCerts)},
		{Name: "mark-control-plane", Doc: "label and taint this node", Run: n.withAPI(n.markControlPlane)},
		{Name: "bootstrap-token", Doc: "make the token that nodes join with", Run: n.withAPI(n.bootstrapToken)},
		{Name: "kubelet-finalize", Doc: "check that the kubelet rotates its certificate", Steps: []Step{
			{Name: "enable-client-cert-rotation", Doc: "check that the kubelet rotates its certificate", Run: n.kubeletFinalize, Aliases: []string{"experimental-cert-rotation"}},
		}},
		{Name: "addon", Doc: "install CoreDNS, kube-proxy and the pod network", Steps: []Step{
			{Name: "coredns", Doc: "install CoreDNS", Run: n.addon("coredns")},
			{Name: "kube-proxy", Doc: "install kube-proxy", Run: n.addon("kube-proxy")},
			{Name: "flannel", Doc: "install the pod network, where it is flannel", Run: n.addon("flannel")},
		}},
		{Name: "pod-network", Doc: "connect this node to the pod network", Run: n.withAPI(n.podNetwork)},
		{Name: "wait-node", Doc: "wait for the node and its system pods", Run: n.withAPI(n.waitSystem)},
		{Name: "show-join-command", Doc: "say what to do next", Run: n.withAPI(n.showJoinCommand)},
	}
}

// each makes one sub-phase of each of pki's names.
func each(names []string, run func(...string) func(context.Context) error) []Step {
	var steps []Step
	for _, name := range names {
		steps = append(steps, Step{Name: name, Doc: "make " + pki.Doc(name), Run: run(name)})
	}
	return steps
}

// certs makes the named certificates, or all of them. With an external etcd
// there are none for etcd.
func (n *Node) certs(names ...string) func(context.Context) error {
	return func(context.Context) error {
		made, err := pki.Ensure(n.Config, n.root(), time.Now(), names...)
		if err != nil {
			return err
		}
		n.sayKept(made)
		return n.write(made.Files...)
	}
}

// kubeconfig makes the named kubeconfig files, or all of them.
func (n *Node) kubeconfig(names ...string) func(context.Context) error {
	if len(names) == 0 {
		names = pki.KubeconfigNames()
	}
	return func(context.Context) error {
		if err := n.ownKubeletCertDir(); err != nil {
			return err
		}
		dir := n.KubeconfigDir
		if dir == "" {
			dir = config.KubernetesDir
		}
		made, err := pki.Kubeconfigs(n.Config, moved{n.root(), config.KubernetesDir, dir}, time.Now(), names...)
		if err != nil {
			return err
		}
		for i, f := range made.Files {
			if path.Dir(f.Path) == config.KubernetesDir {
				made.Files[i].Path = path.Join(dir, path.Base(f.Path))
			}
		}
		n.sayKept(made)
		return n.write(made.Files...)
	}
}

func (n *Node) sayKept(r pki.Result) {
	if len(r.Kept) > 0 && len(r.Files)+len(r.Kept) > 1 {
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
	if err := n.claimEtcd(); err != nil {
		return err
	}
	if err := n.Host.MkdirAll(n.Config.Etcd.Local.DataDir, 0o700); err != nil {
		return err
	}
	pod, err := render.Etcd(n.Config)
	if err != nil {
		return err
	}
	return n.writeManifest(pod)
}

// controlPlane writes the named static pods, or all of them but etcd's.
func (n *Node) controlPlane(names ...string) func(context.Context) error {
	if len(names) == 0 {
		names = []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"}
	}
	return func(context.Context) error {
		pods, err := render.ControlPlane(n.Config, n.root())
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := n.writeManifest(pods[name]); err != nil {
				return err
			}
		}
		return nil
	}
}

// writeManifest writes a static pod with the user's patches.
func (n *Node) writeManifest(pod *corev1.Pod) error {
	pod, used, err := n.patches.Pod(pod)
	if err != nil {
		return err
	}
	n.sayPatched(pod.Name, used)
	data, err := render.YAML(pod)
	if err != nil {
		return err
	}
	file := pki.File{Path: path.Join(config.ManifestsDir, pod.Name+".yaml"), Data: data, Mode: 0o600}
	if n.holds(file) {
		n.held = append(n.held, file)
		return nil
	}
	return n.write(file)
}

// holds says that a static pod is put in place by a later step. On the first
// control plane that is the one that waits for its image: the kubelet is
// started before that, because it takes a while, and shown a pod without its
// image it would try to pull that, and not look again for ten seconds. Clients
// of the API server come later still.
func (n *Node) holds(pod pki.File) bool {
	switch {
	case n.payload == nil || n.Single:
		return false
	case n.role == preflight.Init:
		return !n.skips("images")
	default:
		return isClient(pod) && !n.skips("kubelet-start") && !n.skips("kubelet-wait-bootstrap")
	}
}

// controlPlaneImages waits for the control plane's images and puts etcd and the
// API server in place as soon as theirs are there.
func (n *Node) controlPlaneImages(ctx context.Context) error {
	if err := n.waitImages("pause")(ctx); err != nil {
		return err
	}
	later := func(pod pki.File) bool { return !n.skips("wait-control-plane") && isClient(pod) }
	for _, pod := range n.held {
		if later(pod) {
			continue
		}
		if err := n.waitImages(strings.TrimSuffix(path.Base(pod.Path), ".yaml"))(ctx); err != nil {
			return err
		}
		if err := n.write(pod); err != nil {
			return err
		}
	}
	n.held = slices.DeleteFunc(n.held, func(pod pki.File) bool { return !later(pod) })
	n.placed = time.Now()
	return n.waitImages("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")(ctx)
}

// isClient says whether a static pod can do nothing without an API server.
// Started before that answers it would take its time to start, ask in vain to
// become the leader and not ask again for two seconds; and a kubelet that
// cannot show it in the API at once does not try again for a minute.
func isClient(pod pki.File) bool {
	return pod.Path != etcdManifest && pod.Path != apiServerManifest
}

// placeHeld puts those static pods in place that were held back.
func (n *Node) placeHeld() error {
	err := n.write(n.held...)
	n.held = nil
	return err
}

func (n *Node) sayPatched(target string, files []string) {
	if len(files) > 0 {
		n.Console.Note("%s is patched with %s", target, strings.Join(files, ", "))
	}
}

func (n *Node) kubeletStart(ctx context.Context) error {
	settings, err := render.KubeletConfig(n.Config)
	if err != nil {
		return err
	}
	before := n.changes
	if err := n.startKubelet(ctx, settings, false); err != nil {
		return err
	}
	if err := n.waitKubelet(ctx); err != nil {
		return err
	}
	if n.changes != before {
		n.kubeletBegan = time.Now()
	}
	return nil
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
	if err := n.applied(cluster.EnsureAdmin(ctx, n.client, superAdmin, render.ClusterAdmins())); err != nil {
		return err
	}
	begun, err := n.client.HadControllerManager(ctx)
	if err != nil {
		return err
	}
	if err := n.placeHeld(); err != nil || begun {
		return err
	}
	n.startStandIn(ctx)
	return n.client.EnsureControllerAccounts(ctx)
}

func (n *Node) uploadKubeletConfig(ctx context.Context) error {
	if err := n.apply(render.UploadKubeletConfig)(ctx); err != nil {
		return err
	}
	return n.registered(ctx)
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
	return n.apply(n.bootstrapObjects)(ctx)
}

// kubeletFinalize has little to do: kubeadm repoints kubelet.conf to the
// rotatable certificate here and restarts the kubelet, ours was there from the
// start. One that the user brought, signed by a CA elsewhere, stays as it is.
func (n *Node) kubeletFinalize(context.Context) error {
	data, err := os.ReadFile(n.Host.Path(kubeletConf))
	if err != nil {
		return err
	}
	if !strings.Contains(string(data), pki.KubeletCertFile(n.Config)) {
		n.Console.Warn("%s brings its own certificate, and the kubelet will not renew it: see 'install certs check-expiration'", kubeletConf)
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

func (n *Node) waitSystem(ctx context.Context) error {
	if err := n.applyLate(ctx); err != nil {
		return err
	}
	if err := n.waitNode(ctx); err != nil {
		return err
	}
	if n.Config.CNI == "none" {
		return nil
	}
	if n.skips("addon/kube-proxy") || n.Config.Proxy.Disabled {
		n.Console.Note("not waiting for pods: without kube-proxy they have no Services")
		return nil
	}
	namespaces := []string{"kube-system"}
	if n.Config.CNI == "flannel" {
		namespaces = append(namespaces, "kube-flannel")
	}
	want := cluster.Pods{Namespaces: namespaces, Names: n.staticPods()}
	if !n.Config.DNS.Disabled && !n.skips("addon/coredns") {
		want.Service = "kube-system/kube-dns"
	}
	// Where the API came later than etcd's startup probe succeeded, or the
	// kubelet was there before either, it shows static pods when it starts.
	want.MissingAfter = max(5*time.Second, time.Until(n.placed.Add(15*time.Second)))
	want.OnMissing = func() error {
		n.Console.Debug(1, "the kubelet is restarted to show the static pods")
		return n.Host.Restart(ctx, "kubelet.service")
	}
	return n.client.WaitForPods(ctx, want, nodeTimeout, n.report)
}

// staticPods are the names under which the kubelet shows this control plane's
// static pods in the API: real kubeadm's join looks for etcd's.
func (n *Node) staticPods() []string {
	components := []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"}
	if n.Config.Etcd.External == nil {
		components = append(components, "etcd")
	}
	for i, c := range components {
		components[i] = "kube-system/" + c + "-" + n.Config.NodeRegistration.Name
	}
	return components
}
