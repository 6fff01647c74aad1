package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// DecodeClusterConfiguration reads kubeadm's ClusterConfiguration, v1beta3,
// v1beta4 or v1, as in a config file or in the ConfigMap kubeadm-config.
// Nothing is defaulted.
//
// Warnings name fields that do not exist in that version, or that Airlift does
// not know: a person's config file should be refused with them, a cluster's
// ConfigMap, which a newer tool may have written, should not.
func DecodeClusterConfiguration(data []byte) (cluster Cluster, warnings []string, err error) {
	var in clusterConfiguration
	if err := yaml.Unmarshal(data, &in); err != nil {
		return Cluster{}, nil, fmt.Errorf("decoding ClusterConfiguration: %w", err)
	}
	version, known := strings.CutPrefix(in.APIVersion, "kubeadm.k8s.io/")
	if in.Kind != "ClusterConfiguration" || !known || !slices.Contains([]string{"v1beta3", "v1beta4", "v1"}, version) {
		return Cluster{}, nil, fmt.Errorf("decoding ClusterConfiguration: it is a %q of %q, and must be one of kubeadm.k8s.io/v1beta3, v1beta4 or v1", in.Kind, in.APIVersion)
	}
	var strict clusterConfiguration
	if err := yaml.UnmarshalStrict(data, &strict); err != nil {
		warnings = append(warnings, err.Error())
	}
	warnings = append(warnings, in.misplaced(version)...)
	return in.cluster(), warnings, nil
}

// The wire types of all three versions at once: they differ in little, and
// misplaced tells what does not belong to one of them.
type clusterConfiguration struct {
	metav1.TypeMeta             `json:",inline"`
	KubernetesVersion           string           `json:"kubernetesVersion"`
	ClusterName                 string           `json:"clusterName"`
	ControlPlaneEndpoint        string           `json:"controlPlaneEndpoint"`
	CertificatesDir             string           `json:"certificatesDir"`
	ImageRepository             string           `json:"imageRepository"`
	Networking                  wireNetworking   `json:"networking"`
	APIServer                   wireAPIServer    `json:"apiServer"`
	ControllerManager           wireComponent    `json:"controllerManager"`
	Scheduler                   wireComponent    `json:"scheduler"`
	Etcd                        wireEtcd         `json:"etcd"`
	DNS                         wireDNS          `json:"dns"`
	Proxy                       wireProxy        `json:"proxy"`
	FeatureGates                map[string]bool  `json:"featureGates"`
	EncryptionAlgorithm         string           `json:"encryptionAlgorithm"`
	CertificateValidityPeriod   *metav1.Duration `json:"certificateValidityPeriod"`
	CACertificateValidityPeriod *metav1.Duration `json:"caCertificateValidityPeriod"`
}

type wireNetworking struct {
	ServiceSubnet string `json:"serviceSubnet"`
	PodSubnet     string `json:"podSubnet"`
	DNSDomain     string `json:"dnsDomain"`
}

type wireComponent struct {
	ExtraArgs    wireArgs        `json:"extraArgs"`
	ExtraVolumes []wireMount     `json:"extraVolumes"`
	ExtraEnvs    []corev1.EnvVar `json:"extraEnvs"`
}

type wireAPIServer struct {
	wireComponent          `json:",inline"`
	CertSANs               []string         `json:"certSANs"`
	TimeoutForControlPlane *metav1.Duration `json:"timeoutForControlPlane"`
}

type wireMount struct {
	Name      string              `json:"name"`
	HostPath  string              `json:"hostPath"`
	MountPath string              `json:"mountPath"`
	ReadOnly  bool                `json:"readOnly"`
	PathType  corev1.HostPathType `json:"pathType"`
}

type wireEtcd struct {
	Local    *wireLocalEtcd    `json:"local"`
	External *wireExternalEtcd `json:"external"`
}

type wireLocalEtcd struct {
	wireImage      `json:",inline"`
	DataDir        string          `json:"dataDir"`
	ExtraArgs      wireArgs        `json:"extraArgs"`
	ExtraEnvs      []corev1.EnvVar `json:"extraEnvs"`
	ServerCertSANs []string        `json:"serverCertSANs"`
	PeerCertSANs   []string        `json:"peerCertSANs"`
}

type wireExternalEtcd struct {
	Endpoints     []string `json:"endpoints"`
	HTTPEndpoints []string `json:"httpEndpoints"`
	CAFile        string   `json:"caFile"`
	CertFile      string   `json:"certFile"`
	KeyFile       string   `json:"keyFile"`
}

type wireImage struct {
	ImageRepository string `json:"imageRepository"`
	ImageTag        string `json:"imageTag"`
}

type wireDNS struct {
	wireImage `json:",inline"`
	Disabled  bool `json:"disabled"`
}

type wireProxy struct {
	Disabled bool `json:"disabled"`
}

// wireArgs are a map up to v1beta3, whose order is by name, and a list since.
type wireArgs struct {
	list  []wireArg
	isMap bool
}

type wireArg struct {
	Name        string `json:"name"`
	Value       string `json:"value"`
	MergeMethod string `json:"mergeMethod"`
}

func (a *wireArgs) UnmarshalJSON(data []byte) error {
	if bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) {
		a.isMap = true
		var args map[string]string
		if err := json.Unmarshal(data, &args); err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(args)) {
			a.list = append(a.list, wireArg{Name: name, Value: args[name]})
		}
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	return d.Decode(&a.list)
}

