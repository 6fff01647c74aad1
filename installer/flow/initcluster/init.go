package initcluster

import (
	"cmp"
	"context"
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	kubeproxyv1 "k8s.io/kube-proxy/config/v1alpha1"

	"airlift/installer/cluster"
	"airlift/installer/cluster/rotation"
	"airlift/installer/config"
	"airlift/installer/desired"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/phases"
	"airlift/installer/pki"
	"airlift/installer/preflight"
	"airlift/installer/render"
	"airlift/installer/workflow"
)

// An Init makes this host the first control plane of a new cluster.
type Init struct {
	*node.Machine
	node         *phases.Node
	content      *phases.Content
	api          *phases.API
	kubeconfigs  string // the directory of the kubeconfig files
	site         phases.SiteFiles
	manifests    *phases.Manifests
	runtimeStep  phases.RuntimeStep
	endpoint     phases.Endpoint
	registry     phases.Registry
	kubelet      phases.Kubelet
	controlPlane *phases.ControlPlane
	addons       *phases.Addons
	credentials  *nodeCredentials
	access       *access
	system       *systemPods
	encryption   *encryption

	turn *node.Turn // of this control plane; nil until one of its components changes
}

// New returns an Init that runs the plan on a host.
func New(p *phases.Plan, o phases.InitOptions, h *host.Host, c *workflow.Console) *Init {
	return newInit(p, o, node.NewMachine(h, c))
}

func newInit(p *phases.Plan, o phases.InitOptions, m *node.Machine) *Init {
	content := phases.NewContent(phases.NewNode(p, m))
	api := phases.NewAPI(content)
	i := &Init{
		Machine: m, node: content.Node, content: content, api: api, kubeconfigs: cmp.Or(o.KubeconfigDir, config.KubernetesDir),
		site: phases.NewSiteFiles(content), manifests: phases.NewManifests(api, o), runtimeStep: phases.NewRuntimeStep(content), kubelet: phases.NewKubelet(content),
		controlPlane: &phases.ControlPlane{Machine: m, Node: content.Node}, addons: &phases.Addons{Machine: m, Node: content.Node, Content: content, API: api, Options: o},
		credentials: &nodeCredentials{Machine: m, node: content.Node, content: content, api: api, options: o, certificateKey: p.Config.CertificateKey},
		access:      &access{Machine: m, node: content.Node, api: api, kubeconfig: o.Kubeconfig},
		system:      &systemPods{Machine: m, node: content.Node, api: api},
		encryption:  &encryption{Machine: m, node: content.Node, api: api},
	}
	own := func() []string { return []string{strings.TrimPrefix(i.node.Config.LocalURL(), "https://")} }
	i.endpoint, i.registry = phases.NewEndpoint(i.node, own), phases.NewRegistry(i.api, own)
	i.node.CheckEarlier = func(ctx context.Context) error { return i.node.CheckRunning(ctx, o.FromFile) }
	i.controlPlane.Hold, i.controlPlane.MayRestart = i.holdsStaticPod, i.mayRestart
	return i
}

// Phases returns the steps of init, for the names of its phases.
func Phases() []workflow.Step {
	return newInit(&phases.Plan{Config: new(config.Config)}, phases.InitOptions{}, nil).Steps()
}

