package profile_test

import (
	"reflect"
	"slices"
	"testing"

	kubeletv1 "k8s.io/kubelet/config/v1beta1"
	"pgregory.net/rapid"

	"airlift/installer/config"
	"airlift/installer/profile"
	"airlift/installer/render"
	"airlift/scripts/fixtures/testhost"
	"airlift/scripts/oracle"
)

// userValues draws what a user set before there was a profile: values of the profile's flags and fields, others, and none.
func userValues(t *rapid.T, flags []string) *config.Config {
	c := testhost.Config(nil)
	for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom(flags), 0, 5, rapid.ID[string]).Draw(t, "flags") {
		c.APIServer.ExtraArgs = append(c.APIServer.ExtraArgs, config.Arg{Name: name, Value: rapid.SampledFrom([]string{"x", "EventRateLimit", "/etc/site/file.yaml"}).Draw(t, "value")})
	}
	if rapid.Bool().Draw(t, "profiling") {
		c.Scheduler.ExtraArgs = append(c.Scheduler.ExtraArgs, config.Arg{Name: "profiling", Value: "true"})
	}
	if rapid.Bool().Draw(t, "volume") {
		c.APIServer.ExtraVolumes = append(c.APIServer.ExtraVolumes, config.HostPathMount{Name: "site", HostPath: "/etc/site", MountPath: "/etc/site"})
	}
	if rapid.Bool().Draw(t, "kubelet") {
		c.Kubelet = &kubeletv1.KubeletConfiguration{MaxPods: rapid.Int32Range(0, 2).Draw(t, "maxPods")}
		if rapid.Bool().Draw(t, "own limit") {
			c.Kubelet.PodPidsLimit = new(int64(99))
		}
	}
	return c
}

func parts(c *config.Config) any {
	return []any{c.APIServer, c.ControllerManager, c.Scheduler, c.Kubelet}
}

// A running cluster gets what a new one gets, each time the same, and loses exactly that: the user's values are as before.
func TestThereAndBack(t *testing.T) {
	bare := testhost.Config(nil)
	if _, err := profile.Apply(profile.Hardened, bare); err != nil {
		t.Fatal(err)
	}
	flags := []string{"disable-admission-plugins", "v"}
	for _, arg := range bare.APIServer.ExtraArgs {
		flags = append(flags, arg.Name)
	}
	rapid.Check(t, func(t *rapid.T) {
		c := userValues(t, flags)
		before := *c
		before.APIServer.ExtraArgs, before.APIServer.ExtraVolumes = slices.Clone(c.APIServer.ExtraArgs), slices.Clone(c.APIServer.ExtraVolumes)
		if c.Kubelet != nil {
			before.Kubelet = c.Kubelet.DeepCopy()
		}
		kept, err := profile.Change(profile.Hardened, c, nil)
		if err != nil {
			t.Fatal(err)
		}
		fresh := before
		if before.Kubelet == nil {
			if _, err := profile.Apply(profile.Hardened, &fresh); err != nil || !reflect.DeepEqual(parts(&fresh), parts(c)) {
				t.Fatalf("%v\na new cluster has %+v\na running one    %+v", err, parts(&fresh), parts(c))
			}
		} else if c.Kubelet.MaxPods != before.Kubelet.MaxPods || before.Kubelet.PodPidsLimit != nil && *c.Kubelet.PodPidsLimit != 99 {
			t.Fatalf("the user's fields of the kubelet are %+v", c.Kubelet)
		} else if before.Kubelet.PodPidsLimit != nil && !slices.Contains(kept, "KubeletConfiguration.podPidsLimit") {
			t.Fatalf("%q does not name the user's field", kept)
		}
		if !profile.Used(&c.Cluster) {
			t.Fatal("the profile is not known afterwards")
		}
		again := *c
		if _, err := profile.Change(profile.Hardened, &again, nil); err != nil || !reflect.DeepEqual(parts(&again), parts(c)) {
			t.Fatalf("%v\nonce  %+v\ntwice %+v", err, parts(c), parts(&again))
		}
		if _, err := profile.Change(profile.None, c, nil); err != nil {
			t.Fatal(err)
		}
		if before.Kubelet == nil {
			before.Kubelet = &kubeletv1.KubeletConfiguration{}
		}
		if len(before.APIServer.ExtraArgs) == 0 {
			before.APIServer.ExtraArgs = c.APIServer.ExtraArgs[:0]
		}
		if a, b := nonEmpty(&before), nonEmpty(c); !reflect.DeepEqual(a, b) {
			t.Fatalf("before %+v\nafter  %+v", a, b)
		}
		if _, err := profile.Change(profile.None, c, nil); err != nil || !reflect.DeepEqual(nonEmpty(&before), nonEmpty(c)) {
			t.Fatalf("without a profile, there is something to remove: %v, %+v", err, parts(c))
		}
	})
}

// nonEmpty returns parts with nil for empty lists.
func nonEmpty(c *config.Config) any {
	n := *c
	for _, one := range []*config.Component{&n.APIServer.Component, &n.ControllerManager, &n.Scheduler} {
		if len(one.ExtraArgs) == 0 {
			one.ExtraArgs = nil
		}
		if len(one.ExtraVolumes) == 0 {
			one.ExtraVolumes = nil
		}
	}
	return parts(&n)
}

