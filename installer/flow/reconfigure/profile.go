package reconfigure

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletv1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/desired"
	"airlift/installer/phases"
	"airlift/installer/preflight"
	"airlift/installer/profile"
	"airlift/installer/reconfiguration"
	"airlift/installer/upgradecheck"
)

// accountsPart are the default ServiceAccounts, whose pods have no token with a profile.
const accountsPart = "default ServiceAccounts"

// useProfile gives the new configuration the profile that the user chose, or takes it away. Without a choice, a document takes no value of the
// profile away that the cluster has.
func (r *Reconfigure) useProfile(ctx context.Context, own, initial *config.Config, stored *cluster.Stored) (err error) {
	defer func() { keepOrder(&own.Cluster, &stored.Cluster) }()
	r.profile, r.keepsProfile = r.options.Profile, false
	documented := r.options.Given.Has("ClusterConfiguration") || r.options.Given.Has("KubeletConfiguration")
	keeps := r.profile == "" && !r.options.Node && documented && profile.Used(&stored.Cluster)
	if r.profile == "" && !keeps {
		return nil
	}
	had := config.Config{Cluster: stored.Cluster}
	if had.Kubelet = nil; !stored.DefaultKubelet {
		had.Kubelet = &kubeletv1.KubeletConfiguration{}
		if err := yaml.Unmarshal(stored.Kubelet, had.Kubelet); err != nil {
			return fmt.Errorf("reading the KubeletConfiguration of the cluster: %w", err)
		}
	}
	c := *own
	if c.Kubelet == nil && had.Kubelet != nil {
		c.Kubelet = had.Kubelet.DeepCopy()
	}
	var before *kubeletv1.KubeletConfiguration
	if c.Kubelet != nil {
		before = c.Kubelet.DeepCopy()
	}
	if keeps {
		r.profile = profile.Hardened
		r.kept, err = profile.Keep(&c, &had, r.options.Given)
		keepOrder(&c.Cluster, &own.Cluster)
		r.keepsProfile = !reflect.DeepEqual(before, c.Kubelet) || !sameComponents(&c.Cluster, &own.Cluster)
	} else {
		r.kept, err = profile.Change(r.profile, &c, r.options.Given)
	}
	if err != nil {
		return err
	}
	if reflect.DeepEqual(before, c.Kubelet) {
		c.Kubelet = own.Kubelet
	}
	r.hardens = profile.Used(&c.Cluster) && !profile.Used(&stored.Cluster)
	own.Cluster = c.Cluster
	return r.inTwoRuns(ctx, own, initial, stored)
}

func sameComponents(a, b *config.Cluster) bool {
	return reflect.DeepEqual(a.APIServer.Component, b.APIServer.Component) && reflect.DeepEqual(a.ControllerManager, b.ControllerManager) && reflect.DeepEqual(a.Scheduler, b.Scheduler)
}

// profileFiles are the files of the profile that the cluster does not keep yet. One that it keeps may have been replaced by the user.
func (r *Reconfigure) profileFiles() []reconfiguration.File {
	if r.profile != profile.Hardened {
		return nil
	}
	return slices.DeleteFunc(profile.Files(&r.Config.Cluster), func(f reconfiguration.File) bool {
		has := func(other reconfiguration.File) bool { return other.Path == f.Path }
		return slices.ContainsFunc(r.filesBefore, has) || slices.ContainsFunc(r.options.Files, has)
	})
}

// changesAccounts reports whether pods of default ServiceAccounts get a token, or none any more.
func (r *Reconfigure) changesAccounts() bool {
	return r.options.Profile != "" && (profile.Used(&r.former.Cluster) || profile.Used(&r.Config.Cluster))
}

func (r *Reconfigure) accounts(context.Context) (l desired.List, err error) {
	for _, o := range profile.DefaultAccounts() {
		account := o.(*corev1.ServiceAccount)
		account.AutomountServiceAccountToken = new(!profile.Used(&r.Config.Cluster))
		l.Objects = append(l.Objects, account)
	}
	return l, nil
}

