//go:build e2e

package e2e

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"airlift/scripts/lab"
	"airlift/scripts/lab/site"
)

// A seen is what the doctor and the status report.
type seen struct {
	code       int // exit code of status
	took       time.Duration
	Healthy    bool
	Problems   []struct{ Part, Name, Message string }
	Warnings   []struct{ Part, Name, Message string }
	Unknown    map[string]string
	suspicions []struct{ Name, Saw, Why, Fix string }
}

// has reports whether there is a suspicion of a name.
func (s seen) has(name string) bool {
	return slices.ContainsFunc(s.suspicions, func(one struct{ Name, Saw, Why, Fix string }) bool { return one.Name == name })
}

// look runs status and doctor.
func look(t *testing.T, h *lab.Host) (s seen) {
	t.Helper()
	s = statusOf(t, h)
	out := run(t, h, "sh", "-c", "cd /root && rm -rf doctor && mkdir doctor && ./install doctor doctor/x.tar.gz >doctor/printed 2>&1 && tar -xzf doctor/x.tar.gz -C doctor --strip-components=1 && cat doctor/suspicions.json")
	if err := json.Unmarshal([]byte(out), &s.suspicions); err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	return s
}

// statusOf runs status.
func statusOf(t *testing.T, h *lab.Host) (s seen) {
	t.Helper()
	began := time.Now()
	out, err := h.Output(t.Context(), "sh", "-c", "/root/install status -o json 2>/dev/null; echo \"exit $?\"")
	if err != nil {
		t.Fatal(err)
	}
	s.took = time.Since(began)
	document, code, _ := strings.Cut(out, "\nexit ")
	if _, err := fmt.Sscan(code, &s.code); err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	if err := json.Unmarshal([]byte(document), &s); err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	return s
}

