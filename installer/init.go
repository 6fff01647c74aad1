package installer

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	kubeproxyv1 "k8s.io/kube-proxy/config/v1alpha1"

	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/pki"
	"airlift/installer/preflight"
	"airlift/installer/render"
)

// An Init makes this host the first control plane of a new cluster.
type Init struct {
	*api
	options      InitOptions
	site         siteFiles
	manifests    *manifests
	runtimeStep  runtimeStep
	kubelet      kubelet
	controlPlane *controlPlane
	addons       *addons
	credentials  *nodeCredentials

	turn       *turn // of this control plane; nil until one of its components changes
	adminReady bool  // the user of admin.conf is an administrator
	// onlyThisNode makes init wait only for the pods of this node: others may be lost.
	onlyThisNode bool

	podsWritten time.Time // when the kubelet had the static pods of etcd and the API server
}

// NewInit returns an Init that runs the plan on a host.
func NewInit(p *Plan, o InitOptions, h *host.Host, c *Console) *Init {
	return newInit(p, o, newMachine(h, c))
}

func newInit(p *Plan, o InitOptions, m *machine) *Init {
	content := &content{node: newNode(p, m)}
	api := &api{content: content}
	i := &Init{
		api: api, options: o, site: siteFiles{content}, manifests: &manifests{api: api, options: o}, runtimeStep: runtimeStep{content}, kubelet: kubelet{content: content},
		controlPlane: &controlPlane{node: content.node}, addons: &addons{api: api, options: o},
		credentials: &nodeCredentials{api: api, options: o, certificateKey: p.config.CertificateKey},
	}
	i.checkEarlier = func(ctx context.Context) error { return i.checkRunning(ctx, o.FromFile) }
	i.controlPlane.hold, i.controlPlane.mayRestart = i.holdsStaticPod, i.mayRestart
	return i
}

// InitPhases returns the steps of init, for the names of its phases.
func InitPhases() []Step {
	return newInit(&Plan{config: new(config.Config)}, InitOptions{}, nil).Steps()
}

// Steps returns the steps of init in order.
func (i *Init) Steps() []Step {
	return []Step{
		{Name: "preflight", Doc: "run the preflight checks", Run: i.preflight},
		{Name: "unpack", Doc: "install the binaries from the bundle", Run: i.unpack, Needed: true},
		{Name: "files", Doc: "write the site's own files", Run: i.site.write, Empty: len(i.plan.siteFiles()) == 0},
		{Name: "runtime", Doc: "prepare the kernel and start containerd", Run: i.prepareRuntime, Needed: true},
		{Name: "certs", Doc: "create the certificates", Run: i.controlPlane.certs(), Steps: each(pki.Names(), i.controlPlane.certs)},
		{Name: "kubeconfig", Doc: "create the kubeconfig files", Run: i.kubeconfig(), Steps: each(pki.KubeconfigNames(), i.kubeconfig)},
		{Name: "etcd", Doc: "write the static pod manifest of etcd", Steps: []Step{
			{Name: "local", Doc: "write the static pod manifest of a local etcd", Run: i.etcd},
		}},
		{Name: "control-plane", Doc: "write the control plane's static pod manifests", Steps: []Step{
			{Name: "apiserver", Doc: "write the static pod manifest of the API server", Run: i.controlPlane.staticPods("kube-apiserver")},
			{Name: "controller-manager", Doc: "write the static pod manifest of the controller manager", Run: i.controlPlane.staticPods("kube-controller-manager")},
			{Name: "scheduler", Doc: "write the static pod manifest of the scheduler", Run: i.controlPlane.staticPods("kube-scheduler")},
		}},
		{Name: "images", Doc: "import the control plane's images", Run: i.images},
		{Name: "units", Doc: "start the site's own systemd units", Run: i.site.startUnits, Empty: len(i.plan.siteUnits()) == 0},
		{Name: "kubelet-start", Doc: "start the kubelet", Run: i.startKubelet},
		{Name: "wait-control-plane", Doc: "wait for a healthy control plane", Run: i.withClient(i.waitControlPlane)},
		{Name: "upload-config", Aliases: []string{"uploadconfig"}, Doc: "store the configuration in the cluster", Steps: []Step{
			{Name: "kubeadm", Doc: "store the ClusterConfiguration", Run: i.withAPI(i.apply(render.UploadClusterConfig))},
			{Name: "kubelet", Doc: "store the KubeletConfiguration", Run: i.withAPI(i.uploadKubeletConfig)},
		}},
		{Name: "upload-certs", Doc: "store the encrypted certificates in the cluster", Run: i.withAPI(i.credentials.uploadCerts)},
		{Name: "mark-control-plane", Doc: "label and taint this node", Run: i.withAPI(i.markControlPlane)},
		{Name: "bootstrap-token", Aliases: []string{"bootstraptoken"}, Doc: "create the bootstrap token for joining nodes", Run: i.withAPI(i.credentials.bootstrapToken)},
		{Name: "kubelet-finalize", Doc: "check that the kubelet rotates its certificate", Steps: []Step{
			{Name: "enable-client-cert-rotation", Doc: "check that the kubelet rotates its certificate", Run: i.kubeletFinalize, Aliases: []string{"experimental-cert-rotation"}},
		}},
		{Name: "addon", Doc: "install CoreDNS, kube-proxy and the pod network", Steps: []Step{
			{Name: "coredns", Doc: "install CoreDNS", Run: i.addon("coredns")},
			{Name: "kube-proxy", Doc: "install kube-proxy", Run: i.addon("kube-proxy")},
			{Name: "flannel", Doc: "install flannel, if it is the pod network", Run: i.addon("flannel")},
		}},
		{Name: "pod-network", Doc: "connect this node to the pod network", Run: i.withAPI(i.podNetwork)},
		{Name: "manifests", Doc: "apply the site's own manifests", Run: i.manifests.run(i.withAPI), Empty: len(i.plan.siteManifests()) == 0},
		{Name: "wait-node", Doc: "wait for the node and its system pods", Run: i.withAPI(i.waitSystem)},
		{Name: "wait-manifests", Doc: "wait for the workloads of the site's manifests", Run: i.withAPI(i.manifests.wait), Empty: len(i.plan.siteManifests()) == 0},
		{Name: "show-join-command", Doc: "print the next steps", Run: i.withAPI(i.credentials.show)},
	}
}

