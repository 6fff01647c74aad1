package fault

import "testing"

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
