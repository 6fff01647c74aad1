package wait

import "testing"

func TestSummary(t *testing.T) {
	for _, tt := range []struct {
		missing []string
		want    string
	}{
		{nil, ""},
		{[]string{"kube-system/etcd-host1: does not exist"}, "etcd-host1"},
		{[]string{
			"kube-system/coredns-76f75df574-abcde: Pending",
			"kube-system/coredns-76f75df574-fghij: container coredns: CrashLoopBackOff",
			"kube-system/kube-proxy-zzzzz: Pending",
			"deployment kube-system/coredns: 0 of 2 pods ready",
			"daemonset kube-system/kube-proxy: 0 of 1 pods ready",
			"kube-system/etcd-host1: does not exist",
		}, "coredns (2), kube-proxy, etcd-host1"},
		{[]string{"kube-system/coredns-76f75df574-abcde: Pending"}, "coredns-76f75df574-abcde"},
	} {
		if got := Summary(tt.missing); got != tt.want {
			t.Errorf("%q: %q, want %q", tt.missing, got, tt.want)
		}
	}
}