// TestDoctor breaks a real control plane in one way at a time. The first suspicion is the cause.
func TestDoctor(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-doctor", Hosts: 2})
	h, worker := s.Hosts[0], s.Hosts[1]
	sh := func(script string) string { t.Helper(); return run(t, h, "sh", "-ec", script) }
	contains(t, install(t, h, 1, "status"), "not a node of a cluster")
	out := install(t, h, 0, "init")
	join, err := site.JoinArgs(out)
	if err != nil {
		t.Fatal(err)
	}

	healthy := func(t *testing.T) {
		t.Helper()
		eventually(t, 2*time.Minute, func() string {
			if now := look(t, h); now.code != 0 || !now.Healthy || len(now.suspicions) > 0 {
				return fmt.Sprintf("%+v", now)
			}
			return ""
		})
	}
	t.Run("healthy", func(t *testing.T) {
		healthy(t)
		text := install(t, h, 0, "status")
		t.Log(text)
		contains(t, text, "control-plane, "+version+", Ready", "kube-apiserver", "1 of 1 members healthy", "coredns", "kube-proxy", "last backup   none", "last run      init, ", "succeeded after", "Nothing is wrong.")
		contains(t, sh("cat /root/doctor/printed"), "Nothing suspicious was found", "The archive is /root/doctor/x.tar.gz")
	})

	t.Run("no secret is in the archive", func(t *testing.T) {
		const planted = "hunter2hunter2hunter2"
		sh(`mkdir -p /etc/containerd/certs.d/registry.example /etc/systemd/system/kubelet.service.d
			printf '[host."https://registry.example".header]\n  Authorization = ["Basic ` + planted + `"]\n' > /etc/containerd/certs.d/registry.example/hosts.toml
			printf '[Service]\nEnvironment=REGISTRY_PASSWORD=` + planted + `\n' > /etc/systemd/system/kubelet.service.d/50-site.conf
			printf 'upstream https://robot:` + planted + `@registry.example\n' >> /etc/hosts
			export KUBECONFIG=/etc/kubernetes/admin.conf
			kubectl -n kube-system create configmap planted --from-literal=config.yaml="$(printf 'password: ` + planted + `\nmode: plain')" --from-file=/etc/kubernetes/pki/ca.key
			kubectl -n kube-system create secret generic planted --from-literal=anything=` + planted + `
			kubectl -n kube-system create token default > /root/jwt
			printf 'apiVersion: v1\nkind: Pod\nmetadata: {name: planted, namespace: kube-system}\nspec:\n  nodeName: nowhere\n  containers:\n  - {name: x, image: x, env: [{name: DB_PASSWORD, value: ` + planted + `}]}\n' | kubectl apply -f -
			journal() { systemd-cat -t kubelet echo "$1"; }
			journal "Authorization: Bearer $(cat /root/jwt)"`)
		look(t, h)
		secrets := []string{planted, base64.StdEncoding.EncodeToString([]byte(planted))[:24], strings.Split(join[3], ".")[1], strings.TrimSpace(sh("cat /root/jwt"))}
		for _, field := range []string{"client-key-data"} {
			for _, file := range []string{"admin.conf", "super-admin.conf", "scheduler.conf"} {
				secrets = append(secrets, strings.Fields(sh("grep " + field + " /etc/kubernetes/" + file))[1])
			}
		}
		for line := range strings.Lines(sh("for key in /etc/kubernetes/pki/*.key /etc/kubernetes/pki/etcd/*.key /var/lib/kubelet/pki/*.pem; do sed -n '/PRIVATE KEY/,/PRIVATE KEY/p' $key | sed -n 2p; done")) {
			secrets = append(secrets, strings.TrimSpace(line))
		}
		if len(secrets) < 14 {
			t.Fatalf("only %d secrets", len(secrets))
		}
		for _, secret := range secrets {
			if found, err := h.Output(t.Context(), "grep", "-rlF", "--exclude=x.tar.gz", "--", secret, "/root/doctor"); err == nil {
				t.Errorf("%q is in %s", secret, found)
			}
		}
		contains(t, sh("cat /root/doctor/api/kube-system/configmaps.yaml"), "name: planted", "[redacted]", "clusterName: kubernetes", "kubernetes cluster.local in-addr.arpa")
		contains(t, sh("cat /root/doctor/files/etc/kubernetes/admin.conf"), "certificate-authority-data: LS0t", "client-key-data: '[redacted]'")
		list := sh("tar -tvzf /root/doctor/x.tar.gz")
		t.Log(list)
		contains(t, list, "/summary.txt", "/status.json", "/certificates.txt", "/network/iptables.txt", "/journal/kubelet.txt", "/api/events.yaml", "/logs/kube-system_etcd-"+h.Name, "/containers/list.txt")
		for line := range strings.Lines(list) {
			if !strings.Contains(line, "nobody/nogroup") {
				t.Error(line)
			}
		}
		sh(`rm -r /etc/containerd/certs.d/registry.example /etc/systemd/system/kubelet.service.d/50-site.conf; sed -i /registry.example/d /etc/hosts
			export KUBECONFIG=/etc/kubernetes/admin.conf; kubectl -n kube-system delete configmap/planted secret/planted; kubectl -n kube-system delete pod planted --force`)
	})

	for _, c := range []struct {
		name, breaks, repairs string
		suspicion, saw        string
		status                int    // its exit code
		problem               string // part of one, if it is 1
	}{
		{"the kubelet is stopped", "systemctl stop kubelet", "systemctl start kubelet", "component-kubelet", "inactive", 1, "kubelet"},
		{"containerd is stopped", "systemctl stop containerd", "systemctl start containerd", "component-containerd", "inactive", 1, "containerd"},
		{"containerd hangs", "systemctl kill -s STOP --kill-whom=main containerd", "systemctl kill -s CONT --kill-whom=main containerd", "component-containerd", "", 1, "containerd"},
		{"a flag of the API server is wrong", "cp /etc/kubernetes/manifests/kube-apiserver.yaml /root/ && sed -i 's/    - kube-apiserver$/&\\n    - --no-such-flag=1/' /etc/kubernetes/manifests/kube-apiserver.yaml",
			"cp /root/kube-apiserver.yaml /etc/kubernetes/manifests/", "component-kube-apiserver", "unknown flag: --no-such-flag", 1, "kube-apiserver"},
		{"a file system is full", "mkdir -p /var/lib/small && mount -t tmpfs -o size=1m small /var/lib/small && ! cat /dev/zero 2>&1 > /var/lib/small/x", "umount /var/lib/small && rmdir /var/lib/small", "disk-full", "/var/lib/small", 0, ""},
		{"a firewall drops what the node needs", "iptables -I INPUT -i lo -j ACCEPT && iptables -I INPUT -i cni0 -j ACCEPT && iptables -I INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT && iptables -P INPUT DROP",
			"iptables -P INPUT ACCEPT; iptables -D INPUT 1; iptables -D INPUT 1; iptables -D INPUT 1", "firewall", "10250", 0, ""},
		{"the clock is behind", "touch -d '+1 hour' /var/lib/airlift/ledger.json", "touch /var/lib/airlift/ledger.json", "clock-behind", "ledger.json", 0, ""},
		{"a certificate has expired", "printf '%s\\n' 'apiVersion: kubeadm.k8s.io/v1beta4' 'kind: ClusterConfiguration' 'certificateValidityPeriod: 5s' > /root/short.yaml && /root/install certs renew apiserver-kubelet-client --config /root/short.yaml && sleep 6",
			"/root/install certs renew apiserver-kubelet-client", "certificate", "apiserver-kubelet-client has expired", 1, "apiserver-kubelet-client"},
	} {
		t.Run(c.name, func(t *testing.T) {
			sh(c.breaks)
			var now seen
			eventually(t, 90*time.Second, func() string {
				now = look(t, h)
				switch {
				case now.code != c.status || now.Healthy != (c.status == 0):
					return fmt.Sprintf("exit code %d: %+v", now.code, now)
				case len(now.suspicions) == 0 || now.suspicions[0].Name != c.suspicion || !strings.Contains(now.suspicions[0].Saw, c.saw):
					return fmt.Sprintf("%+v", now.suspicions)
				}
				return ""
			})
			if c.problem != "" && !strings.Contains(fmt.Sprint(now.Problems), c.problem) {
				t.Errorf("%q is not in %+v", c.problem, now.Problems)
			}
			if now.took > 6*time.Second { // with the start of the process in the lab
				t.Errorf("status took %s", now.took)
			}
			t.Logf("status took %s; suspicions:\n%s", now.took.Round(10*time.Millisecond), sh("cat /root/doctor/summary.txt"))
			sh(c.repairs)
			healthy(t)
		})
	}
	t.Run("an interrupted doctor leaves no file", func(t *testing.T) {
		contains(t, sh("mkdir /root/left; cd /root/left; timeout --preserve-status -s INT 0.6 ../install doctor x.tar.gz >/root/printed 2>&1 || echo code $?; ls -A | wc -l; cat /root/printed"), "code 130", "\n0\n", "error: interrupted")
	})
	t.Run("a damaged ledger", func(t *testing.T) {
		sh("cp /var/lib/airlift/ledger.json /root/ && echo '{' > /var/lib/airlift/ledger.json")
		if now := look(t, h); now.code != 1 || !now.has("ledger") {
			t.Errorf("%+v", now)
		}
		sh("cp /root/ledger.json /var/lib/airlift/ledger.json")
	})
	t.Run("a join that failed", func(t *testing.T) {
		wrong := slices.Clone(join)
		wrong[3] = "abcdef.0123456789abcdef"
		install(t, worker, 1, wrong...)
		if now := look(t, worker); now.code != 1 || !now.has("no-node") {
			t.Errorf("%+v", now)
		}
	})
	t.Run("a worker", func(t *testing.T) {
		install(t, worker, 0, join...)
		eventually(t, time.Minute, func() string {
			if now := look(t, worker); now.code != 0 || len(now.suspicions) > 0 {
				return fmt.Sprintf("%+v", now)
			}
			return ""
		})
		contains(t, install(t, worker, 0, "status"), "worker, "+version+", Ready", "kube-proxy", "etcd          unknown: this host is a worker", "last run      join, ")
		sh("mv /etc/kubernetes/manifests/kube-apiserver.yaml /root/")
		var now seen
		eventually(t, time.Minute, func() string {
			if now = look(t, worker); now.code != 1 || len(now.suspicions) == 0 || now.suspicions[0].Name != "api-unreachable" {
				return fmt.Sprintf("%+v", now)
			}
			return ""
		})
		if now.took > 6*time.Second || now.Unknown["api"] == "" {
			t.Errorf("%+v", now)
		}
		sh("mv /root/kube-apiserver.yaml /etc/kubernetes/manifests/")
		eventually(t, 2*time.Minute, func() string {
			if now := look(t, worker); now.code != 0 {
				return fmt.Sprintf("%+v", now)
			}
			return ""
		})
		install(t, worker, 0, "reset", "--force")
	})
	install(t, h, 0, "reset", "--force")
	contains(t, install(t, h, 1, "status"), "not a node of a cluster")
}
