package render

import (
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"airlift/installer/config"
)

// caDirs may contain the CA certificates to which /etc/ssl/certs links.
func caDirs(cfg *config.Config) []string {
	dirs := []string{"/usr/share/ca-certificates", "/usr/local/share/ca-certificates", "/etc/ca-certificates"}
	if minor(cfg) >= narrowPKIFrom {
		return append(dirs, "/etc/pki/ca-trust", "/etc/pki/tls/certs")
	}
	return append(dirs, "/etc/pki")
}

// ControlPlane returns the static pods kube-apiserver, kube-controller-manager
// and kube-scheduler. host is the host's root: some mounts depend on existing
// directories, and the signing flags on the CA's key.
func ControlPlane(cfg *config.Config, host fs.FS) (map[string]*corev1.Pod, error) {
	pods := map[string]*corev1.Pod{}
	for _, build := range []func(*config.Config, fs.FS) (*corev1.Pod, error){apiServer, controllerManager, scheduler} {
		pod, err := build(cfg, host)
		if err != nil {
			return nil, err
		}
		pods[pod.Name] = pod
	}
	return pods, nil
}

func apiServer(cfg *config.Config, host fs.FS) (*corev1.Pod, error) {
	const name = "kube-apiserver"
	img, err := image(cfg, name)
	if err != nil {
		return nil, err
	}
	pki := func(file string) string { return path.Join(cfg.CertificatesDir, file) }
	own := cfg.LocalAPIEndpoint
	args := []config.Arg{
		{Name: "advertise-address", Value: own.AdvertiseAddress},
		{Name: "allow-privileged", Value: "true"},
		{Name: "client-ca-file", Value: pki("ca.crt")},
		{Name: "enable-admission-plugins", Value: "NodeRestriction"},
		{Name: "enable-bootstrap-token-auth", Value: "true"},
		{Name: "kubelet-client-certificate", Value: pki("apiserver-kubelet-client.crt")},
		{Name: "kubelet-client-key", Value: pki("apiserver-kubelet-client.key")},
		{Name: "kubelet-preferred-address-types", Value: "InternalIP,ExternalIP,Hostname"},
		{Name: "proxy-client-cert-file", Value: pki("front-proxy-client.crt")},
		{Name: "proxy-client-key-file", Value: pki("front-proxy-client.key")},
		{Name: "requestheader-allowed-names", Value: "front-proxy-client"},
		{Name: "requestheader-client-ca-file", Value: pki("front-proxy-ca.crt")},
		{Name: "requestheader-extra-headers-prefix", Value: "X-Remote-Extra-"},
		{Name: "requestheader-group-headers", Value: "X-Remote-Group"},
		{Name: "requestheader-username-headers", Value: "X-Remote-User"},
		{Name: "secure-port", Value: strconv.Itoa(int(own.BindPort))},
		{Name: "service-account-issuer", Value: "https://kubernetes.default.svc." + cfg.Networking.DNSDomain},
		{Name: "service-account-key-file", Value: pki("sa.pub")},
		{Name: "service-account-signing-key-file", Value: pki("sa.key")},
		{Name: "service-cluster-ip-range", Value: cfg.Networking.ServiceSubnet.String()},
		{Name: "tls-cert-file", Value: pki("apiserver.crt")},
		{Name: "tls-private-key-file", Value: pki("apiserver.key")},
	}
	if _, structured := last(cfg.APIServer.ExtraArgs, "authorization-config"); !structured || minor(cfg) < authorizationUnrecordedFrom {
		args = append(args, config.Arg{Name: "authorization-mode", Value: defaultAuthorizationMode})
	}
	m := controlPlaneMounts(cfg, host)
	if external := cfg.Etcd.External; external != nil {
		args = append(args, config.Arg{Name: "etcd-servers", Value: strings.Join(external.Endpoints, ",")})
		if external.CAFile != "" {
			args = append(args, config.Arg{Name: "etcd-cafile", Value: external.CAFile})
		}
		if external.CertFile != "" && external.KeyFile != "" {
			args = append(args,
				config.Arg{Name: "etcd-certfile", Value: external.CertFile},
				config.Arg{Name: "etcd-keyfile", Value: external.KeyFile})
		}
		for i, dir := range etcdCertDirs(cfg) {
			m.add(fmt.Sprintf("etcd-certs-%d", i), dir, true, corev1.HostPathDirectoryOrCreate)
		}
	} else {
		servers := "https://" + net.JoinHostPort(cfg.LocalAPIEndpoint.Loopback(), strconv.Itoa(config.EtcdClientPort))
		if urls, ok := last(cfg.Etcd.Local.ExtraArgs, "advertise-client-urls"); ok {
			servers = merge(servers, urls)
		}
		args = append(args,
			config.Arg{Name: "etcd-servers", Value: servers},
			config.Arg{Name: "etcd-cafile", Value: pki("etcd/ca.crt")},
			config.Arg{Name: "etcd-certfile", Value: pki("apiserver-etcd-client.crt")},
			config.Arg{Name: "etcd-keyfile", Value: pki("apiserver-etcd-client.key")})
	}
	m.extra(cfg.APIServer.ExtraVolumes)
	volumes, inside := m.volumes()

	at := endpointAt(cfg, own.AdvertiseAddress, own.BindPort, corev1.URISchemeHTTPS)
	return staticPod(corev1.Container{
		Name:           name,
		Image:          img,
		Command:        command(cfg, name, args, cfg.APIServer.ExtraArgs),
		Env:            cfg.APIServer.ExtraEnvs,
		Ports:          at.ports(),
		Resources:      requests("250m", ""),
		LivenessProbe:  at.liveness("/livez"),
		ReadinessProbe: at.readiness("/readyz"),
		StartupProbe:   at.startup("/livez", startupTimeout(cfg)),
		VolumeMounts:   inside,
	}, volumes, map[string]string{
		"kubeadm.kubernetes.io/kube-apiserver.advertise-address.endpoint": net.JoinHostPort(own.AdvertiseAddress, strconv.Itoa(int(own.BindPort))),
	}), nil
}

