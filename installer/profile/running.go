package profile

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	kubeletv1 "k8s.io/kubelet/config/v1beta1"

	"airlift/installer/config"
	"airlift/internal/fault"
)

// None is the name that takes the profile away from a running cluster.
const None = "none"

// Change gives the configuration of a running cluster the values of a profile, or takes them away with None. What the user set stays; kept
// names it. given has the user's documents, which None leaves as they are.
func Change(name string, c *config.Config, given *config.Given) (kept []string, err error) {
	bare, err := without(c)
	if err != nil {
		return nil, err
	}
	if name == None {
		if !given.Has(clusterKind) {
			copyComponents(&c.Cluster, &bare.Cluster)
		}
		if !given.Has(kubeletKind) {
			c.Kubelet = bare.Kubelet
		}
		if Used(&c.Cluster) {
			return nil, fault.New(fault.Usage, "--profile %s: the ClusterConfiguration in this file has the profile: its volume %q", None, filesVolume).
				Hint("remove the values of the profile from the file; or leave the document out, and the stored one loses them")
		}
		return nil, nil
	}
	user := bare.Kubelet
	n := given.Marked(bare)
	if kept, err = Apply(name, n); err != nil {
		return nil, err
	}
	copyComponents(&c.Cluster, &n.Cluster)
	c.Kubelet = n.Kubelet
	for field := range kubeletValues(user) { // stored ones, which no document marks
		value := valueOf(user, field)
		if profiled := valueOf(c.Kubelet, field); !reflect.DeepEqual(profiled.Interface(), value.Interface()) {
			profiled.Set(value)
			kept = append(kept, kubeletKind+"."+field)
		}
	}
	return kept, nil
}

// Keep gives a configuration in which the user's documents leave out values of the profile the ones that the stored configuration has, and no
// others: a document for one field does not end the profile, and does not begin a part of it. kept names values of the user.
func Keep(c, stored *config.Config, user *config.Given) (kept []string, err error) {
	before := *c
	if kept, err = Change(Hardened, c, user); err != nil {
		return nil, err
	}
	was, had := components3(&before.Cluster), components3(&stored.Cluster)
	for i, one := range components3(&c.Cluster) {
		one.ExtraArgs = slices.DeleteFunc(slices.Clone(one.ExtraArgs), func(a config.Arg) bool {
			_, own := given(was[i].ExtraArgs, a.Name)
			_, has := given(had[i].ExtraArgs, a.Name)
			if a.Name == kubeletCAFlag { // without the kubelets' part, API servers would refuse them
				has = SignsServing(&stored.Cluster)
			}
			return !own && !has
		})
	}
	zero := func(k *kubeletv1.KubeletConfiguration, field string) bool {
		return k == nil || valueOf(k, field).IsZero()
	}
	for field := range kubeletValues(c.Kubelet) {
		if zero(before.Kubelet, field) && zero(stored.Kubelet, field) {
			valueOf(c.Kubelet, field).SetZero()
		}
	}
	if before.Kubelet == nil && len(slices.Collect(kubeletValues(c.Kubelet))) == 0 {
		c.Kubelet = nil
	}
	if SignsServing(&stored.Cluster) && !VerifiesServing(&stored.Cluster) && SignsServing(&c.Cluster) {
		DeferVerification(&c.Cluster)
	}
	return kept, nil
}

// copyComponents copies what a profile sets in a ClusterConfiguration.
func copyComponents(to, from *config.Cluster) {
	list := components3(from)
	for i, c := range components3(to) {
		*c = *list[i]
	}
}

func components3(c *config.Cluster) []*config.Component {
	return []*config.Component{&c.APIServer.Component, &c.ControllerManager, &c.Scheduler}
}

// without returns a configuration without the values of the profile: what Apply gives to a cluster without values of the user, and what
// it would give again to the rest. A value that the user set to the same is one of the profile.
func without(c *config.Config) (*config.Config, error) {
	profiled := *c
	for _, one := range components3(&profiled.Cluster) {
		one.ExtraArgs, one.ExtraVolumes = nil, nil
	}
	profiled.Kubelet = nil
	if _, err := Apply(Hardened, &profiled); err != nil {
		return nil, err
	}
	bare := *c
	list := components3(&profiled.Cluster)
	for i, one := range components3(&bare.Cluster) {
		of := list[i]
		one.ExtraArgs = slices.DeleteFunc(slices.Clone(one.ExtraArgs), func(a config.Arg) bool {
			return slices.Contains(of.ExtraArgs, a) || defersVerification(a) && Used(&c.Cluster)
		})
		one.ExtraVolumes = slices.DeleteFunc(slices.Clone(one.ExtraVolumes), func(v config.HostPathMount) bool { return slices.Contains(of.ExtraVolumes, v) })
	}
	if c.Kubelet != nil {
		bare.Kubelet = c.Kubelet.DeepCopy()
		for field := range kubeletValues(profiled.Kubelet) {
			value := valueOf(bare.Kubelet, field)
			if reflect.DeepEqual(value.Interface(), valueOf(profiled.Kubelet, field).Interface()) {
				value.SetZero()
			}
		}
	}
	for i, one := range components3(&bare.Cluster) { // values that depend on the user's
		for _, arg := range slices.Clone(one.ExtraArgs) {
			if _, known := given(list[i].ExtraArgs, arg.Name); !known {
				continue
			}
			again := bare
			again.Kubelet = nil
			own := components3(&again.Cluster)[i]
			own.ExtraArgs = slices.DeleteFunc(slices.Clone(own.ExtraArgs), func(a config.Arg) bool { return a == arg })
			left := own.ExtraArgs
			if _, err := Apply(Hardened, &again); err != nil {
				continue
			}
			if value, ok := given(own.ExtraArgs, arg.Name); ok && value == arg.Value {
				one.ExtraArgs = left
			}
		}
	}
	return &bare, nil
}

// kubeletValues returns the fields of a kubelet's configuration that are set, by their names.
func kubeletValues(k *kubeletv1.KubeletConfiguration) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		if k == nil {
			return
		}
		v := reflect.ValueOf(k).Elem()
		for i := range v.NumField() {
			name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			if name != "" && !v.Field(i).IsZero() && !yield(name) {
				return
			}
		}
	}
}

// valueOf returns a field of a kubelet's configuration by its name.
func valueOf(k *kubeletv1.KubeletConfiguration, name string) reflect.Value {
	v := reflect.ValueOf(k).Elem()
	for i := range v.NumField() {
		if field, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ","); field == name {
			return v.Field(i)
		}
	}
	panic(fmt.Sprintf("no field %q", name))
}