// each returns one sub-phase for each name.
func each(names []string, run func(...string) func(context.Context) error) []Step {
	var steps []Step
	for _, name := range names {
		steps = append(steps, Step{Name: name, Doc: "create " + pki.Doc(name), Run: run(name)})
	}
	return steps
}

// Run runs all steps except the skipped ones.
func (i *Init) Run(ctx context.Context) error {
	return Run(ctx, i.console, i.Steps(), i.plan.config.SkipPhases)
}

// RunPhase waits for the check of the bundle file and runs one step alone.
func (i *Init) RunPhase(ctx context.Context, name string) error {
	if err := i.plan.bundle.checked(ctx, i.console); err != nil {
		return err
	}
	if err := UnfinishedRestore(i.existing); err != nil {
		return err
	}
	return RunPhase(ctx, i.console, i.Steps(), name)
}

// Close stops everything that runs in the background.
func (i *Init) Close() {
	i.turn.end()
	i.content.close()
	i.node.close()
}

// Preflight reports everything that prevents this host from becoming a control
// plane. It changes nothing.
func (i *Init) Preflight(ctx context.Context) (preflight.Report, error) {
	if err := i.inspect(ctx); err != nil {
		return preflight.Report{}, err
	}
	kubelet, err := render.KubeletConfig(i.config)
	if err != nil {
		return preflight.Report{}, err
	}
	return i.checkHost(ctx, kubelet)
}

func (i *Init) preflight(ctx context.Context) error {
	report, err := i.Preflight(ctx)
	i.warn(report)
	return err
}

func (i *Init) unpack(ctx context.Context) error {
	if err := i.ready(ctx); err != nil {
		return err
	}
	return i.content.unpack(ctx)
}

func (i *Init) prepareRuntime(ctx context.Context) error {
	return i.runtimeStep.run(ctx, i.proxyConfig(), false)
}

// proxyConfig returns the user's kube-proxy configuration. It returns nil if
// there is none or if kube-proxy is not installed.
func (i *Init) proxyConfig() *kubeproxyv1.KubeProxyConfiguration {
	if i.config.Proxy.Disabled || i.plan.skips("addon/kube-proxy") {
		return nil
	}
	return i.config.KubeProxy
}

func (i *Init) kubeconfig(names ...string) func(context.Context) error {
	dir := i.options.KubeconfigDir
	if dir == "" {
		dir = config.KubernetesDir
	}
	return i.controlPlane.kubeconfig(dir, names...)
}

