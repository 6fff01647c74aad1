package config

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// V1Beta4From is the first minor version whose kubeadm writes v1beta4; earlier
// ones write v1beta3. No version writes v1 yet, which v1.37 can read
// (MigrateOldConfig in util/config/common.go).
const V1Beta4From = 31

// APIVersion is the version of kubeadm's API that the kubeadm of a Kubernetes
// version writes: "v1beta3" for "v1.29.15".
func APIVersion(kubernetes string) string {
	c := Cluster{KubernetesVersion: kubernetes}
	if minor := c.Minor(); minor > 0 && minor < V1Beta4From {
		return "v1beta3"
	}
	return "v1beta4"
}

// NewerAPI is the newer of two versions of kubeadm's API.
func NewerAPI(a, b string) string {
	return apiVersions[max(slices.Index(apiVersions, a), slices.Index(apiVersions, b))]
}

// WriteInit returns the Config as an InitConfiguration and a ClusterConfiguration
// in that version of kubeadm's API, without fields that the version does not have.
func (c *Config) WriteInit(api string) ([]byte, error) {
	in := initConfiguration{
		TypeMeta:         typeMeta("InitConfiguration", api),
		DryRun:           c.DryRun,
		NodeRegistration: c.NodeRegistration.wire(api),
		LocalAPIEndpoint: wireAPIEndpoint(c.LocalAPIEndpoint),
		CertificateKey:   c.CertificateKey,
		SkipPhases:       c.SkipPhases,
		Patches:          patchesIn(c.Patches),
		Timeouts:         c.Timeouts.wire(),
	}
	for _, t := range c.BootstrapTokens {
		token := wireToken{Token: &t.Token, Description: t.Description, Usages: t.Usages, Groups: t.Groups}
		if t.Expires.IsZero() {
			token.TTL = &metav1.Duration{Duration: t.TTL}
		} else {
			token.Expires = &metav1.Time{Time: t.Expires}
		}
		in.BootstrapTokens = append(in.BootstrapTokens, token)
	}
	return write(api, &in, c.Cluster.wire(api))
}

// Write returns the ClusterConfiguration alone, in the version that the kubeadm of
// its Kubernetes writes. httpEndpoints: that kubeadm knows etcd.external.httpEndpoints.
func (c *Cluster) Write(httpEndpoints bool) ([]byte, error) {
	api := APIVersion(c.KubernetesVersion)
	out := c.wire(api)
	if out.Etcd.External != nil && !httpEndpoints {
		out.Etcd.External.HTTPEndpoints = nil
	}
	return write(api, out)
}

// WriteJoin returns the Config as a JoinConfiguration.
func (c *Config) WriteJoin(api string) ([]byte, error) {
	d := c.Discovery
	join := joinConfiguration{
		TypeMeta:         typeMeta("JoinConfiguration", api),
		DryRun:           c.DryRun,
		NodeRegistration: c.NodeRegistration.wire(api),
		CACertPath:       c.CACertPath,
		Discovery:        wireDiscovery{TLSBootstrapToken: d.TLSBootstrapToken, Timeout: durationIn(c.Timeouts.Discovery)},
		SkipPhases:       c.SkipPhases,
		Patches:          patchesIn(c.Patches),
		Timeouts:         c.Timeouts.wire(),
	}
	if d.File != "" {
		join.Discovery.File = &wireFileDiscovery{KubeConfigPath: d.File}
	} else {
		join.Discovery.BootstrapToken = &wireTokenDiscovery{
			Token: d.Token, APIServerEndpoint: d.APIServerEndpoint,
			CACertHashes: d.CACertHashes, UnsafeSkipCAVerification: d.UnsafeSkipCAVerification,
		}
	}
	if c.ControlPlane {
		join.ControlPlane = &wireJoinControlPlane{LocalAPIEndpoint: wireAPIEndpoint(c.LocalAPIEndpoint), CertificateKey: c.CertificateKey}
	}
	return write(api, &join)
}

