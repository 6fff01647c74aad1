package render

import (
	"net"
	"net/url"
	"path"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"airlift/installer/config"
)

// An EtcdMember is a member of a cluster that a new etcd joins.
type EtcdMember struct{ Name, PeerURL string }

// Etcd returns the static pod of etcd. Without members it starts a new cluster;
// otherwise it joins the cluster with these members, which include this node.
func Etcd(cfg *config.Config, members ...EtcdMember) (*corev1.Pod, error) {
	const name = "etcd"
	img, err := image(cfg, name)
	if err != nil {
		return nil, err
	}
	certs := path.Join(cfg.CertificatesDir, "etcd")
	client, peer := EtcdClientURL(cfg), EtcdPeerURL(cfg)
	args := []config.Arg{
		{Name: "advertise-client-urls", Value: client},
		{Name: "cert-file", Value: certs + "/server.crt"},
		{Name: "client-cert-auth", Value: "true"},
		{Name: "data-dir", Value: cfg.Etcd.Local.DataDir},
		{Name: "initial-advertise-peer-urls", Value: peer},
		{Name: "key-file", Value: certs + "/server.key"},
		{Name: "listen-client-urls", Value: "https://" + net.JoinHostPort(cfg.LocalAPIEndpoint.Loopback(), strconv.Itoa(config.EtcdClientPort)) + "," + client},
		{Name: "listen-metrics-urls", Value: "http://" + net.JoinHostPort(cfg.LocalAPIEndpoint.Loopback(), strconv.Itoa(config.EtcdMetricsPort))},
		{Name: "listen-peer-urls", Value: peer},
		{Name: "name", Value: cfg.NodeRegistration.Name},
		{Name: "peer-cert-file", Value: certs + "/peer.crt"},
		{Name: "peer-client-cert-auth", Value: "true"},
		{Name: "peer-key-file", Value: certs + "/peer.key"},
		{Name: "peer-trusted-ca-file", Value: certs + "/ca.crt"},
		{Name: "snapshot-count", Value: "10000"},
		{Name: "trusted-ca-file", Value: certs + "/ca.crt"},
	}
	if etcd36(cfg) {
		args = append(args,
			config.Arg{Name: "feature-gates", Value: "InitialCorruptCheck=true"},
			config.Arg{Name: "watch-progress-notify-interval", Value: "5s"})
	} else {
		args = append(args,
			config.Arg{Name: "experimental-initial-corrupt-check", Value: "true"},
			config.Arg{Name: "experimental-watch-progress-notify-interval", Value: "5s"})
	}
	if len(members) == 0 {
		args = append(args, config.Arg{Name: "initial-cluster", Value: cfg.NodeRegistration.Name + "=" + peer})
	} else {
		var cluster []string
		for _, m := range members {
			cluster = append(cluster, m.Name+"="+m.PeerURL)
		}
		args = append(args,
			config.Arg{Name: "initial-cluster", Value: strings.Join(cluster, ",")},
			config.Arg{Name: "initial-cluster-state", Value: "existing"})
	}

	m := mounts{}
	m.add("etcd-data", cfg.Etcd.Local.DataDir, false, corev1.HostPathDirectoryOrCreate)
	m.add("etcd-certs", certs, false, corev1.HostPathDirectoryOrCreate)
	volumes, inside := m.volumes()

	at := etcdProbe(cfg)
	c := corev1.Container{
		Name:         name,
		Image:        img,
		Command:      command(cfg, name, args, cfg.Etcd.Local.ExtraArgs),
		Env:          cfg.Etcd.Local.ExtraEnvs,
		Ports:        at.ports(),
		Resources:    requests("100m", "100Mi"),
		VolumeMounts: inside,
	}
	if minor(cfg) >= etcdLivezFrom {
		c.LivenessProbe, c.ReadinessProbe = at.liveness("/livez"), at.readiness("/readyz")
		c.StartupProbe = at.startup("/readyz", startupTimeout(cfg))
	} else {
		// A full database still answers reads, and a restart would not help.
		c.LivenessProbe = at.liveness("/health?exclude=NOSPACE&serializable=true")
		c.StartupProbe = at.startup("/health?serializable=false", startupTimeout(cfg))
	}
	// The kubelet updates a static pod's status in the API when the pod starts
	// and when a probe's result changes, otherwise only after a minute. etcd
	// starts three to five seconds before the API server: with this delay, the
	// probe's first success comes when the API server already answers.
	c.StartupProbe.InitialDelaySeconds = 8
	return staticPod(c, volumes, map[string]string{"kubeadm.kubernetes.io/etcd.advertise-client-urls": client}), nil
}

// EtcdClientURL is the URL of this node's etcd for API servers.
func EtcdClientURL(cfg *config.Config) string { return etcdURL(cfg, config.EtcdClientPort) }

// EtcdPeerURL is the URL of this node's etcd for other members.
func EtcdPeerURL(cfg *config.Config) string { return etcdURL(cfg, config.EtcdPeerPort) }

func etcdURL(cfg *config.Config, port int) string {
	return "https://" + net.JoinHostPort(cfg.LocalAPIEndpoint.AdvertiseAddress, strconv.Itoa(port))
}

// etcdProbe is the first URL in the user's listen-metrics-urls, with defaults for
// its missing parts.
func etcdProbe(cfg *config.Config) endpoint {
	at := endpointAt(cfg, cfg.LocalAPIEndpoint.Loopback(), config.EtcdMetricsPort, corev1.URISchemeHTTP)
	urls, _ := last(cfg.Etcd.Local.ExtraArgs, "listen-metrics-urls")
	first, _, _ := strings.Cut(urls.Value, ",")
	u, err := url.Parse(first)
	if err != nil || first == "" {
		return at
	}
	if u.Scheme == "https" {
		at.scheme = corev1.URISchemeHTTPS
	}
	if u.Hostname() != "" {
		at.host = u.Hostname()
	}
	if port, err := strconv.ParseUint(u.Port(), 10, 16); err == nil && port > 0 {
		at.port = int32(port)
	}
	return at
}
