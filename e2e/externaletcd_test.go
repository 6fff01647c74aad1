//go:build e2e

package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"airlift/installer/flow/join"
	"airlift/scripts/lab"
	"airlift/scripts/oracle/upstream/components"
)

// TestExternalEtcd creates a cluster with an external etcd on a separate host with its own
// certificates, and adds a control plane to the cluster.
func TestExternalEtcd(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-etcd", Hosts: 3})
	control, store, other := s.Hosts[0], s.Hosts[1], s.Hosts[2]
	runEtcd(t, store, control)
	for _, h := range []*lab.Host{control, other} {
		endpointAt(t, h, control)
	}
	bare := map[*lab.Host]string{control: untouched(t, control), other: untouched(t, other)}

	run(t, control, "sh", "-c", fmt.Sprintf(`cat >/root/kubeadm.yaml <<'END'
apiVersion: kubeadm.k8s.io/v1beta3
kind: ClusterConfiguration
controlPlaneEndpoint: %s:6443
etcd:
  external:
    endpoints:
    - https://%s:2379
    caFile: /etc/site-etcd/ca.crt
    certFile: /etc/site-etcd/client.crt
    keyFile: /etc/site-etcd/client.key
END`, endpoint, store.Addr))
	out := install(t, control, 0, "init", "--config", "/root/kubeadm.yaml", "--upload-certs")
	systemIsUp(t, s, 1)
	pods := kubectl(t, s, "-n", "kube-system", "get", "pods", "-o", "name")
	if strings.Contains(pods, "etcd") {
		t.Errorf("an etcd of its own:\n%s", pods)
	}
	kubectl(t, s, "create", "configmap", "here", "--from-literal", "a=b")
	stored := func() string {
		return run(t, store, "sh", "-c", siteEtcdctl(store)+" get --prefix /registry/configmaps/default/ --keys-only")
	}
	contains(t, stored(), "/registry/configmaps/default/here")
	contains(t, install(t, control, 0, "init", "--config", "/root/kubeadm.yaml"), "Nothing was changed")

	// The etcd client certificate is uploaded for the next control plane, which joins phase
	// by phase, each in a separate process.
	m := regexp.MustCompile(`(?m)^\s*\./install (join .* --control-plane --certificate-key [0-9a-f]{64})$`).FindStringSubmatch(out)
	if m == nil {
		t.Fatal("no join command for a control plane")
	}
	flags := strings.Fields(m[1])[1:]
	for _, phase := range phases(join.Phases(true)) {
		install(t, other, 0, slices.Concat([]string{"join", "phase"}, phase, flags)...)
	}
	contains(t, install(t, other, 0, strings.Fields(m[1])...), "Nothing was changed")
	systemIsUp(t, s, 2)
	contains(t, kubectlAt(t, other, "get", "configmap", "here", "-o", "jsonpath={.data}"), `"a":"b"`)
	contains(t, run(t, other, "cat", "/etc/kubernetes/manifests/kube-apiserver.yaml"), "--etcd-servers=https://"+store.Addr.String()+":2379", "/etc/site-etcd/client.key")
	run(t, other, "test", "!", "-e", "/etc/kubernetes/manifests/etcd.yaml")

	// The cluster's CAs are replaced. That of the external etcd belongs to the site.
	etcdFiles := func() (all string) {
		for _, h := range []*lab.Host{control, other} {
			all += run(t, h, "sh", "-c", "sha256sum /etc/site-etcd/*; ! ls /etc/kubernetes/pki/etcd")
		}
		return all
	}
	before, former := etcdFiles(), run(t, control, "cat", "/etc/kubernetes/pki/ca.crt")
	key := rotationKey(t, install(t, control, 0, "certs", "rotate-ca", "distribute"))
	install(t, other, 0, "certs", "rotate-ca", "distribute", "--certificate-key", key)
	for _, stage := range []string{"issue", "finish"} {
		for _, h := range []*lab.Host{control, other} {
			install(t, h, 0, "certs", "rotate-ca", stage)
		}
	}
	if now := run(t, control, "cat", "/etc/kubernetes/pki/ca.crt"); now == former || now != run(t, other, "cat", "/etc/kubernetes/pki/ca.crt") {
		t.Errorf("the CA is not the same new one on both hosts:\n%s", now)
	}
	same(t, before, etcdFiles())
	systemIsUp(t, s, 2)
	contains(t, kubectlAt(t, other, "get", "configmap", "here", "-o", "jsonpath={.data}"), `"a":"b"`)

	for _, h := range []*lab.Host{other, control} {
		answered(t, h, 0, "reset")
		same(t, bare[h], untouched(t, h))
	}
	contains(t, stored(), "/registry/configmaps/default/here")
	contains(t, run(t, store, "sh", "-c", siteEtcdctl(store)+" endpoint health 2>&1"), "is healthy")
}

// runEtcd starts etcd on a host, and copies a client certificate to another host. openssl
// creates all certificates, as a site would.
func runEtcd(t *testing.T, on, client *lab.Host) {
	t.Helper()
	dir := t.TempDir()
	const script = `set -e; cd "$1"
		openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.crt -subj /CN=site-etcd-ca -days 30
		for n in server client; do
			openssl req -newkey rsa:2048 -nodes -keyout $n.key -out $n.csr -subj /CN=site-etcd-$n
			printf 'subjectAltName=IP:%s\nextendedKeyUsage=%sAuth\n' "$2" $n >$n.ext
			openssl x509 -req -in $n.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 30 -extfile $n.ext -out $n.crt
		done`
	if out, err := exec.Command("sh", "-c", script, "sh", dir, on.Addr.String()).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	put := func(h *lab.Host, files ...string) {
		for _, f := range files {
			if _, err := h.CopyIn(t.Context(), filepath.Join(dir, f), "/etc/site-etcd/"+f, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	run(t, on, "mkdir", "-p", "/etc/site-etcd")
	run(t, client, "mkdir", "-p", "/etc/site-etcd")
	put(on, "ca.crt", "server.crt", "server.key", "client.crt", "client.key")
	put(client, "ca.crt", "client.crt", "client.key")
	for _, name := range []string{"etcd", "etcdctl"} {
		path, err := components.Path(version, name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := on.CopyIn(t.Context(), path, "/usr/local/bin/"+name, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	url := "https://" + on.Addr.String() + ":2379"
	run(t, on, "systemd-run", "--unit", "site-etcd", "/usr/local/bin/etcd", "--name", "site", "--data-dir", "/var/lib/site-etcd",
		"--listen-client-urls", url, "--advertise-client-urls", url, "--client-cert-auth", "--trusted-ca-file", "/etc/site-etcd/ca.crt",
		"--cert-file", "/etc/site-etcd/server.crt", "--key-file", "/etc/site-etcd/server.key")
	eventually(t, 30*time.Second, func() string {
		if _, err := on.Output(t.Context(), "sh", "-c", siteEtcdctl(on)+" endpoint health"); err != nil {
			return err.Error()
		}
		return ""
	})
}

func siteEtcdctl(h *lab.Host) string {
	return "etcdctl --endpoints https://" + h.Addr.String() + ":2379 --cacert /etc/site-etcd/ca.crt --cert /etc/site-etcd/client.crt --key /etc/site-etcd/client.key"
}