// TestKeep: documents that leave values of the profile out neither end it nor begin a part of it, and what they set is set.
func TestKeep(t *testing.T) {
	whole := testhost.Config(nil)
	if _, err := profile.Apply(profile.Hardened, whole); err != nil {
		t.Fatal(err)
	}
	flags := []string{"disable-admission-plugins", "v"}
	for _, arg := range whole.APIServer.ExtraArgs {
		flags = append(flags, arg.Name)
	}
	components := func(c *config.Config) []*config.Component {
		return []*config.Component{&c.APIServer.Component, &c.ControllerManager, &c.Scheduler}
	}
	has := func(args config.Args, name string) bool {
		return slices.ContainsFunc(args, func(a config.Arg) bool { return a.Name == name })
	}
	rapid.Check(t, func(t *rapid.T) {
		stored := userValues(t, flags)
		if _, err := profile.Change(profile.Hardened, stored, nil); err != nil {
			t.Fatal(err)
		}
		left := rapid.SliceOfN(rapid.SampledFrom([]string{"profiling", "request-timeout", "terminated-pod-gc-threshold"}), 0, 2).Draw(t, "not in the cluster")
		for _, one := range components(stored) { // an older build had fewer values, or the user took some away
			one.ExtraArgs = slices.DeleteFunc(slices.Clone(one.ExtraArgs), func(a config.Arg) bool { return slices.Contains(left, a.Name) })
		}
		if rapid.Bool().Draw(t, "deferred") && profile.SignsServing(&stored.Cluster) {
			profile.DeferVerification(&stored.Cluster)
		}
		document := userValues(t, flags)
		c := *document
		if _, err := profile.Keep(&c, stored, nil); err != nil {
			t.Fatal(err)
		}
		if !profile.Used(&c.Cluster) || profile.VerifiesServing(&c.Cluster) && !profile.VerifiesServing(&stored.Cluster) {
			t.Fatalf("is %+v", parts(&c))
		}
		for i, one := range components(&c) {
			given, before := components(document)[i].ExtraArgs, components(stored)[i].ExtraArgs
			for _, a := range one.ExtraArgs {
				if !has(given, a.Name) && !has(before, a.Name) {
					t.Fatalf("it adds %+v", a)
				}
			}
			for _, a := range given {
				if !slices.Contains(one.ExtraArgs, a) {
					t.Fatalf("it takes %+v away", a)
				}
			}
			for _, a := range components(whole)[i].ExtraArgs {
				depends := a.Name == "enable-admission-plugins" || a.Name == "kubelet-certificate-authority"
				if has(before, a.Name) && !has(one.ExtraArgs, a.Name) && !depends {
					t.Fatalf("it takes %+v away", a)
				}
			}
		}
		switch k := c.Kubelet; {
		case k == nil || !k.ProtectKernelDefaults || k.PodPidsLimit == nil:
			t.Fatalf("the kubelets have %+v", k)
		case document.Kubelet != nil && (k.MaxPods != document.Kubelet.MaxPods || document.Kubelet.PodPidsLimit != nil && *k.PodPidsLimit != 99):
			t.Fatalf("the kubelets have %+v, the document %+v", k, document.Kubelet)
		}
		again := *document
		if _, err := profile.Keep(&again, &c, nil); err != nil || !reflect.DeepEqual(nonEmpty(&again), nonEmpty(&c)) {
			t.Fatalf("%v\nonce  %+v\ntwice %+v", err, parts(&c), parts(&again))
		}
	})
}

func TestUnknownProfile(t *testing.T) {
	if _, err := profile.Change("cis", testhost.Config(nil), nil); err == nil {
		t.Error("accepted")
	}
}

// Between two runs, API servers do not verify the certificates that the cluster signs. The next change knows that state: it is no value of
// the user.
func TestDeferredVerification(t *testing.T) {
	for _, name := range []string{profile.Hardened, profile.None} {
		c, want := testhost.Config(nil), testhost.Config(nil)
		if _, err := profile.Apply(profile.Hardened, c); err != nil {
			t.Fatal(err)
		}
		if !profile.SignsServing(&c.Cluster) || !profile.VerifiesServing(&c.Cluster) {
			t.Fatal("a new cluster does not verify")
		}
		before := slices.Clone(c.APIServer.ExtraArgs)
		whole := *c
		profile.DeferVerification(&c.Cluster)
		if !profile.SignsServing(&c.Cluster) || profile.VerifiesServing(&c.Cluster) || !slices.Equal(whole.APIServer.ExtraArgs, before) {
			t.Errorf("%+v", c.APIServer.ExtraArgs)
		}
		for _, version := range []string{oracle.Newest, "v1.29.15"} { // a node that joins reads it in the ClusterConfiguration
			c.KubernetesVersion = version
			text, err := render.ClusterConfiguration(c)
			if err != nil {
				t.Fatal(err)
			}
			stored, _, err := config.DecodeClusterConfiguration(text)
			if err != nil || stored.CertificatesDir == "" || !profile.SignsServing(&stored) || profile.VerifiesServing(&stored) {
				t.Errorf("%s: %v\n%s", version, err, text)
			}
		}
		c.KubernetesVersion = whole.KubernetesVersion
		kept, err := profile.Change(name, c, nil)
		if name == profile.Hardened {
			want = &whole
		} else {
			want.Kubelet = &kubeletv1.KubeletConfiguration{}
		}
		if err != nil || len(kept) > 0 || !reflect.DeepEqual(nonEmpty(c), nonEmpty(want)) {
			t.Errorf("%s: %q, %v\nis   %+v\nwant %+v", name, kept, err, nonEmpty(c), nonEmpty(want))
		}
	}
}