// Steps returns the steps of init in order.
func (i *Init) Steps() []workflow.Step {
	createKey, storeKey := i.encryption.steps(i.access.admin)
	return []workflow.Step{
		phases.NewPackages(i.node).Step(),
		{Name: "preflight", Doc: "run the preflight checks", Run: i.preflight, Reads: true},
		{Name: "unpack", Doc: "install the binaries from the bundle", Prepare: i.node.Ready, Desired: i.content.Desired, Apply: i.content.Unpack, Needed: true},
		{Name: "files", Doc: "write the site's own files", Desired: i.site.Desired, Apply: i.site.WriteEarly, Empty: len(i.node.Plan.SiteFiles()) == 0},
		{Name: "runtime", Doc: "prepare the kernel and start containerd", Desired: i.runtimeStep.Desired, Apply: i.prepareRuntime, Needed: true},
		i.files("certs", "create the certificates", i.controlPlane.Certs(), i.each(pki.Names(), i.controlPlane.Certs)...),
		i.files("kubeconfig", "create the kubeconfig files", i.kubeconfig(), i.each(pki.KubeconfigNames(), i.kubeconfig)...),
		createKey,
		{Name: "etcd", Doc: "write the static pod manifest of etcd", Steps: []workflow.Step{
			{Name: "local", Doc: "write the static pod manifest of a local etcd", Desired: i.etcd, Apply: i.applyEtcd},
		}},
		{Name: "control-plane", Doc: "write the control plane's static pod manifests", Steps: []workflow.Step{
			i.withProfile(i.staticPod("apiserver", "the API server")), i.staticPod("controller-manager", "the controller manager"), i.staticPod("scheduler", "the scheduler"),
		}},
		{Name: "images", Doc: "import the control plane's images", Run: i.images},
		{Name: "units", Doc: "start the site's own systemd units", Run: i.site.StartUnits, Empty: len(i.node.Plan.SiteUnits()) == 0},
		{Name: "endpoint", Doc: "start the balancer and the virtual address", Desired: i.endpoint.Desired, Apply: i.endpoint.Apply, Empty: !i.node.Config.Endpoint.Used()},
		{Name: "kubelet-start", Doc: "start the kubelet", Desired: i.kubeletFiles, Apply: i.startKubelet},
		{Name: "wait-control-plane", Doc: "wait for a healthy control plane", Prepare: i.access.client, Desired: i.clusterAdmins, Apply: i.waitControlPlane},
		{Name: "upload-config", Aliases: []string{"uploadconfig"}, Doc: "store the configuration in the cluster", Steps: []workflow.Step{
			{Name: "kubeadm", Doc: "store the ClusterConfiguration", Prepare: i.access.admin, Desired: i.api.Objects(render.UploadClusterConfig), Apply: i.api.Apply},
			{Name: "kubelet", Doc: "store the KubeletConfiguration", Prepare: i.access.admin, Desired: i.api.Objects(render.UploadKubeletConfig), Apply: i.uploadKubeletConfig},
			i.profileStep(),
			{Name: "endpoint", Doc: "store how nodes reach the API servers", Prepare: i.access.admin, Desired: i.api.Objects(render.UploadEndpoint), Apply: i.api.Apply, Empty: !i.node.Config.Endpoint.Used()},
			storeKey,
		}},
		{Name: "upload-certs", Doc: "store the encrypted certificates in the cluster", Prepare: i.access.admin, Run: i.credentials.uploadCerts},
		{Name: "mark-control-plane", Doc: "label and taint this node", Prepare: i.access.admin, Run: i.api.MarkControlPlane},
		{Name: "bootstrap-token", Aliases: []string{"bootstraptoken"}, Doc: "create the bootstrap token for joining nodes", Prepare: i.access.admin, Desired: i.api.Objects(i.credentials.bootstrapObjects), Apply: i.credentials.bootstrapToken},
		{Name: "kubelet-finalize", Doc: "check that the kubelet rotates its certificate", Steps: []workflow.Step{
			{Name: "enable-client-cert-rotation", Doc: "check that the kubelet rotates its certificate", Run: i.kubeletFinalize, Aliases: []string{"experimental-cert-rotation"}},
		}},
		{Name: "addon", Doc: "install CoreDNS, kube-proxy and the pod network", Steps: []workflow.Step{
			i.addons.Step("coredns", "install CoreDNS", i.access.admin),
			i.addons.Step("kube-proxy", "install kube-proxy", i.access.admin),
			i.addons.Step("flannel", "install flannel, if it is the pod network", i.access.admin),
		}},
		{Name: "pod-network", Doc: "connect this node to the pod network", Prepare: i.access.admin, Run: i.api.PodNetwork},
		registryStep(i),
		{Name: "manifests", Doc: "apply the site's own manifests", Desired: i.manifests.Desired, Apply: i.manifests.ApplyOrPrint(i.access.admin), Empty: len(i.node.Plan.SiteManifests()) == 0},
		{Name: "wait-node", Doc: "wait for the node and its system pods", Prepare: i.access.admin, Run: i.system.wait},
		{Name: "wait-manifests", Doc: "wait for the workloads of the site's manifests", Prepare: i.access.admin, Run: i.manifests.Alone(i.manifests.Wait), Empty: len(i.node.Plan.SiteManifests()) == 0},
		{Name: "show-join-command", Doc: "print the next steps", Prepare: i.access.admin, Run: i.credentials.show},
	}
}

