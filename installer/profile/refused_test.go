package profile_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/profile"
	"airlift/scripts/oracle"
)

// TestRefusedPods: of pods that run when a cluster gets the profile, exactly those are named that a real API server with the profile does
// not create again. Namespaces with a level of their own are left alone.
func TestRefusedPods(t *testing.T) {
	pods := map[string]func(*corev1.PodSpec){
		"fits":    nil,
		"network": func(p *corev1.PodSpec) { p.HostNetwork = true },
		"root":    func(p *corev1.PodSpec) { p.Containers[0].SecurityContext.RunAsNonRoot = nil },
		"bare":    func(p *corev1.PodSpec) { p.Containers[0].SecurityContext = nil },
	}
	for _, version := range oracle.Versions {
		t.Run(version, func(t *testing.T) {
			s := start(t, version)
			const label = "pod-security.kubernetes.io/enforce"
			for _, name := range []string{"site", "labelled"} {
				s.namespace(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{label: "privileged"}}})
				for own, change := range pods {
					p := pod(change)
					p.Name = own
					if _, err := s.client.CoreV1().Pods(name).Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
						t.Fatal(err)
					}
				}
			}
			n, err := s.client.CoreV1().Namespaces().Get(t.Context(), "site", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			delete(n.Labels, label)
			if _, err := s.client.CoreV1().Namespaces().Update(t.Context(), n, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			c := &config.Config{}
			c.KubernetesVersion = version
			if _, err := profile.Apply(profile.Hardened, c); err != nil {
				t.Fatal(err)
			}
			level, ok := profile.PodSecurity(&c.Cluster)
			if !ok || level.Enforce != "restricted" || !slices.Equal(level.Exempt, []string{metav1.NamespaceSystem}) {
				t.Fatalf("%+v", level)
			}
			client := &cluster.Client{API: s.client}
			// This server has the level already: it compares pods only with another level or version.
			refused, err := client.RefusedPods(t.Context(), level.Enforce, "latest", level.Exempt)
			if err != nil || len(refused) != 1 || refused[0].Namespace != "site" {
				t.Fatalf("%+v, %v", refused, err)
			}
			t.Logf("%q", refused[0].Reasons)
			for name, change := range pods {
				p := pod(change)
				p.Name = name + "-again"
				err := s.create(t, "site", p)
				named := strings.Contains(strings.Join(refused[0].Reasons, "\n"), name)
				if apierrors.IsForbidden(err) != named || err != nil && !named {
					t.Errorf("%s: created again: %v; named: %t in %q", name, err, named, refused[0].Reasons)
				}
			}
			if n, err = s.client.CoreV1().Namespaces().Get(t.Context(), "site", metav1.GetOptions{}); err != nil || n.Labels[label] != "" {
				t.Errorf("the namespace was changed: %v, %v", n.Labels, err)
			}
		})
	}
}
