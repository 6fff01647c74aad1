package cluster

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestEditedByHand: what wrote an object last decides, and its status does not count.
func TestEditedByHand(t *testing.T) {
	entry := func(manager string, minute int, subresource string) metav1.ManagedFieldsEntry {
		at := metav1.NewTime(time.Date(2026, 11, 27, 0, minute, 0, 0, time.UTC))
		return metav1.ManagedFieldsEntry{Manager: manager, Time: &at, Subresource: subresource}
	}
	for name, c := range map[string]struct {
		fields []metav1.ManagedFieldsEntry
		want   bool
	}{
		"nobody":     {nil, false},
		"no time":    {[]metav1.ManagedFieldsEntry{{Manager: "kubectl-edit"}}, false},
		"Airlift":    {[]metav1.ManagedFieldsEntry{entry("airlift-install", 1, ""), entry("kube-controller-manager", 3, "status")}, false},
		"kubectl":    {[]metav1.ManagedFieldsEntry{entry("airlift-install", 1, ""), entry("kubectl-edit", 2, "")}, true},
		"controller": {[]metav1.ManagedFieldsEntry{entry("airlift-install", 1, ""), entry("kubectl-edit", 2, ""), entry("kube-controller-manager", 3, "")}, true},
		"restored":   {[]metav1.ManagedFieldsEntry{entry("kubectl-edit", 2, ""), entry("airlift-install", 3, "")}, false},
		"its status": {[]metav1.ManagedFieldsEntry{entry("kubeadm", 1, ""), entry("other", 2, "status")}, false},
	} {
		if got := EditedByHand(c.fields); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