func (i *Init) etcd(ctx context.Context) error {
	if i.config.Etcd.External != nil {
		i.console.Note("external etcd: nothing to do")
		return nil
	}
	return i.controlPlane.etcd(ctx)
}

// mayRestart waits until no other control plane restarts its components, and fails if a component must
// not be restarted now.
func (i *Init) mayRestart(ctx context.Context, component string) (err error) {
	if i.turn == nil {
		i.turn, err = tryTurn(ctx, i.machine, adminConf, 0)
	}
	if err != nil || component != etcdPod {
		return err
	}
	return i.checkQuorum(ctx)
}

// holdsStaticPod reports whether a static pod's manifest is written only when the
// API server answers, in the step wait-control-plane.
func (i *Init) holdsStaticPod(pod pki.File) bool {
	return i.stream != nil && !i.plan.onePhase && isAPIClient(pod) && !i.plan.skips("wait-control-plane")
}

// images waits for the control plane's images. The kubelet starts afterwards:
// for a pod without its image it would try to pull it, and wait ten seconds
// before it tries again.
func (i *Init) images(ctx context.Context) error {
	return i.waitImages(ctx, append([]string{"pause", "etcd"}, controlPlaneComponents...)...)
}

func (i *Init) startKubelet(ctx context.Context) error {
	cluster, err := render.KubeletConfig(i.config)
	if err != nil {
		return err
	}
	if err := i.kubelet.start(ctx, cluster); err != nil {
		return err
	}
	return i.kubelet.waitKubelet(ctx)
}

// withAPI is withClient for the steps after wait-control-plane. That step makes
// the user of admin.conf an administrator; if it is skipped or did not run before
// a phase that runs alone, that is done here, as in kubeadm.
func (i *Init) withAPI(run func(context.Context) error) func(context.Context) error {
	return i.withClient(func(ctx context.Context) error {
		if i.plan.onePhase || i.plan.skips("wait-control-plane") {
			if err := i.needAdmin(ctx); err != nil {
				return err
			}
		}
		return run(ctx)
	})
}

// withClient returns a step that creates the API client first, unless an earlier
// step has. It uses --kubeconfig if given, else admin.conf if it exists, else
// kubelet.conf.
func (i *Init) withClient(run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) (err error) {
		timeout := i.config.Timeouts.KubernetesAPICall
		switch {
		case i.client != nil:
		case i.otherKubeconfig():
			i.client, err = cluster.Load(i.options.Kubeconfig, "")
		case i.exists(adminConf):
			i.client, err = loadClient(i.host, adminConf, i.localURL(), timeout)
		default:
			i.client, err = loadClient(i.host, kubeletConf, "", timeout)
		}
		if err != nil {
			return err
		}
		return run(ctx)
	}
}

// otherKubeconfig reports whether the user chose another kubeconfig than admin.conf.
func (i *Init) otherKubeconfig() bool {
	return i.options.Kubeconfig != "" && i.options.Kubeconfig != adminConf
}

// localURL returns the URL of the API server of this host. If a phase runs alone,
// its static pod has it: the flags or the file of init need not be given again.
func (i *Init) localURL() string {
	if i.plan.onePhase {
		return cmp.Or(ownAPIServer(i.host), i.config.LocalURL())
	}
	return i.config.LocalURL()
}

// superAdmin returns a client with super-admin.conf, nil if that does not exist.
func (i *Init) superAdmin() (*cluster.Client, error) {
	client, err := loadClient(i.host, superAdminConf, i.localURL(), i.config.Timeouts.KubernetesAPICall)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return client, err
}

// needAdmin makes the user of admin.conf an administrator, once. Without
// super-admin.conf it does nothing.
func (i *Init) needAdmin(ctx context.Context) error {
	if i.adminReady || i.otherKubeconfig() || !i.exists(adminConf) {
		return nil
	}
	superAdmin, err := i.superAdmin()
	if err != nil || superAdmin == nil {
		return err
	}
	if err := i.applied(cluster.EnsureAdmin(ctx, i.client, superAdmin, render.ClusterAdmins())); err != nil {
		return err
	}
	i.adminReady = true
	return nil
}

