package configfile

import (
	"embed"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	"airlift/bundle"
	"airlift/images/release"
	"airlift/installer/config"
	"airlift/installer/host/detection"
	"airlift/installer/kubeletcheck"
	"airlift/installer/patches"
	"airlift/installer/preflight"
	"airlift/installer/render"
	"airlift/internal/documents/problems"
)

// A Target is what a bundle determines of a configuration.
type Target struct {
	Version, CNI string
	Images       map[string]string // by component; nil if there is no bundle
}

// TargetOf returns the target of a bundle, of the newest known version without one.
func TargetOf(m *bundle.Manifest) Target {
	if m == nil {
		return Target{Version: newestKnown(), CNI: release.Flannel}
	}
	t := Target{Version: m.KubernetesVersion, CNI: m.CNI, Images: map[string]string{}}
	for _, i := range m.Images {
		t.Images[i.Name] = i.Reference
	}
	return t
}

// A Host returns what a configuration needs to know of its host.
type Host func(detection.Options) config.Facts

// HostAt is a host that is not known but for its address, which may be "".
func HostAt(nodeIP string) Host {
	return func(o detection.Options) config.Facts {
		f := anyHost(o)
		if nodeIP != "" {
			f.NodeIP = nodeIP
		}
		return f
	}
}

// A Checker completes the documents of a file for a host, and collects what is wrong with their values, as init, join and
// upgrade find it.
type Checker struct {
	Target
	Host     Host
	Warnings []string // for the user
	Wrong    []problems.Problem
}

// Values completes and checks all documents.
func (k *Checker) Values(f *config.File) {
	if c := f.Init; c != nil {
		k.add(c.CheckVersion(k.Version))
		c.CNI, c.KubernetesVersion = k.CNI, k.Version
		c.Facts = k.Host(detection.Options{NodeIP: c.LocalAPIEndpoint.ChosenAddress(), ForOtherHost: true, Networking: c.Networking})
		c.CompleteInit()
		k.Warnings = append(k.Warnings, c.Warnings()...)
		k.add(c.CheckInit())
		if k.Images != nil {
			k.add(c.CheckImages(k.Images))
		}
	}
	if c := f.Join; c != nil {
		c.KubernetesVersion = k.Version
		c.Facts = k.Host(detection.Options{NodeIP: c.LocalAPIEndpoint.ChosenAddress(), ForOtherHost: true})
		c.CompleteJoin()
		k.add(c.CheckJoin())
	}
	if f.Reset != nil {
		f.Reset.Complete()
		k.add(f.Reset.Check())
	}
	if f.Upgrade != nil {
		k.add(f.Upgrade.Check())
	}
}

// Found returns what is wrong, and the warnings.
func (k *Checker) Found() (wrong []problems.Problem, warnings []string) { return k.Wrong, k.Warnings }

func (k *Checker) add(list []problems.Problem) { k.Wrong = append(k.Wrong, list...) }

// Components checks with what the kubelets of init and join and the API server start, with patches, which may be nil. Values
// completed the documents.
func (k *Checker) Components(f *config.File, set *patches.Set) {
	c := *f.Init
	c.Facts.CgroupDriver = "systemd"
	k.kubelet(&c, "InitConfiguration", set)
	for _, p := range preflight.APIServerFlags(&c.Cluster) {
		k.found(c.Problem("ClusterConfiguration.apiServer.extraArgs", p.Fix, "ClusterConfiguration.apiServer.extraArgs: %s", p.Message), p.Warning)
	}
	if c.Images = k.Images; set != nil {
		k.objects(&c, set)
	}
	if f.Join != nil {
		c.NodeRegistration = f.Join.NodeRegistration
		k.kubelet(&c, "JoinConfiguration", set)
	}
}

// kubelet applies the rules of the kubelet.
func (k *Checker) kubelet(c *config.Config, kind string, set *patches.Set) {
	settings, err := render.KubeletConfig(c)
	if err == nil {
		settings, err = render.NodeKubeletConfig(c, settings)
	}
	if err != nil {
		return // a value of the network that Values found
	}
	if settings, _, err = set.Apply(patches.KubeletConfiguration, settings); k.patch(err) {
		return
	}
	fixed := slices.DeleteFunc(preflight.FixedFields(c, kind == "InitConfiguration"), func(s kubeletcheck.Fixed) bool {
		return s.Flag == "hostname-override" // the host may have this name
	})
	args := c.NodeRegistration.KubeletExtraArgs
	for _, p := range kubeletcheck.Check(kubeletcheck.Input{Kubernetes: k.Version, Config: settings, Flags: args, Fixed: fixed}) {
		k.found(located(c, kind, set, p), p.Warning)
	}
}

// located returns a problem of the kubelet at its line: in a patch, in the arguments, or in the KubeletConfiguration.
func located(c *config.Config, kind string, set *patches.Set, p kubeletcheck.Problem) problems.Problem {
	if flag, ok := strings.CutPrefix(p.Option, "--"); ok {
		field := kind + ".nodeRegistration.kubeletExtraArgs"
		same := func(a config.Arg) bool { return strings.ReplaceAll(a.Name, "_", "-") == flag }
		if i := slices.IndexFunc(c.NodeRegistration.KubeletExtraArgs, same); i >= 0 {
			field = fmt.Sprintf("%s[%d]", field, i)
		}
		return c.Problem(field, p.Fix, "%s: %s", field, p.Message)
	}
	if file, line, ok := set.Line(patches.KubeletConfiguration, p.Option); ok {
		return problems.Problem{File: file, Line: line, Field: p.Option, Text: p.Message, Hint: p.Fix}
	}
	field, text := "KubeletConfiguration."+p.Option, p.Message
	if strings.HasPrefix(text, p.Option) {
		text = "KubeletConfiguration." + text
	}
	return c.Problem(field, p.Fix, "%s", text)
}

// objects patches the static pods and the add-ons, without a host.
func (k *Checker) objects(c *config.Config, set *patches.Set) {
	pods, err := render.ControlPlane(c, embed.FS{})
	if c.Etcd.External == nil && err == nil {
		if pods["etcd"], err = render.Etcd(c); err != nil {
			return
		}
	}
	for _, name := range slices.Sorted(maps.Keys(pods)) {
		_, _, err := set.Pod(pods[name])
		k.patch(err)
	}
	for _, addOn := range []func(*config.Config) ([]runtime.Object, error){render.CoreDNS, render.KubeProxy} {
		if objects, err := addOn(c); err == nil {
			_, _, err = set.AddOn(objects)
			k.patch(err)
		}
	}
}

// patch adds the problem of a patch that cannot be applied.
func (k *Checker) patch(err error) bool {
	if wrong := (*problems.Wrong)(nil); errors.As(err, &wrong) {
		k.add(wrong.Problems)
	}
	return err != nil
}

func (k *Checker) found(p problems.Problem, warning bool) {
	if !warning {
		k.Wrong = append(k.Wrong, p)
		return
	}
	text := p.String()
	if p.Line > 0 {
		text = fmt.Sprintf("%s:%d: %s", p.File, p.Line, text)
	}
	if !slices.Contains(k.Warnings, text) {
		k.Warnings = append(k.Warnings, text)
	}
}