// Write returns the Reset as a ResetConfiguration, in v1beta4 or newer: v1beta3
// has none.
func (r *Reset) Write(api string) ([]byte, error) {
	api = NewerAPI(api, "v1beta4")
	return write(api, &resetConfiguration{
		TypeMeta:              typeMeta("ResetConfiguration", api),
		CleanupTmpDir:         r.CleanupTmpDir,
		CertificatesDir:       r.CertificatesDir,
		CRISocket:             r.CRISocket,
		DryRun:                r.DryRun,
		Force:                 r.Force,
		IgnorePreflightErrors: r.IgnorePreflightErrors,
		SkipPhases:            r.SkipPhases,
		UnmountFlags:          r.UnmountFlags,
		Timeouts:              r.Timeouts.wire(),
	})
}

// Write returns the UpgradeConfiguration with kubeadm's defaults, in v1beta4 or
// newer.
func (u *Upgrade) Write(api string) ([]byte, error) {
	api = NewerAPI(api, "v1beta4")
	out := u.wire
	out.TypeMeta = typeMeta("UpgradeConfiguration", api)
	for _, b := range []**bool{
		&out.Apply.EtcdUpgrade, &out.Apply.CertificateRenewal, &out.Apply.ImagePullSerial, &out.Plan.EtcdUpgrade,
		&out.Node.EtcdUpgrade, &out.Node.CertificateRenewal, &out.Node.ImagePullSerial,
	} {
		if *b == nil {
			yes := true
			*b = &yes
		}
	}
	setDefault(&out.Apply.ImagePullPolicy, corev1.PullIfNotPresent)
	setDefault(&out.Node.ImagePullPolicy, corev1.PullIfNotPresent)
	s := &source{lines: map[string]int{}}
	timeouts := s.timeouts("", out.Timeouts)
	timeouts.complete()
	out.Timeouts = timeouts.wire()
	return write(api, &out)
}

// write encodes documents as YAML, without the fields that the version does not
// have.
func write(api string, docs ...any) ([]byte, error) {
	var out [][]byte
	for _, doc := range docs {
		data, err := json.Marshal(doc)
		if err != nil {
			return nil, err
		}
		var fields map[string]any
		numbers := json.NewDecoder(bytes.NewReader(data))
		numbers.UseNumber()
		if err := numbers.Decode(&fields); err != nil {
			return nil, err
		}
		prune(reflect.TypeOf(doc), fields, api)
		if data, err = yaml.Marshal(fields); err != nil {
			return nil, err
		}
		out = append(out, data)
	}
	return bytes.Join(out, []byte("---\n")), nil
}

// prune removes the fields that a version does not have.
func prune(t reflect.Type, value any, api string) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch v := value.(type) {
	case []any:
		if t == reflect.TypeFor[wireArgs]() {
			t = reflect.TypeFor[[]wireArg]()
		}
		for _, item := range v {
			prune(t.Elem(), item, api)
		}
	case map[string]any:
		if t.Kind() != reflect.Struct || t == reflect.TypeFor[wireArgs]() {
			return
		}
		fields := fieldsOf(t)
		for name, inner := range v {
			if !within(fields[name].Tag.Get("kubeadm"), api) {
				delete(v, name)
			} else if fields[name].Type != nil {
				prune(fields[name].Type, inner, api)
			}
		}
	}
}

func typeMeta(kind, api string) metav1.TypeMeta {
	return metav1.TypeMeta{Kind: kind, APIVersion: kubeadmGroup + "/" + api}
}