// waitControlPlane waits for the API and makes the user of admin.conf an
// administrator. It uses this host's own API address, because a load balancer
// or virtual IP may not be ready yet.
func (i *Init) waitControlPlane(ctx context.Context) error {
	i.podsWritten = time.Now()
	superAdmin, err := i.superAdmin()
	if err != nil {
		return err
	}
	if err := i.controlPlane.replacePods(ctx, i.client); err != nil {
		return err
	}
	err = i.watched(ctx, i.localAPI(), func(ctx context.Context) error {
		return i.client.WaitForAPI(ctx, i.config.APIServer.TimeoutForControlPlane, i.report)
	})
	if err != nil {
		return err
	}
	if err := i.applied(cluster.EnsureAdmin(ctx, i.client, superAdmin, render.ClusterAdmins())); err != nil {
		return err
	}
	begun, err := i.client.HadControllerManager(ctx)
	if err != nil {
		return err
	}
	if err := i.controlPlane.placeHeld(); err != nil || begun {
		return err
	}
	return i.client.EnsureControllerAccounts(ctx)
}

func (i *Init) uploadKubeletConfig(ctx context.Context) error {
	if err := i.apply(render.UploadKubeletConfig)(ctx); err != nil {
		return err
	}
	return i.registered(ctx)
}

// kubeletFinalize only warns if the kubelet cannot renew its certificate. In
// this step kubeadm changes kubelet.conf to the rotated certificate and
// restarts the kubelet. Airlift's kubelet.conf names the rotated certificate
// from the start. If the user provided kubelet.conf, signed by an external CA,
// it does not change.
func (i *Init) kubeletFinalize(context.Context) error {
	data, err := os.ReadFile(i.host.Path(kubeletConf))
	if err != nil {
		return err
	}
	if !strings.Contains(string(data), pki.KubeletCertFile(i.config)) {
		i.console.Warn("%s already contains a certificate, which the kubelet does not renew: see './install certs check-expiration'", kubeletConf)
	}
	return nil
}

func (i *Init) addon(name string) func(context.Context) error {
	return i.addons.install(name, i.withAPI)
}

func (i *Init) waitSystem(ctx context.Context) error {
	if err := i.waitNode(ctx); err != nil {
		return err
	}
	if i.config.CNI == "none" {
		return nil
	}
	if i.plan.skips("addon/kube-proxy") || i.config.Proxy.Disabled {
		i.console.Note("not waiting for pods: without kube-proxy, they cannot reach Services")
		return nil
	}
	namespaces := []string{"kube-system"}
	if i.config.CNI == "flannel" {
		namespaces = append(namespaces, "kube-flannel")
	}
	want := cluster.Pods{Namespaces: namespaces, Names: i.staticPodNames()}
	if i.onlyThisNode {
		want.Node = i.config.NodeRegistration.Name
	}
	if !i.config.DNS.Disabled && !i.plan.skips("addon/coredns") {
		want.Service = "kube-system/kube-dns"
	}
	// The kubelet retries a mirror pod slowly. If the API server was not ready
	// in time, a restart of the kubelet creates the missing mirror pods.
	want.MissingAfter = max(5*time.Second, time.Until(i.podsWritten.Add(15*time.Second)))
	want.OnMissing = func() error {
		i.console.Debug(1, "restarting the kubelet, so that it creates the mirror pods of the static pods")
		return i.host.Restart(ctx, "kubelet.service")
	}
	shown := map[string]bool{}
	want.OnProblem = func(problem string) {
		if !shown[problem] {
			i.console.Warn("%s", problem)
		}
		shown[problem] = true
	}
	needs := dependency{components: systemContainers, apiAnswers: i.apiAnswers}
	return i.watched(ctx, needs, func(ctx context.Context) error {
		return i.client.WaitForPods(ctx, want, nodeTimeout, i.report)
	})
}

// apiAnswers reports whether the API server answers at its own address and at the
// control-plane endpoint, which its clients on this host use.
func (i *Init) apiAnswers(ctx context.Context) bool {
	shared, err := loadClient(i.host, adminConf, "", i.config.Timeouts.KubernetesAPICall)
	return err == nil && i.client.Answers(ctx) && shared.Answers(ctx)
}

// systemContainers are the containers of all components that Airlift installs.
var systemContainers = slices.Concat(apiComponents, controlPlaneComponents[1:], []string{"kube-proxy", "kube-flannel", "coredns"})

// staticPodNames returns the names of this control plane's static pods in the
// API. kubeadm join looks for etcd's.
func (i *Init) staticPodNames() []string {
	components := slices.Clone(controlPlaneComponents)
	if i.config.Etcd.External == nil {
		components = append(components, "etcd")
	}
	for k, c := range components {
		components[k] = "kube-system/" + c + "-" + i.config.NodeRegistration.Name
	}
	return components
}