const defaultAuthorizationMode = "Node,RBAC"

// DefaultFlexVolumeDir is where the kubelet and the controller manager look for flex volume plugins
// (pkg/volume/flexvolume). The kubelet creates it if it can.
const DefaultFlexVolumeDir = "/usr/libexec/kubernetes/kubelet-plugins/volume/exec"

// FlexVolumeDir is the directory of flex volume plugins that the controller manager mounts, and that
// must therefore exist. It is empty if the version mounts none.
func FlexVolumeDir(cfg *config.Config) string {
	if minor(cfg) >= flexVolumeGoneFrom {
		return ""
	}
	if dir, ok := last(cfg.ControllerManager.ExtraArgs, "flex-volume-plugin-dir"); ok {
		return dir.Value
	}
	return DefaultFlexVolumeDir
}

func controllerManager(cfg *config.Config, host fs.FS) (*corev1.Pod, error) {
	const name = "kube-controller-manager"
	img, err := image(cfg, name)
	if err != nil {
		return nil, err
	}
	kubeconfig := path.Join(config.KubernetesDir, "controller-manager.conf")
	ca, caKey := path.Join(cfg.CertificatesDir, "ca.crt"), path.Join(cfg.CertificatesDir, "ca.key")
	signingCert, signingKey := ca, caKey
	if exists(host, ca) && !exists(host, caKey) {
		// The CA is external: empty paths disable the controller that
		// signs certificates.
		signingCert, signingKey = "", ""
	}
	args := []config.Arg{
		{Name: "authentication-kubeconfig", Value: kubeconfig},
		{Name: "authorization-kubeconfig", Value: kubeconfig},
		{Name: "bind-address", Value: "127.0.0.1"},
		{Name: "client-ca-file", Value: ca},
		{Name: "cluster-name", Value: cfg.ClusterName},
		{Name: "cluster-signing-cert-file", Value: signingCert},
		{Name: "cluster-signing-key-file", Value: signingKey},
		{Name: "controllers", Value: "*,bootstrapsigner,tokencleaner"},
		{Name: "kubeconfig", Value: kubeconfig},
		{Name: "leader-elect", Value: "true"},
		{Name: "requestheader-client-ca-file", Value: path.Join(cfg.CertificatesDir, "front-proxy-ca.crt")},
		{Name: "root-ca-file", Value: ca},
		{Name: "service-account-private-key-file", Value: path.Join(cfg.CertificatesDir, "sa.key")},
		{Name: "use-service-account-credentials", Value: "true"},
	}
	if !cfg.Networking.PodSubnet.Empty() {
		args = append(args,
			config.Arg{Name: "allocate-node-cidrs", Value: "true"},
			config.Arg{Name: "cluster-cidr", Value: cfg.Networking.PodSubnet.String()},
			config.Arg{Name: "service-cluster-ip-range", Value: cfg.Networking.ServiceSubnet.String()})
	}

	m := controlPlaneMounts(cfg, host)
	m.add("kubeconfig", kubeconfig, true, corev1.HostPathFileOrCreate)
	if plugins := FlexVolumeDir(cfg); plugins != "" {
		// Writable, because third-party volume plugins create sockets here.
		m.add("flexvolume-dir", plugins, false, corev1.HostPathDirectoryOrCreate)
	}
	m.extra(cfg.ControllerManager.ExtraVolumes)
	volumes, inside := m.volumes()

	at := healthz(cfg, cfg.ControllerManager, config.ControllerManagerPort)
	return staticPod(corev1.Container{
		Name:          name,
		Image:         img,
		Command:       command(cfg, name, args, cfg.ControllerManager.ExtraArgs),
		Env:           cfg.ControllerManager.ExtraEnvs,
		Ports:         at.ports(),
		Resources:     requests("200m", ""),
		LivenessProbe: at.liveness("/healthz"),
		StartupProbe:  at.startup("/healthz", startupTimeout(cfg)),
		VolumeMounts:  inside,
	}, volumes, nil), nil
}

