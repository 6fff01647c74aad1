package config

import (
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"airlift/internal/documents/strict"
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
		DryRun: c.DryRun, NodeRegistration: c.NodeRegistration, LocalAPIEndpoint: c.LocalAPIEndpoint, CertificateKey: c.CertificateKey,
		SkipPhases: c.SkipPhases, Patches: patches{c.Patches}, Timeouts: c.Timeouts,
	}
	for _, t := range c.BootstrapTokens {
		token := wireToken{Token: &t.Token, Description: t.Description, Usages: t.Usages, Groups: t.Groups}
		if t.Expires.IsZero() {
			token.TTL = &t.TTL
		} else {
			token.Expires = &metav1.Time{Time: t.Expires}
		}
		in.BootstrapTokens = append(in.BootstrapTokens, token)
	}
	first, err := write(api, "InitConfiguration", in)
	if err != nil {
		return nil, err
	}
	second, err := c.Cluster.write(api, true)
	return slices.Concat(first, []byte("---\n"), second), err
}

// Write returns the ClusterConfiguration alone, in the version that the kubeadm of
// its Kubernetes writes. httpEndpoints: that kubeadm knows etcd.external.httpEndpoints.
func (c *Cluster) Write(httpEndpoints bool) ([]byte, error) {
	return c.write(APIVersion(c.KubernetesVersion), httpEndpoints)
}

func (c *Cluster) write(api string, httpEndpoints bool) ([]byte, error) {
	out := *c
	if c.Etcd.External != nil {
		external := *c.Etcd.External
		if out.Etcd.External = &external; !httpEndpoints {
			external.HTTPEndpoints = nil
		} else if len(external.HTTPEndpoints) == 0 {
			external.HTTPEndpoints = external.Endpoints // as kubeadm fills it in
		}
	}
	return write(api, "ClusterConfiguration", out)
}

// WriteJoin returns the Config as a JoinConfiguration.
func (c *Config) WriteJoin(api string) ([]byte, error) {
	d := c.Discovery
	join := joinConfiguration{
		DryRun: c.DryRun, NodeRegistration: c.NodeRegistration, CACertPath: c.CACertPath,
		Discovery:  wireDiscovery{TLSBootstrapToken: d.TLSBootstrapToken, Timeout: c.Timeouts.Discovery},
		SkipPhases: c.SkipPhases, Patches: patches{c.Patches}, Timeouts: c.Timeouts,
	}
	if d.File != "" {
		join.Discovery.File = &fileDiscovery{d.File}
	} else {
		join.Discovery.BootstrapToken = &tokenDiscovery{d.Token, d.APIServerEndpoint, d.CACertHashes, d.UnsafeSkipCAVerification}
	}
	if c.ControlPlane {
		join.ControlPlane = &joinControlPlane{c.LocalAPIEndpoint, c.CertificateKey}
	}
	return write(api, "JoinConfiguration", join)
}

// Write returns the Reset as a ResetConfiguration, in v1beta4 or newer: v1beta3
// has none.
func (r *Reset) Write(api string) ([]byte, error) {
	return write(NewerAPI(api, "v1beta4"), "ResetConfiguration", *r)
}

// Write returns the UpgradeConfiguration with kubeadm's defaults, in v1beta4 or
// newer.
func (u *Upgrade) Write(api string) ([]byte, error) {
	out := u.wire
	for _, b := range []**bool{
		&out.Apply.EtcdUpgrade, &out.Apply.CertificateRenewal, &out.Apply.ImagePullSerial, &out.Plan.EtcdUpgrade,
		&out.Node.EtcdUpgrade, &out.Node.CertificateRenewal, &out.Node.ImagePullSerial,
	} {
		if *b == nil {
			*b = new(true)
		}
	}
	setDefault(&out.Apply.ImagePullPolicy, corev1.PullIfNotPresent)
	setDefault(&out.Node.ImagePullPolicy, corev1.PullIfNotPresent)
	out.Timeouts.complete()
	return write(NewerAPI(api, "v1beta4"), "UpgradeConfiguration", out)
}

// write encodes a document as YAML.
func write(api, kind string, document any) ([]byte, error) {
	fields := encode(reflect.ValueOf(document), api).(map[string]any)
	fields["apiVersion"], fields["kind"] = kubeadmGroup+"/"+api, kind
	return yaml.Marshal(fields)
}

// encode returns a value for JSON, without the fields that the version does not have.
func encode(v reflect.Value, api string) any {
	switch x := v.Interface().(type) {
	case time.Duration:
		return x.String()
	case Args:
		if api == "v1beta3" {
			args := map[string]string{}
			for _, a := range x {
				args[a.Name] = a.Value // a later one wins, as in kubeadm's conversion
			}
			return args
		}
	}
	t := v.Type()
	switch own := t.PkgPath() == reflect.TypeFor[Config]().PkgPath() && t != reflect.TypeFor[CIDRs](); {
	case t.Kind() == reflect.Pointer && !v.IsNil():
		return encode(v.Elem(), api)
	case t.Kind() == reflect.Slice && !v.IsNil():
		list := make([]any, v.Len())
		for i := range list {
			list[i] = encode(v.Index(i), api)
		}
		return list
	case t.Kind() != reflect.Struct || !own && t.Name() != "":
		return v.Interface()
	}
	fields := map[string]any{}
	for name, f := range strict.Fields(t) {
		value := v.FieldByIndex(f.Index)
		_, omit, _ := strings.Cut(f.Tag.Get("json"), ",")
		empty := value.IsZero() && value.Kind() != reflect.Slice || value.Kind() == reflect.Slice && value.Len() == 0
		if within(f.Tag.Get("kubeadm"), api) && (omit == "" || !empty) {
			fields[name] = encode(value, api)
		}
	}
	if etcd, ok := v.Interface().(Etcd); ok && etcd.External != nil {
		delete(fields, "local")
	}
	return fields
}
