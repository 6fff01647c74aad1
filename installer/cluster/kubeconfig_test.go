package cluster_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"airlift/installer/cluster"
	"airlift/installer/pki"
	"airlift/scripts/fixtures/testhost"
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

// TestCheckOne: each line more in a kubeconfig that a control plane sent is refused, and with it what kubectl would do here.
func TestCheckOne(t *testing.T) {
	ca := base64.StdEncoding.EncodeToString(caOf(t))
	const secret = "c2VjcmV0"
	lines := []string{
		"apiVersion: v1", "kind: Config", "current-context: me@c", "preferences: {}", "clusters:", "- name: c", "  cluster:", "    server: https://10.0.0.1:6443", "    certificate-authority-data: " + ca,
		"contexts:", "- name: me@c", "  context:", "    cluster: c", "    user: me", "users:", "- name: me", "  user:", "    client-certificate-data: " + secret, "    client-key-data: " + secret,
	}
	join := func(lines []string) []byte { return []byte(strings.Join(lines, "\n") + "\n") }
	if err := cluster.CheckOne(join(lines)); err != nil {
		t.Fatal(err)
	}
	with := func(after, line string) []byte {
		var more []string
		for _, l := range lines {
			more = append(more, l)
			if l == after {
				more = append(more, line)
			}
		}
		return join(more)
	}
	inUser, inCluster, inContext := "  user:", "  cluster:", "  context:"
	for name, data := range map[string][]byte{
		"exec": with(inUser, "    exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/sh, interactiveMode: Never}"), "auth-provider": with(inUser, "    auth-provider: {name: oidc}"),
		"client-certificate\"": with(inUser, "    client-certificate: /x"), "client-key\"": with(inUser, "    client-key: /x"), "tokenFile": with(inUser, "    tokenFile: /x"), "as\"": with(inUser, "    as: root"),
		"as-groups": with(inUser, "    as-groups: [a]"), "username": with(inUser, "    username: a"), "proxy-url": with(inCluster, "    proxy-url: http://x"), "tls-server-name": with(inCluster, "    tls-server-name: x"),
		"insecure-skip-tls-verify": with(inCluster, "    insecure-skip-tls-verify: true"), "certificate-authority\"": with(inCluster, "    certificate-authority: /x"),
		"disable-compression": with(inCluster, "    disable-compression: true"), "extensions": with("kind: Config", "extensions: [{name: a, extension: {}}]"), "colors": []byte(strings.Replace(string(join(lines)), "preferences: {}", "preferences: {colors: true}", 1)),
		"Exec": with(inUser, "    Exec: {command: /bin/sh}"), "unknown field": with(inUser, "    credential-plugin: x"), "unknown field \"namespaces": with(inContext, "    namespaces: x"),
		"2 users": with("users:", "- {name: other, user: {token: x}}"), "2 clusters": with("clusters:", "- {name: o, cluster: {server: 'https://x'}}"), "2 contexts": with("contexts:", "- {name: o, context: {cluster: c, user: me}}"),
		"its server": []byte(strings.Replace(string(join(lines)), "https://10", "http://10", 1)), "its current context": []byte(strings.Replace(string(join(lines)), "me@c", "you@c", 1)),
		"no CA": []byte(strings.Replace(string(join(lines)), ca, "", 1)), "second document": append(join(lines), "---\n{}\n"...), "written twice": with("kind: Config", "kind: Config"), "no credentials": join(lines[:len(lines)-2]), "0 clusters": nil,
	} {
		if err := cluster.CheckOne(data); err == nil || !strings.Contains(fmt.Sprintf("%q", err.Error())+err.Error(), name) && !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(name)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A discovery file may have no user, or several.
	if err := cluster.CheckEmbedded(join(lines[:14])); err != nil {
		t.Error(err)
	}
	if err := cluster.CheckEmbedded(with(inUser, "    exec: {command: /bin/sh}")); err == nil {
		t.Error("a command in a discovery file is accepted")
	}
}

// caOf returns the certificate of a CA, in PEM.
func caOf(t *testing.T) []byte {
	t.Helper()
	made, err := pki.Ensure(testhost.Config(nil), fstest.MapFS{}, time.Now(), "ca")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range made.Files {
		if strings.HasSuffix(f.Path, "ca.crt") {
			return f.Data
		}
	}
	t.Fatal("no CA was made")
	return nil
}
