package render

import (
	"strings"

	"sigs.k8s.io/yaml"

	"airlift/installer/config"
	"airlift/installer/pki"
)

// ClusterConfiguration returns the ClusterConfiguration as kubeadm of this
// Kubernetes version keeps it in the ConfigMap kubeadm-config.
func ClusterConfiguration(cfg *config.Config) ([]byte, error) {
	c := &cfg.Cluster
	v4 := minor(cfg) >= v1beta4From

	apiServer := component(c.APIServer.Component, v4)
	if len(c.APIServer.CertSANs) > 0 {
		apiServer["certSANs"] = c.APIServer.CertSANs
	}
	doc := map[string]any{
		"apiVersion":        "kubeadm.k8s.io/v1beta3",
		"kind":              "ClusterConfiguration",
		"apiServer":         apiServer,
		"certificatesDir":   c.CertificatesDir,
		"clusterName":       c.ClusterName,
		"controllerManager": component(c.ControllerManager, v4),
		"scheduler":         component(c.Scheduler, v4),
		"dns":               imageMeta(c.DNS.ImageMeta),
		"etcd":              etcdConfiguration(cfg),
		"imageRepository":   c.ImageRepository,
		"kubernetesVersion": c.KubernetesVersion,
		"networking": dropEmpty(map[string]any{
			"serviceSubnet": c.Networking.ServiceSubnet.String(),
			"podSubnet":     c.Networking.PodSubnet.String(),
			"dnsDomain":     c.Networking.DNSDomain,
		}),
	}
	if v4 {
		doc["apiVersion"] = "kubeadm.k8s.io/v1beta4"
		doc["encryptionAlgorithm"] = c.EncryptionAlgorithm
		if c.EncryptionAlgorithm == "" {
			doc["encryptionAlgorithm"] = pki.DefaultAlgorithm
		}
		doc["certificateValidityPeriod"] = c.CertificateValidityPeriod.String()
		doc["caCertificateValidityPeriod"] = c.CACertificateValidityPeriod.String()
		doc["proxy"] = disabled(map[string]any{}, c.Proxy.Disabled)
		doc["dns"] = disabled(imageMeta(c.DNS.ImageMeta), c.DNS.Disabled)
	}
	if minor(cfg) < timeoutUnrecordedFrom {
		apiServer["timeoutForControlPlane"] = startupTimeout(cfg).String()
	}
	if minor(cfg) < authorizationUnrecordedFrom {
		args, _ := apiServer["extraArgs"].(map[string]string)
		if args == nil {
			args = map[string]string{}
			apiServer["extraArgs"] = args
		}
		if args["authorization-mode"] == "" {
			args["authorization-mode"] = defaultAuthorizationMode
		}
	}
	if c.ControlPlaneEndpoint != "" {
		// With the port that it stands for, as kubeadm completes it.
		doc["controlPlaneEndpoint"] = strings.TrimPrefix(cfg.ServerURL(), "https://")
	}
	if len(c.FeatureGates) > 0 {
		doc["featureGates"] = c.FeatureGates
	}
	return yaml.Marshal(doc)
}

func component(c config.Component, v4 bool) map[string]any {
	doc := map[string]any{}
	if args := extraArgs(c.ExtraArgs, v4); args != nil {
		doc["extraArgs"] = args
	}
	if v4 && len(c.ExtraEnvs) > 0 {
		doc["extraEnvs"] = c.ExtraEnvs
	}
	var volumes []map[string]any
	for _, v := range c.ExtraVolumes {
		volume := dropEmpty(map[string]any{"pathType": string(v.PathType)})
		volume["name"], volume["hostPath"], volume["mountPath"] = v.Name, v.HostPath, v.MountPath
		if v.ReadOnly {
			volume["readOnly"] = true
		}
		volumes = append(volumes, volume)
	}
	if volumes != nil {
		doc["extraVolumes"] = volumes
	}
	return doc
}

// extraArgs is a list in v1beta4 and was a map before, where a flag given
// twice keeps its last value. Neither has a place for a merge method. It is nil
// when there are none.
func extraArgs(args []config.Arg, v4 bool) any {
	if len(args) == 0 {
		return nil
	}
	if v4 {
		var list []map[string]string
		for _, arg := range args {
			list = append(list, map[string]string{"name": arg.Name, "value": arg.Value})
		}
		return list
	}
	byName := map[string]string{}
	for _, arg := range args {
		byName[arg.Name] = arg.Value
	}
	return byName
}

func etcdConfiguration(cfg *config.Config) map[string]any {
	e, v4 := cfg.Etcd, minor(cfg) >= v1beta4From
	if e.External != nil {
		external := map[string]any{
			"endpoints": e.External.Endpoints,
			"caFile":    e.External.CAFile,
			"certFile":  e.External.CertFile,
			"keyFile":   e.External.KeyFile,
		}
		if minor(cfg) >= httpEndpointsFrom {
			external["httpEndpoints"] = e.External.HTTPEndpoints
			if len(e.External.HTTPEndpoints) == 0 {
				external["httpEndpoints"] = e.External.Endpoints
			}
		}
		return map[string]any{"external": external}
	}
	local := imageMeta(e.Local.ImageMeta)
	local["dataDir"] = e.Local.DataDir
	if args := extraArgs(e.Local.ExtraArgs, v4); args != nil {
		local["extraArgs"] = args
	}
	if v4 && len(e.Local.ExtraEnvs) > 0 {
		local["extraEnvs"] = e.Local.ExtraEnvs
	}
	if len(e.Local.ServerCertSANs) > 0 {
		local["serverCertSANs"] = e.Local.ServerCertSANs
	}
	if len(e.Local.PeerCertSANs) > 0 {
		local["peerCertSANs"] = e.Local.PeerCertSANs
	}
	return map[string]any{"local": local}
}

func imageMeta(m config.ImageMeta) map[string]any {
	return dropEmpty(map[string]any{"imageRepository": m.ImageRepository, "imageTag": m.ImageTag})
}

func disabled(doc map[string]any, off bool) map[string]any {
	if off {
		doc["disabled"] = true
	}
	return doc
}

func dropEmpty(doc map[string]any) map[string]any {
	for key, value := range doc {
		if value == "" {
			delete(doc, key)
		}
	}
	return doc
}