// registryStep returns the step of the embedded registry, which most clusters do not have.
func registryStep(i *Init) workflow.Step {
	s := i.registry.Step(true, i.access.admin, func(d phases.Desired) phases.Desired { return d })
	s.Empty = !i.node.Config.Registry.Used
	return s
}

// files returns a step that writes files.
func (i *Init) files(name, doc string, files phases.Desired, steps ...workflow.Step) workflow.Step {
	return workflow.Step{Name: name, Doc: doc, Desired: files, Apply: i.node.Apply, Steps: steps}
}

// staticPod returns the step that writes the static pod of a component, which is "kube-" and the name of the step.
func (i *Init) staticPod(name, component string) workflow.Step {
	return workflow.Step{Name: name, Doc: "write the static pod manifest of " + component, Desired: i.controlPlane.StaticPods("kube-" + name), Apply: i.controlPlane.ApplyStaticPods}
}

// each returns one sub-phase that writes files for each name.
func (i *Init) each(names []string, files func(...string) phases.Desired) (steps []workflow.Step) {
	for _, name := range names {
		steps = append(steps, i.files(name, "create "+pki.Doc(name), files(name)))
	}
	return steps
}

// Run runs all steps except the skipped ones.
func (i *Init) Run(ctx context.Context) error {
	return workflow.Run(ctx, i.Console, i.Steps(), i.node.Plan.Config.SkipPhases)
}

// RunPhase waits for the check of the bundle file and runs one step alone.
func (i *Init) RunPhase(ctx context.Context, name string) error {
	if err := i.node.Plan.Bundle.Checked(ctx, i.Console); err != nil {
		return err
	}
	if err := node.UnfinishedRestore(i.Existing); err != nil {
		return err
	}
	return workflow.RunPhase(ctx, i.Console, i.Steps(), name)
}

// Close stops everything that runs in the background.
func (i *Init) Close() {
	i.turn.End()
	i.manifests.Close()
	i.content.Close()
	i.node.Close()
}

// Preflight reports everything that prevents this host from becoming a control
// plane. It changes nothing.
func (i *Init) Preflight(ctx context.Context) (preflight.Report, error) {
	if err := i.node.Inspect(ctx); err != nil {
		return preflight.Report{}, err
	}
	kubelet, err := render.KubeletConfig(i.node.Config)
	if err != nil {
		return preflight.Report{}, err
	}
	return i.node.CheckHost(ctx, kubelet)
}

func (i *Init) preflight(ctx context.Context) error {
	report, err := i.Preflight(ctx)
	i.node.Warn(report)
	return err
}

func (i *Init) prepareRuntime(ctx context.Context, l desired.List) error {
	kubelet, err := render.KubeletConfig(i.node.Config)
	if err != nil {
		return err
	}
	return i.runtimeStep.Apply(ctx, l, i.proxyConfig(), kubelet, false)
}

// proxyConfig returns the user's kube-proxy configuration. It returns nil if
// there is none or if kube-proxy is not installed.
func (i *Init) proxyConfig() *kubeproxyv1.KubeProxyConfiguration {
	if i.node.Config.Proxy.Disabled || i.node.Plan.Skips("addon/kube-proxy") {
		return nil
	}
	return i.node.Config.KubeProxy
}

func (i *Init) kubeconfig(names ...string) phases.Desired {
	return i.controlPlane.Kubeconfig(i.kubeconfigs, names...)
}

// etcd returns the static pod of etcd, nothing if etcd is external.
func (i *Init) etcd(context.Context) (desired.List, error) {
	if i.node.Config.Etcd.External != nil {
		i.Console.Note("external etcd: nothing to do")
		return desired.List{}, nil
	}
	return i.controlPlane.Etcd()
}

func (i *Init) applyEtcd(ctx context.Context, l desired.List) error {
	if len(l.Files) == 0 {
		return nil
	}
	if err := i.controlPlane.ApplyEtcd(ctx, l, true); err != nil {
		return err
	}
	return i.controlPlane.WaitAlone(ctx)
}

