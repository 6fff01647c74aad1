package redact

import (
	"strings"
	"testing"
)

// TestLogsAreKept: messages of the components, as they are in real logs, stay as they are.
func TestLogsAreKept(t *testing.T) {
	for line := range strings.Lines(`I1126 12:00:00.000000       1 options.go:221] external host was not specified, using 10.77.0.11
I1126 12:00:00.000000       1 controllermanager.go:739] "Started controller" controller="token-cleaner-controller"
I1126 12:00:00.000000       1 shared_informer.go:320] Caches are synced for bootstrap_signer
E1126 12:00:00.000000       1 reflector.go:166] "Unhandled Error" err="k8s.io/client-go/informers/factory.go:160: Failed to watch *v1.Secret: failed to list *v1.Secret: Get \"https://10.77.0.11:6443/api/v1/secrets?limit=500&resourceVersion=0\": dial tcp 10.77.0.11:6443: connect: connection refused"
E1126 12:00:00.000000    1234 pod_workers.go:1301] "Error syncing pod, skipping" err="failed to \"StartContainer\" for \"etcd\" with CrashLoopBackOff: \"back-off 10s restarting failed container=etcd pod=etcd-host1_kube-system(0123456789abcdef0123456789abcdef)\"" pod="kube-system/etcd-host1" podUID="0123456789abcdef0123456789abcdef"
I1126 12:00:00.000000       1 replica_set.go:679] "Finished syncing" logger="replicaset-controller" kind="ReplicaSet" key="kube-system/coredns-7c65d6cfc9" duration="24.5µs"
E1126 12:00:00.000000       1 run.go:72] "command failed" err="failed to load kubelet config file, path: /var/lib/kubelet/config.yaml, error: strict decoding error: unknown field \"x\""
Error: unknown flag: --no-such-flag
{"level":"info","ts":"2026-11-26T12:00:00.000000Z","caller":"embed/etcd.go:140","msg":"configuring peer listeners","listen-peer-urls":["https://10.77.0.11:2380"]}
{"level":"info","ts":"2026-11-26T12:00:00.000000Z","caller":"etcdmain/etcd.go:73","msg":"Running: ","args":["etcd","--advertise-client-urls=https://10.77.0.11:2379","--cert-file=/etc/kubernetes/pki/etcd/server.crt","--client-cert-auth=true","--key-file=/etc/kubernetes/pki/etcd/server.key"]}
{"level":"warn","ts":"2026-11-26T12:00:00.000000Z","caller":"etcdserver/util.go:170","msg":"apply request took too long","took":"150ms","expected-duration":"100ms","prefix":"read-only range ","request":"key:\"/registry/health\" ","response":"","error":"etcdserver: no leader"}
time="2026-11-26T12:00:00.000000000Z" level=info msg="loading plugin" id=io.containerd.snapshotter.v1.overlayfs type=io.containerd.snapshotter.v1
time="2026-11-26T12:00:00.000000000Z" level=error msg="PullImage \"registry.k8s.io/pause:3.10@sha256:ee6521f290b2168b6e0935a181d4cff9be1ac3f505666ef0e3c98fae8199917a\" failed" error="failed to do request: Head \"https://registry.k8s.io/v2/pause/manifests/3.10\": dial tcp: lookup registry.k8s.io: no such host"
[INFO] plugin/reload: Running configuration SHA512 = 591cf328cccc12bc490481273e738df59329c62c0b729d94e8b61db9961c2fa5f046dd37f1cf888b953814040d180f52594972691cd6ff41be96639138a43908
[ERROR] plugin/errors: 2 example.com. A: read udp 10.244.0.2:45000->10.0.0.1:53: i/o timeout
W1126 12:00:00.000000       1 authentication.go:397] Error looking up in-cluster authentication configuration: Get "https://10.77.0.11:6443/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication": dial tcp 10.77.0.11:6443: connect: connection refused
E1126 12:00:00.000000       1 authentication.go:73] "Unable to authenticate the request" err="[invalid bearer token, service account token has expired]"
E1126 12:00:00.000000    1234 kubelet.go:2344] "Skipping pod synchronization" err="[container runtime status check may not have completed yet, PLEG is not healthy: pleg has yet to be successful]"
E1126 12:00:00.000000    1234 nestedpendingoperations.go:348] Operation for "{volumeName:kubernetes.io/secret/0e0e0e0e-aaaa-bbbb-cccc-0123456789ab-certs podName:0e0e0e0e nodeName:}" failed. No retries permitted until 2026-11-26 12:00:00
MountVolume.SetUp failed for volume "certs" : secret "web-tls" not found
kernel: overlayfs: missing 'lowerdir'
Flag --pod-infra-container-image has been deprecated, will be removed in 1.35. Image garbage collector will get sandbox image information from CRI.
certificate signed by unknown authority (possibly because of "crypto/rsa: verification error" while trying to verify candidate authority certificate "kubernetes")
panic: freepages: failed to get all reachable pages (page 123: multiple references)
E1126 12:00:00.000000    1234 kubelet_pods.go:965] "Unable to retrieve pull secret, the image pull may not succeed." pod="default/x" secret="" err="secret \"regcred\" not found"
E1126 12:00:00.000000    1234 server.go:312] "Unable to authenticate the request due to an error" err="verifying certificate SN=123, SKID=AB:CD:EF, AKID=AB:CD failed: x509: certificate signed by unknown authority"
E1126 12:00:00.000000       1 run.go:72] "command failed" err="loading certificate and key: open /etc/kubernetes/pki/etcd/server.key: permission denied"
E1126 12:00:00.000000    1234 projected.go:198] Error preparing data for projected volume kube-api-access-abcde for pod kube-system/x: failed to fetch token: serviceaccounts "default" is forbidden: User "system:node:host1" cannot create resource "serviceaccounts/token" in API group "" in the namespace "kube-system": no relationship found
E1126 12:00:00.000000       1 cacher.go:1] cacher (secrets): unexpected ListAndWatch error: failed to list *core.Secret: unable to transform key "/registry/secrets/default/x": no matching prefix found; reinitializing...
{"level":"info","ts":"2026-11-26T12:00:00Z","caller":"embed/etcd.go:310","msg":"starting an etcd server","auth-token":"simple","discovery-token":"","data-dir":"/var/lib/etcd","max-wals":5}
time="2026-11-26T12:00:00Z" level=error msg="pull failed" error="pull access denied, repository does not exist or may require authorization: server message: insufficient_scope: authorization failed"
+ export KUBECONFIG=/etc/kubernetes/admin.conf
iptables -w 5 -W 100000 -t nat -A KUBE-SERVICES -d 10.96.0.1/32 -p tcp -m tcp --dport 443 -j KUBE-SVC-X
/go/pkg/mod/k8s.io/client-go@v0.31.0/tools/cache/reflector.go:243 +0x1f
  -p, --port int   port of the metrics
I1126 12:00:00.000000    1234 prober.go:120] "Probe failed" probeType="Liveness" err="Get \"http://10.244.0.2:8080/health\": dial tcp 10.244.0.2:8080: connect: connection refused"
{"level":"info","ts":"2026-11-26T12:00:00Z","logger":"x","msg":"reconciled","pod":{"name":"coredns","namespace":"kube-system"},"took":1.5}
time="2026-11-26T12:00:00Z" level=info msg="shim disconnected" id=abc namespace=k8s.io error="exec: \"/usr/bin/runc\": no such file or directory"
https://10.96.0.1:443/healthz etcd ok https://kubernetes.io/docs/setup/production-environment/container-runtimes/
`) {
		line = strings.TrimSuffix(line, "\n")
		if got := string(Log([]byte(line))); got != line {
			t.Errorf("became\n%s\nfrom\n%s", got, line)
		}
	}
}

// TestRecordOfAddressesIsKept: whoever confirms a plan sees which addresses it records, and nothing that only looks like the record.
func TestRecordOfAddressesIsKept(t *testing.T) {
	of := func(value string) string {
		return string(Documents([]byte("apiVersion: v1\nkind: ConfigMap\ndata:\n  host3: '" + value + "'\n")))
	}
	for _, value := range []string{`{"uid":"0e0e0e0e-aaaa","addresses":["10.77.0.13","fd00::13"]}`, `{"addresses":["10.77.0.13"]}`} {
		if got := of(value); !strings.Contains(got, "10.77.0.13") || strings.Contains(got, Marker) {
			t.Errorf("%s became %s", value, got)
		}
	}
	for _, value := range []string{`{"uid":"0e0e0e0e-aaaa"}`, `{"uid":"a","addresses":["10.77.0.13"],"more":"1"}`, `{"addresses":["10.77.0.13"],"password":"x"}`} {
		if got := of(value); !strings.Contains(got, Marker) || strings.Contains(got, "10.77.0.13") {
			t.Errorf("%s became %s", value, got)
		}
	}
}
