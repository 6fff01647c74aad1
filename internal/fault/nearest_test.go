package fault

import (
	"slices"
	"testing"
)

func TestSimilar(t *testing.T) {
	candidates := []string{"maxPods", "podsPerCore", "maxOpenFiles", "imageGCHighThresholdPercent", "evictionHard", "podPidsLimit"}
	for written, want := range map[string][]string{
		"maxPodsPerNode":  {"maxPods", "podsPerCore"},
		"pod_limit":       {"podPidsLimit", "maxPods"},
		"imageGCHigh":     {"imageGCHighThresholdPercent"},
		"somethingOfElse": nil,
	} {
		if got := Similar(written, candidates, 2); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", written, got, want)
		}
	}
}

func TestNearest(t *testing.T) {
	candidates := []string{"clusterName", "certSANs", "apiserver", "apiserver-kubelet-client"}
	for written, want := range map[string]string{
		"clustreName": "clusterName", // two letters changed
		"certSans":    "certSANs",
		"apise":       "apiserver", // begun
		"etcd":        "",
		"":            "",
	} {
		if got := Nearest(written, candidates); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", written, got, want)
		}
	}
}
