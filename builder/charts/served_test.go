package charts

import (
	"slices"
	"testing"
)

// The expected values are from the lifecycle of the types in k8s.io/api. TestSiteContent in e2e
// compares the whole list with a real API server.
func TestServed(t *testing.T) {
	for _, c := range []struct {
		minor int
		api   string
		want  bool
	}{
		{37, "v1", true}, {37, "v1/Pod", true}, {37, "v1/ConfigMap", true}, {37, "apps/v1/Deployment", true},
		{37, "networking.k8s.io/v1/Ingress", true}, {37, "batch/v1/CronJob", true}, {37, "autoscaling/v2/HorizontalPodAutoscaler", true},
		{37, "policy/v1/PodDisruptionBudget", true}, {37, "apiextensions.k8s.io/v1/CustomResourceDefinition", true},
		{37, "apiregistration.k8s.io/v1", true}, {37, "coordination.k8s.io/v1/Lease", true}, {37, "rbac.authorization.k8s.io/v1/ClusterRole", true},
		{37, "v1/PodList", false}, {37, "v1/DeleteOptions", false}, {37, "v1/WatchEvent", false},
		{37, "policy/v1beta1", false}, {37, "policy/v1beta1/PodSecurityPolicy", false}, {37, "extensions/v1beta1", false},
		{37, "autoscaling/v2beta2", false}, {37, "batch/v1beta1", false}, {37, "apps/v1beta1", false}, {37, "monitoring.coreos.com/v1", false},
		{29, "flowcontrol.apiserver.k8s.io/v1beta3", true}, {37, "flowcontrol.apiserver.k8s.io/v1beta3", false},
		{29, "flowcontrol.apiserver.k8s.io/v1/FlowSchema", true},
		{29, "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy", false}, {30, "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy", true},
		{33, "resource.k8s.io/v1", false}, {34, "resource.k8s.io/v1", true}, {37, "resource.k8s.io/v1alpha3", false},
		{37, "storage.k8s.io/v1/StorageClass", true}, {29, "networking.k8s.io/v1/IPAddress", false},
	} {
		if got := slices.Contains(served(c.minor), c.api); got != c.want {
			t.Errorf("1.%d serves %s: %v", c.minor, c.api, got)
		}
	}
	if t.Failed() {
		t.Log(served(37))
	}
}

func TestChoose(t *testing.T) {
	versions := []string{"0.1.0", "1.2.0", "v1.3.0", "2.0.0-rc.1", "latest", "1.3.0-alpha"}
	for wanted, want := range map[string]string{
		"": "v1.3.0", "*": "v1.3.0", "~1.2": "1.2.0", "1.2.0": "1.2.0", "latest": "latest", ">0.0.0-0": "2.0.0-rc.1", "1.3.0": "v1.3.0", "5": "",
	} {
		if got, _ := choose(versions, wanted); got != want {
			t.Errorf("%q: %q, want %q", wanted, got, want)
		}
	}
}