func (a wireArgs) args() []Arg {
	var args []Arg
	for _, arg := range a.list {
		args = append(args, Arg(arg))
	}
	return args
}

// misplaced names what is set and does not belong to that version, or has no
// effect here.
func (in *clusterConfiguration) misplaced(version string) (warnings []string) {
	unknown := func(set bool, field string) {
		if set {
			warnings = append(warnings, fmt.Sprintf("%s has no field %s", in.APIVersion, field))
		}
	}
	type argsField struct {
		name string
		wireArgs
	}
	fields := []argsField{
		{"apiServer.extraArgs", in.APIServer.ExtraArgs},
		{"controllerManager.extraArgs", in.ControllerManager.ExtraArgs},
		{"scheduler.extraArgs", in.Scheduler.ExtraArgs},
	}
	envs := len(in.APIServer.ExtraEnvs)+len(in.ControllerManager.ExtraEnvs)+len(in.Scheduler.ExtraEnvs) > 0
	httpEndpoints := in.Etcd.External != nil && in.Etcd.External.HTTPEndpoints != nil
	if local := in.Etcd.Local; local != nil {
		fields = append(fields, argsField{"etcd.local.extraArgs", local.ExtraArgs})
		envs = envs || len(local.ExtraEnvs) > 0
	}
	beta3 := version == "v1beta3"
	for _, field := range fields {
		if field.list != nil && field.isMap != beta3 {
			warnings = append(warnings, fmt.Sprintf("%s in %s is a map up to v1beta3, and a list of name and value since", field.name, in.APIVersion))
		}
		for _, arg := range field.list {
			unknown(arg.MergeMethod != "" && version != "v1", field.name+".mergeMethod")
			if arg.MergeMethod != "" && version == "v1" {
				warnings = append(warnings, fmt.Sprintf("%s: mergeMethod of %q is not supported and ignored", field.name, arg.Name))
			}
		}
	}
	unknown(beta3 && envs, "extraEnvs")
	unknown(beta3 && in.EncryptionAlgorithm != "", "encryptionAlgorithm")
	unknown(beta3 && in.CertificateValidityPeriod != nil, "certificateValidityPeriod")
	unknown(beta3 && in.CACertificateValidityPeriod != nil, "caCertificateValidityPeriod")
	unknown(beta3 && in.DNS.Disabled, "dns.disabled")
	unknown(beta3 && in.Proxy.Disabled, "proxy.disabled")
	unknown(beta3 && httpEndpoints, "etcd.external.httpEndpoints")
	unknown(!beta3 && in.APIServer.TimeoutForControlPlane != nil, "apiServer.timeoutForControlPlane")
	for field, set := range map[string]bool{"dns.disabled": in.DNS.Disabled, "proxy.disabled": in.Proxy.Disabled, "etcd.external.httpEndpoints": httpEndpoints} {
		if set && !beta3 {
			warnings = append(warnings, field+" is not supported and ignored")
		}
	}
	slices.Sort(warnings)
	return warnings
}

func (in *clusterConfiguration) cluster() Cluster {
	out := Cluster{
		KubernetesVersion:           in.KubernetesVersion,
		ClusterName:                 in.ClusterName,
		ControlPlaneEndpoint:        in.ControlPlaneEndpoint,
		CertificatesDir:             in.CertificatesDir,
		ImageRepository:             in.ImageRepository,
		Networking:                  Networking(in.Networking),
		ControllerManager:           in.ControllerManager.component(),
		Scheduler:                   in.Scheduler.component(),
		DNS:                         DNS{ImageMeta(in.DNS.wireImage), in.DNS.Disabled},
		Proxy:                       Proxy(in.Proxy),
		FeatureGates:                in.FeatureGates,
		EncryptionAlgorithm:         in.EncryptionAlgorithm,
		CertificateValidityPeriod:   duration(in.CertificateValidityPeriod),
		CACertificateValidityPeriod: duration(in.CACertificateValidityPeriod),
	}
	out.APIServer = APIServer{
		Component:              in.APIServer.component(),
		CertSANs:               in.APIServer.CertSANs,
		TimeoutForControlPlane: duration(in.APIServer.TimeoutForControlPlane),
	}
	if local := in.Etcd.Local; local != nil {
		out.Etcd.Local = LocalEtcd{
			ImageMeta: ImageMeta(local.wireImage), DataDir: local.DataDir,
			ExtraArgs: local.ExtraArgs.args(), ExtraEnvs: local.ExtraEnvs,
			ServerCertSANs: local.ServerCertSANs, PeerCertSANs: local.PeerCertSANs,
		}
	}
	if external := in.Etcd.External; external != nil {
		out.Etcd.External = &ExternalEtcd{
			Endpoints: external.Endpoints, HTTPEndpoints: external.HTTPEndpoints,
			CAFile: external.CAFile, CertFile: external.CertFile, KeyFile: external.KeyFile,
		}
	}
	return out
}

func (in wireComponent) component() Component {
	out := Component{ExtraArgs: in.ExtraArgs.args(), ExtraEnvs: in.ExtraEnvs}
	for _, mount := range in.ExtraVolumes {
		out.ExtraVolumes = append(out.ExtraVolumes, HostPathMount(mount))
	}
	return out
}

func duration(d *metav1.Duration) time.Duration {
	if d == nil {
		return 0
	}
	return d.Duration
}