func (c *Cluster) wire(api string) *clusterConfiguration {
	out := &clusterConfiguration{
		TypeMeta: typeMeta("ClusterConfiguration", api),
		Networking: wireNetworking{
			ServiceSubnet: c.Networking.ServiceSubnet.String(), PodSubnet: c.Networking.PodSubnet.String(), DNSDomain: c.Networking.DNSDomain,
		},
		KubernetesVersion:    c.KubernetesVersion,
		ControlPlaneEndpoint: c.ControlPlaneEndpoint,
		APIServer: wireAPIServer{
			wireComponent: c.APIServer.wire(api), CertSANs: c.APIServer.CertSANs,
			TimeoutForControlPlane: durationIn(c.APIServer.TimeoutForControlPlane),
		},
		ControllerManager:           c.ControllerManager.wire(api),
		Scheduler:                   c.Scheduler.wire(api),
		DNS:                         wireDNS{wireImage(c.DNS.ImageMeta), c.DNS.Disabled},
		Proxy:                       wireProxy(c.Proxy),
		CertificatesDir:             c.CertificatesDir,
		ImageRepository:             c.ImageRepository,
		FeatureGates:                c.FeatureGates,
		ClusterName:                 c.ClusterName,
		EncryptionAlgorithm:         c.EncryptionAlgorithm,
		CertificateValidityPeriod:   durationIn(c.CertificateValidityPeriod),
		CACertificateValidityPeriod: durationIn(c.CACertificateValidityPeriod),
	}
	if x := c.Etcd.External; x != nil {
		out.Etcd.External = &wireExternalEtcd{
			Endpoints: x.Endpoints, HTTPEndpoints: x.HTTPEndpoints, CAFile: x.CAFile, CertFile: x.CertFile, KeyFile: x.KeyFile,
		}
		if len(x.HTTPEndpoints) == 0 {
			out.Etcd.External.HTTPEndpoints = x.Endpoints // as kubeadm fills it in
		}
	} else {
		l := c.Etcd.Local
		out.Etcd.Local = &wireLocalEtcd{
			wireImage: wireImage(l.ImageMeta), DataDir: l.DataDir, ExtraArgs: argsIn(l.ExtraArgs, api), ExtraEnvs: l.ExtraEnvs,
			ServerCertSANs: l.ServerCertSANs, PeerCertSANs: l.PeerCertSANs,
		}
	}
	return out
}

func (c Component) wire(api string) wireComponent {
	out := wireComponent{ExtraArgs: argsIn(c.ExtraArgs, api), ExtraEnvs: c.ExtraEnvs}
	for _, m := range c.ExtraVolumes {
		out.ExtraVolumes = append(out.ExtraVolumes, wireMount(m))
	}
	return out
}

func (n NodeRegistration) wire(api string) wireNodeRegistration {
	return wireNodeRegistration{
		Name: n.Name, CRISocket: n.CRISocket, Taints: n.Taints, KubeletExtraArgs: argsIn(n.KubeletExtraArgs, api),
		IgnorePreflightErrors: n.IgnorePreflightErrors, ImagePullPolicy: n.ImagePullPolicy, ImagePullSerial: n.ImagePullSerial,
	}
}

func (t Timeouts) wire() *wireTimeouts {
	return &wireTimeouts{
		ControlPlaneComponentHealthCheck: durationIn(t.ControlPlaneComponentHealthCheck),
		KubeletHealthCheck:               durationIn(t.KubeletHealthCheck),
		KubernetesAPICall:                durationIn(t.KubernetesAPICall),
		EtcdAPICall:                      durationIn(t.EtcdAPICall),
		TLSBootstrap:                     durationIn(t.TLSBootstrap),
		Discovery:                        durationIn(t.Discovery),
		UpgradeManifests:                 durationIn(t.UpgradeManifests),
	}
}

func argsIn(args []Arg, api string) wireArgs {
	out := wireArgs{isMap: api == "v1beta3"}
	for _, a := range args {
		out.list = append(out.list, wireArg(a))
	}
	return out
}

func patchesIn(directory string) *wirePatches {
	if directory == "" {
		return nil
	}
	return &wirePatches{directory}
}

// durationIn returns nil for zero, which means the default.
func durationIn(d time.Duration) *metav1.Duration {
	if d == 0 {
		return nil
	}
	return &metav1.Duration{Duration: d}
}
