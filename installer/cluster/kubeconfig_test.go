package cluster_test

import (
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"airlift/installer/cluster"
)

// TestWithServer: other clusters that a user added to admin.conf stay; cluster-info has no context.
func TestWithServer(t *testing.T) {
	const clusters = "clusters: [{name: kubernetes, cluster: {server: https://a:6443}}, {name: other, cluster: {server: https://b:6443}}]\n"
	for name, c := range map[string]struct{ context, other string }{
		"admin.conf":   {"current-context: c\ncontexts: [{name: c, context: {cluster: kubernetes, user: u}}]\n", "https://b:6443"},
		"cluster-info": {"", "https://new:6443"},
	} {
		data, err := cluster.WithServer([]byte(clusters+c.context), "https://new:6443")
		if err != nil {
			t.Fatal(err)
		}
		got, err := clientcmd.Load(data)
		if err != nil || got.Clusters["kubernetes"].Server != "https://new:6443" || got.Clusters["other"].Server != c.other {
			t.Errorf("%s: %s, %v", name, data, err)
		}
	}
}