// checkEtcdUser refuses a profile with which etcd could not start on this control plane.
func (r *Reconfigure) checkEtcdUser(ctx context.Context, _ *upgradecheck.Target) ([]preflight.Problem, error) {
	if !r.IsControlPlane() || r.Config.Etcd.External != nil || profile.Used(&r.former.Cluster) && !r.options.Node {
		return nil, nil
	}
	return preflight.EtcdUser(ctx, r.Config, r.Existing), nil
}

// accountNames are the names of the default ServiceAccounts, for undo.
func accountNames() (names []cluster.ObjectName) {
	for _, o := range profile.DefaultAccounts() {
		account := o.(*corev1.ServiceAccount)
		names = append(names, cluster.ObjectName{APIVersion: "v1", Kind: "ServiceAccount", Namespace: account.Namespace, Name: account.Name})
	}
	return names
}

// writeKubeletConfig writes the kubelet's configuration, after the kernel parameters without which the kubelet does not start with it.
func (r *Reconfigure) writeKubeletConfig(ctx context.Context, l desired.List) error {
	for _, f := range l.Files {
		if f.Path == config.KubeletConfigFile && phases.ProtectsKernelDefaults(f.Data) {
			if err := r.Node.SetSysctls(ctx, f.Data); err != nil {
				return err
			}
		}
	}
	return r.WriteKubeletConfig(ctx, l)
}

// profileWarnings are values that the profile does not change, and what runs and could not be created again with it.
func (r *Reconfigure) profileWarnings(ctx context.Context) (list []preflight.Problem) {
	add := func(fix, format string, args ...any) {
		list = append(list, preflight.Problem{Name: "Profile", Message: fmt.Sprintf(format, args...), Fix: fix})
	}
	for _, value := range r.kept {
		add("to use the value of the profile, remove it from the file", "--profile %s does not change %s", r.profile, value)
	}
	if r.keepsProfile {
		add("to take the profile away: --profile none", "the document leaves out values of the profile %s, and the cluster keeps them", r.profile)
	}
	list = append(list, r.verificationWarnings()...)
	if !r.hardens {
		return list
	}
	if reconfiguration.FileOf(&r.Config.Cluster, "kube-apiserver", encryptionFlag) == "" {
		add("then run ./install secrets enable; cluster apply does it, too", "the profile of a new cluster also encrypts Secrets in etcd; this command does not")
	}
	if level, ok := profile.PodSecurity(&r.Config.Cluster); ok {
		refused, err := r.API.Client.RefusedPods(ctx, level.Enforce, level.Version, level.Exempt)
		if err != nil {
			add("look at their pods: ./install docs hardening", "it is not known which running pods Pod Security would refuse: %v", err)
		}
		for _, one := range refused {
			add("change the pods; or give the namespace another level: kubectl label namespace "+one.Namespace+" pod-security.kubernetes.io/enforce=baseline",
				"these pods of namespace %s run on, but Pod Security %s refuses them when they are created again: %s", one.Namespace, level.Enforce, strings.Join(one.Reasons, "; "))
		}
	}
	for _, name := range accountNames() {
		pods, err := r.API.Client.API.CoreV1().Pods(name.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			add("see whether their pods use the API", "the pods of ServiceAccount %s/%s cannot be listed: %v", name.Namespace, name.Name, err)
			continue
		}
		var using []string
		for _, p := range pods.Items {
			if p.Annotations[corev1.MirrorPodAnnotationKey] == "" && p.Spec.ServiceAccountName == name.Name && p.Spec.AutomountServiceAccountToken == nil {
				using = append(using, p.Name)
			}
		}
		if len(using) > 0 {
			add("if they use the API, give them a ServiceAccount of their own, or automountServiceAccountToken: true",
				"these pods of ServiceAccount %s/%s get no token when they are created again: %s", name.Namespace, name.Name, strings.Join(using, ", "))
		}
	}
	return list
}
