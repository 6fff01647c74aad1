package cluster_test

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"airlift/installer/cluster"
	"airlift/internal/fault"
)

// adminConf is a kubeconfig as init writes it: all clusters have the same user.
func adminConf(t *testing.T, server, ca, token string) []byte {
	t.Helper()
	c := clientcmdapi.NewConfig()
	c.Clusters["kubernetes"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: []byte(ca)}
	c.AuthInfos["kubernetes-admin"] = &clientcmdapi.AuthInfo{Token: token}
	c.Contexts["kubernetes-admin@kubernetes"] = &clientcmdapi.Context{Cluster: "kubernetes", AuthInfo: "kubernetes-admin"}
	c.CurrentContext = "kubernetes-admin@kubernetes"
	data, err := clientcmd.Write(*c)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// kubectl uses what was merged, keeps what else the files have, and a second merge writes nothing.
func TestMerge(t *testing.T) {
	dir := t.TempDir()
	file, other := filepath.Join(dir, "kube", "config"), filepath.Join(dir, "other")
	t.Setenv("KUBECONFIG", file)
	merge := func(name, server string, conf []byte) (string, bool) {
		t.Helper()
		at, changed, err := cluster.Merge(conf, name, server)
		if err != nil {
			t.Fatal(err)
		}
		return at, changed
	}
	// uses asserts which server and token kubectl uses with a context; "" is the current one.
	uses := func(context, server, token string) {
		t.Helper()
		c, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), &clientcmd.ConfigOverrides{CurrentContext: context}).ClientConfig()
		if err != nil || c.Host != server || c.BearerToken != token {
			t.Errorf("context %q: %+v, %v", context, c, err)
		}
	}
	plant, lab := adminConf(t, "https://10.0.0.10:6443", "CA of plant", "1"), adminConf(t, "https://127.0.0.1:6443", "CA of lab", "2")
	if at, changed := merge("plant", "", plant); at != file || !changed {
		t.Errorf("%s, %v", at, changed)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	uses("", "https://10.0.0.10:6443", "1")
	merge("lab", "https://10.0.0.20:6443", lab)
	uses("lab", "https://10.0.0.20:6443", "2")
	uses("", "https://10.0.0.10:6443", "1") // the current context stays
	// What a user adds stays.
	all, err := clientcmd.LoadFromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	all.Contexts["plant"].Namespace, all.Clusters["plant"].ProxyURL = "shop", "socks5://127.0.0.1:1080"
	if err := clientcmd.WriteToFile(*all, file); err != nil {
		t.Fatal(err)
	}
	before, _ := os.ReadFile(file)
	for range 2 {
		if _, changed := merge("plant", "", plant); changed {
			t.Error("a second merge changes the file")
		}
	}
	if after, _ := os.ReadFile(file); string(after) != string(before) {
		t.Errorf("%s\nwant\n%s", after, before)
	}
	// Renewed credentials replace the former ones, in the file that has them.
	t.Setenv("KUBECONFIG", other+string(filepath.ListSeparator)+file)
	if err := os.WriteFile(other, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, changed := merge("plant", "", adminConf(t, "https://10.0.0.10:6443", "CA of plant", "3")); !changed {
		t.Error("a renewed token changes nothing")
	}
	uses("plant", "https://10.0.0.10:6443", "3")
	now, err := clientcmd.LoadFromFile(file)
	if err != nil || now.AuthInfos["plant-admin"].Token != "3" || now.Contexts["plant"].Namespace != "shop" || now.Clusters["plant"].ProxyURL == "" || !reflect.DeepEqual(now.Clusters["lab"], all.Clusters["lab"]) {
		t.Errorf("%+v, %v", now, err)
	}
	if data, _ := os.ReadFile(other); len(data) > 0 {
		t.Errorf("%s", data)
	}
}

// Entries of others are not replaced, and nothing is written.
func TestMergeRefuses(t *testing.T) {
	conf := adminConf(t, "https://10.0.0.10:6443", "CA", "1")
	file := filepath.Join(t.TempDir(), "config")
	for name, c := range map[string]struct{ has, want string }{
		"another CA":      {`clusters: [{name: plant, cluster: {server: "https://a", certificate-authority-data: eA==}}]`, `already has a cluster "plant" with another CA`},
		"a file as CA":    {`clusters: [{name: plant, cluster: {server: "https://a", certificate-authority: /ca}}]`, `already has a cluster "plant" with another CA`},
		"another context": {`contexts: [{name: plant, context: {cluster: lab, user: joe}}]`, `already has a context "plant" for another cluster or user`},
		"another user":    {`users: [{name: plant-admin, user: {token: x}}]`, `already has a user "plant-admin" of another cluster`},
		"damaged":         {`clusters: 1`, "reading the kubeconfig of this machine"},
	} {
		text := fmt.Sprintf("apiVersion: v1\nkind: Config\n%s\n", c.has)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Setenv("KUBECONFIG", file)
		_, _, err := cluster.Merge(conf, "plant", "")
		if err == nil || !strings.Contains(err.Error(), c.want) || fault.ExitCode(err) != fault.Usage || fault.Hint(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
		if data, _ := os.ReadFile(file); string(data) != text {
			t.Errorf("%s: %s", name, data)
		}
	}
	t.Setenv("KUBECONFIG", "/etc/kubernetes/admin.conf")
	if _, _, err := cluster.Merge(conf, "plant", ""); err == nil || !strings.Contains(err.Error(), "belongs to this node") {
		t.Error(err)
	}
}
