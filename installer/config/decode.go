package config

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// DecodeClusterConfiguration reads kubeadm's ClusterConfiguration, v1beta3,
// v1beta4 or v1, as in a configuration file or in the ConfigMap kubeadm-config.
// It sets no defaults.
//
// Warnings name fields that this API version or Airlift does not have. They are
// not errors, because a newer tool may have written the ConfigMap.
func DecodeClusterConfiguration(data []byte) (cluster Cluster, warnings []string, err error) {
	var in clusterConfiguration
	if err := yaml.Unmarshal(data, &in); err != nil {
		return Cluster{}, nil, fmt.Errorf("decoding ClusterConfiguration: %w", err)
	}
	version, known := strings.CutPrefix(in.APIVersion, kubeadmGroup+"/")
	if in.Kind != "ClusterConfiguration" || !known || !slices.Contains(apiVersions, version) {
		return Cluster{}, nil, fmt.Errorf("decoding ClusterConfiguration: apiVersion %q and kind %q are not supported: use ClusterConfiguration of kubeadm.k8s.io/v1beta3, v1beta4 or v1", in.APIVersion, in.Kind)
	}
	s := parse("ClusterConfiguration", data)
	s.check(false)
	for _, m := range s.problems {
		warnings = append(warnings, fmt.Sprintf("line %d: %s", m.line, m.text))
	}
	return in.cluster(), warnings, nil
}

func (a wireArgs) args() []Arg {
	var args []Arg
	for _, arg := range a.list {
		args = append(args, Arg(arg))
	}
	return args
}

func (in *clusterConfiguration) cluster() Cluster {
	out := Cluster{
		KubernetesVersion:    in.KubernetesVersion,
		ClusterName:          in.ClusterName,
		ControlPlaneEndpoint: in.ControlPlaneEndpoint,
		CertificatesDir:      in.CertificatesDir,
		ImageRepository:      in.ImageRepository,
		Networking: Networking{
			ServiceSubnet: ParseCIDRs(in.Networking.ServiceSubnet), PodSubnet: ParseCIDRs(in.Networking.PodSubnet), DNSDomain: in.Networking.DNSDomain,
		},
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