// mayRestart waits until no other control plane restarts its components, and fails if a component must
// not be restarted now.
func (i *Init) mayRestart(ctx context.Context, component string) (err error) {
	if i.turn == nil {
		i.turn, err = node.TryTurn(ctx, i.Machine, node.AdminConf, 0)
	}
	if err != nil || component != node.EtcdPod {
		return err
	}
	return i.CheckQuorum(ctx)
}

// holdsStaticPod reports whether a static pod's manifest is written only when the
// API server answers, in the step wait-control-plane.
func (i *Init) holdsStaticPod(pod pki.File) bool {
	return i.content.Stream != nil && !i.node.Plan.OnePhase && phases.IsAPIClient(pod) && !i.node.Plan.Skips("wait-control-plane")
}

// images waits for the control plane's images. The kubelet starts afterwards:
// for a pod without its image it would try to pull it, and wait ten seconds
// before it tries again.
func (i *Init) images(ctx context.Context) error {
	return i.content.WaitImages(ctx, append([]string{"pause", "etcd"}, node.ControlPlaneComponents...)...)
}

// kubeletFiles returns the files of the kubelet.
func (i *Init) kubeletFiles(context.Context) (desired.List, error) {
	cluster, err := render.KubeletConfig(i.node.Config)
	if err != nil {
		return desired.List{}, err
	}
	return i.kubelet.Desired(cluster)
}

func (i *Init) startKubelet(ctx context.Context, l desired.List) error {
	if err := i.kubelet.Start(ctx, l); err != nil {
		return err
	}
	return i.node.WaitKubelet(ctx)
}

// clusterAdmins returns what makes the user of admin.conf an administrator.
func (i *Init) clusterAdmins(context.Context) (desired.List, error) {
	return desired.List{Objects: []runtime.Object{render.ClusterAdmins()}}, nil
}

// waitControlPlane waits for the API and makes the user of admin.conf an
// administrator. It uses this host's own API address, because a load balancer
// or virtual IP may not be ready yet.
func (i *Init) waitControlPlane(ctx context.Context, l desired.List) error {
	i.system.written = time.Now()
	superAdmin, err := i.access.superAdmin()
	if err != nil {
		return err
	}
	if err := i.controlPlane.ReplacePods(ctx, i.api.Client); err != nil {
		return err
	}
	if err := i.controlPlane.WaitReplaced(ctx); err != nil {
		return err
	}
	err = i.node.Watch.Watched(ctx, i.node.LocalAPI(), func(ctx context.Context) error {
		return i.api.Client.WaitForAPI(ctx, i.node.Config.APIServer.TimeoutForControlPlane, i.Report)
	})
	if err != nil {
		return err
	}
	if err := i.Applied(cluster.EnsureAdmin(ctx, i.api.Client, superAdmin, l.Objects[0])); err != nil {
		return err
	}
	begun, err := rotation.HadControllerManager(ctx, i.api.Client.API)
	if err != nil {
		return err
	}
	if err := i.controlPlane.PlaceHeld(ctx); err != nil {
		return err
	}
	if !begun {
		if err := rotation.EnsureControllerAccounts(ctx, i.api.Client.API); err != nil {
			return err
		}
	}
	return i.controlPlane.WaitReplaced(ctx)
}

func (i *Init) uploadKubeletConfig(ctx context.Context, l desired.List) error {
	if err := i.api.Apply(ctx, l); err != nil {
		return err
	}
	return i.api.Registered(ctx)
}

// kubeletFinalize only warns if the kubelet cannot renew its certificate. In
// this step kubeadm changes kubelet.conf to the rotated certificate and
// restarts the kubelet. Airlift's kubelet.conf names the rotated certificate
// from the start. If the user provided kubelet.conf, signed by an external CA,
// it does not change.
func (i *Init) kubeletFinalize(context.Context) error {
	data, err := os.ReadFile(i.Host.Path(node.KubeletConf))
	if err != nil {
		return err
	}
	if !strings.Contains(string(data), pki.KubeletCertFile(i.node.Config)) {
		i.Console.Warn("%s already contains a certificate, which the kubelet does not renew: see './install certs check-expiration'", node.KubeletConf)
	}
	return nil
}