func scheduler(cfg *config.Config, _ fs.FS) (*corev1.Pod, error) {
	const name = "kube-scheduler"
	img, err := image(cfg, name)
	if err != nil {
		return nil, err
	}
	kubeconfig := path.Join(config.KubernetesDir, "scheduler.conf")
	args := []config.Arg{
		{Name: "authentication-kubeconfig", Value: kubeconfig},
		{Name: "authorization-kubeconfig", Value: kubeconfig},
		{Name: "bind-address", Value: "127.0.0.1"},
		{Name: "kubeconfig", Value: kubeconfig},
		{Name: "leader-elect", Value: "true"},
	}
	m := mounts{}
	m.add("kubeconfig", kubeconfig, true, corev1.HostPathFileOrCreate)
	m.extra(cfg.Scheduler.ExtraVolumes)
	volumes, inside := m.volumes()

	at := healthz(cfg, cfg.Scheduler, config.SchedulerPort)
	c := corev1.Container{
		Name:         name,
		Image:        img,
		Command:      command(cfg, name, args, cfg.Scheduler.ExtraArgs),
		Env:          cfg.Scheduler.ExtraEnvs,
		Ports:        at.ports(),
		Resources:    requests("100m", ""),
		VolumeMounts: inside,
	}
	live := "/healthz"
	if minor(cfg) >= schedulerLivezFrom {
		live = "/livez"
		c.ReadinessProbe = at.readiness("/readyz")
	}
	c.LivenessProbe, c.StartupProbe = at.liveness(live), at.startup(live, startupTimeout(cfg))
	return staticPod(c, volumes, nil), nil
}

// healthz is the probe endpoint of the controller manager or the scheduler: at
// bind-address, if the user gave one.
func healthz(cfg *config.Config, c config.Component, port int32) endpoint {
	host := "127.0.0.1"
	if bind, ok := last(c.ExtraArgs, "bind-address"); ok {
		host = bind.Value
	}
	return endpointAt(cfg, host, port, corev1.URISchemeHTTPS)
}

// startupTimeout is how long the control plane may take to start.
func startupTimeout(cfg *config.Config) time.Duration {
	if t := cfg.Timeouts.ControlPlaneComponentHealthCheck; t != 0 {
		return t
	}
	return cfg.APIServer.TimeoutForControlPlane
}

// controlPlaneMounts are the mounts that the API server and the controller
// manager share.
func controlPlaneMounts(cfg *config.Config, host fs.FS) mounts {
	m := mounts{}
	m.add("k8s-certs", cfg.CertificatesDir, true, corev1.HostPathDirectoryOrCreate)
	m.add("ca-certs", "/etc/ssl/certs", true, corev1.HostPathDirectoryOrCreate)
	for _, dir := range caDirs(cfg) {
		if exists(host, dir) {
			m.add(strings.ReplaceAll(dir[1:], "/", "-"), dir, true, corev1.HostPathDirectoryOrCreate)
		}
	}
	return m
}

// etcdCertDirs are the directories to mount for the certificates of an external etcd, without
// nested directories and without directories that are mounted anyway.
func etcdCertDirs(cfg *config.Config) []string {
	external := cfg.Etcd.External
	mounted := append([]string{"/etc/ssl/certs", cfg.CertificatesDir}, caDirs(cfg)...)
	var dirs []string
	for _, file := range []string{external.CAFile, external.CertFile, external.KeyFile} {
		dir := path.Dir(file)
		inside := func(parent string) bool { return strings.HasPrefix(dir, parent) }
		if file == "" || slices.ContainsFunc(mounted, inside) || slices.ContainsFunc(dirs, inside) {
			continue
		}
		dirs = slices.DeleteFunc(dirs, func(d string) bool { return strings.HasPrefix(d, dir) })
		dirs = append(dirs, dir)
	}
	slices.Sort(dirs)
	return dirs
}

func isIPv6(address string) bool {
	ip, err := netip.ParseAddr(address)
	return err == nil && ip.Is6() && !ip.Is4In6()
}

func exists(host fs.FS, absolute string) bool {
	_, err := fs.Stat(host, strings.TrimPrefix(absolute, "/"))
	return err == nil
}

func sortedKeys[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}
