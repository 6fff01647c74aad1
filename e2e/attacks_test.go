//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"airlift/scripts/lab"
	"airlift/scripts/lab/site"
)

// A victim is a cluster of a control plane and a worker. The attackers have a pod on the worker, the worker's own credentials, a
// user's token with the role edit in the namespace app, or a bootstrap token.
type victim struct {
	*testing.T
	s               *site.Site
	control, worker *lab.Host
	image           string
	pod             string // the network namespace of the pod
	token           string // of the pod
	user            string // token
	bootstrap       string // token
}

// attacks are what the attackers try, and a regular expression of what is printed: in a plain cluster, and in one of
// init --profile hardened. The last one stops the worker's kubelet.
var attacks = []struct {
	name            string
	try             func(*victim) string
	plain, hardened string
}{
	{"pod: the kubelet's API without a certificate (10250)", func(v *victim) string { return v.fromPod("https://" + v.at(v.control, "10250/pods")) }, "^401 Unauthorized", "^401 Unauthorized"},
	{"pod: the kubelet's read-only port (10255)", func(v *victim) string { return v.fromPod("http://" + v.at(v.worker, "10255/pods")) }, "refused|connect to", "refused|connect to"},
	{"pod: etcd without a certificate (2379)", func(v *victim) string { return v.fromPod("https://" + v.at(v.control, "2379/version")) }, tlsRefused, tlsRefused},
	{"pod: the balancer's port (7443)", func(v *victim) string { return v.fromPod("https://" + v.at(v.control, "7443/version")) }, "refused|connect to", "refused|connect to"},
	{"pod: a kept file of the embedded registry (7444)", func(v *victim) string { return v.fromPod("https://" + v.at(v.control, "7444/bundles")) }, "^401", "^401"},
	{"pod: an image of the embedded registry (7444)", func(v *victim) string { return v.fromPod("https://" + v.at(v.control, "7444/v2/")) }, "^403", "^403"},
	{"pod: Secrets without credentials", func(v *victim) string { return v.fromPod(service + "/api/v1/secrets") }, "^403 .*system:anonymous", "^403 .*system:anonymous"},
	{"pod: Secrets with its token", func(v *victim) string {
		return v.fromPod("-H", "Authorization: Bearer "+v.token, service+"/api/v1/secrets")
	}, "^403 .*system:serviceaccount:app:probe", "^403 .*system:serviceaccount:app:probe"},
	{"pod: how long its token is valid", func(v *victim) string { return v.validity(v.token) }, "^8760h", "^1h0m"},
	{"pod: the token of a pod that was deleted", oldToken, "^401 Unauthorized", "^401 Unauthorized"},

	{"user: a pod that mounts the disk of the control plane", func(v *victim) string {
		return v.runPod("mount", "grep client-key-data /host/etc/kubernetes/admin.conf", `volumeMounts: [{name: host, mountPath: /host}]`, `volumes: [{name: host, hostPath: {path: /}}]`)
	}, "^client-key-data", "violates PodSecurity"},
	{"user: a privileged pod with the host's processes", func(v *victim) string {
		return v.runPod("privileged", "cat /proc/1/root/etc/shadow", `securityContext: {privileged: true}`, `hostPID: true`)
	}, "^root:", "violates PodSecurity"},
	// with the port 6443, the worker of a plain cluster could not reach the API server any more: kube-proxy rejects each connection
	{"user: a Service that claims the control plane's address", func(v *victim) string {
		return v.asUser(fmt.Sprintf("{apiVersion: v1, kind: Service, metadata: {name: thief}, spec: {ports: [{port: 6444}], externalIPs: [%s]}}", v.control.Addr), "create", "--filename", "-")
	}, "^service/thief created", "external IPs"},

	{"worker: a Secret of a pod on another node", func(v *victim) string { return v.asNode("", "--namespace", "app", "get", "secret", "other") }, "Forbidden.*no relationship found", "Forbidden.*no relationship found"},
	{"worker: all Secrets", func(v *victim) string { return v.asNode("", "get", "secrets", "--all-namespaces") }, "Forbidden", "Forbidden"},
	{"worker: a bootstrap token", func(v *victim) string {
		return v.asNode("", "--namespace", "kube-system", "get", "secret", "bootstrap-token-"+strings.Split(v.bootstrap, ".")[0])
	}, "Forbidden", "Forbidden"},
	{"worker: a label of its own node that schedules other's pods", func(v *victim) string {
		return v.asNode("", "label", "node", v.worker.Name, "node-restriction.kubernetes.io/zone=trusted")
	}, "Forbidden.*not allowed to modify labels", "Forbidden.*not allowed to modify labels"},
	{"worker: a label of another node", func(v *victim) string { return v.asNode("", "label", "node", v.control.Name, "zone=trusted") }, notOwnNode, notOwnNode},
	{"worker: exec through another node's kubelet", func(v *victim) string {
		return v.curl(nil, "--cert", nodeCertificate, "--request", "POST", "https://"+v.at(v.control, "10250/run/kube-system/etcd-"+v.control.Name+"/etcd?cmd=id"))
	}, "^403 Forbidden.*system:node:.*subresource", "^403 Forbidden.*system:node:.*subresource"},
	{"worker: exec through the API server", func(v *victim) string {
		return v.asNode("", "--namespace", "app", "exec", "owner", "--", "id")
	}, "Forbidden", "Forbidden"},
	{"worker: etcd with its certificate", func(v *victim) string {
		return v.curl(nil, "--cert", nodeCertificate, "https://"+v.at(v.control, "2379/version"))
	}, tlsRefused, tlsRefused},
	{"worker: a serving certificate of another node's name", func(v *victim) string {
		return v.request(v.asNode, "serving-name", "kubernetes.io/kubelet-serving", v.control.Name, v.control)
	}, "Forbidden.*can only create a node CSR|^no certificate", "Forbidden.*can only create a node CSR|^no certificate"},
	{"worker: a serving certificate of another node's address", func(v *victim) string {
		return v.request(v.asNode, "serving-address", "kubernetes.io/kubelet-serving", v.worker.Name, v.control)
	}, "^no certificate", "^no certificate"},
	{"worker: a client certificate of another node", func(v *victim) string {
		return v.request(v.asNode, "client", "kubernetes.io/kube-apiserver-client-kubelet", v.control.Name, nil)
	}, "Forbidden.*can only create a node CSR|^no certificate", "Forbidden.*can only create a node CSR|^no certificate"},
	{"bootstrap token: a client certificate of another node", func(v *victim) string {
		return v.request(v.asJoining, "joining", "kubernetes.io/kube-apiserver-client-kubelet", v.control.Name, nil)
	}, "^a certificate", "^a certificate"},

	{"disk of the control plane: a Secret in etcd's files", func(v *victim) string {
		return v.tryRun(v.control, nil, "sh", "-c", "cd /var/lib/etcd && grep -rlF "+owned+" . || echo it is in no file")
	}, "member/", "^it is in no file"},
	{"afterwards: the refused requests in the audit log", func(v *victim) string {
		return v.tryRun(v.control, nil, "sh", "-c", fmt.Sprintf(`grep '"username":"system:node:%s"' /var/log/kubernetes/audit/audit.log | grep -c '"code":403'`, v.worker.Name))
	}, "No such file", "^[1-9]"},
	{"network: a host with the worker's address answers as its kubelet", forgedKubelet, "^forged", "x509"},
}

// notOwnNode is what kubectl prints: v1.29 lets a node read the others.
const notOwnNode = "Forbidden.*(not allowed to modify node|only its own Node object)"

// tlsRefused is what curl prints if a server ends the connection because of the certificate: the alert, if it is read in time.
const tlsRefused = `^curl: \(\d+\) .*(alert|Connection reset|errno 107)`

const (
	service         = "https://10.96.0.1"
	nodeCertificate = "/var/lib/kubelet/pki/kubelet-client-current.pem"
	owned           = "only-for-the-owner"
)

// TestAttacks tries the same attacks in a plain and in a hardened cluster, and prints both results in a table.
func TestAttacks(t *testing.T) {
	var mu sync.Mutex
	printed := map[string][]string{}
	t.Cleanup(func() {
		var table strings.Builder
		for _, a := range attacks {
			fmt.Fprintf(&table, "| %s | %s | %s |\n", a.name, strings.Join(printed["plain "+a.name], ""), strings.Join(printed["hardened "+a.name], ""))
		}
		t.Logf("Kubernetes %s\n| attack | plain | hardened |\n|---|---|---|\n%s", version, table.String())
	})
	for _, kind := range []string{"plain", "hardened"} {
		t.Run(kind, func(t *testing.T) {
			s := up(t, lab.Options{Name: "e2e-attacks-" + kind, Hosts: 2, Virtual: []netip.Addr{netip.MustParseAddr(virtual)}})
			v := &victim{T: t, s: s, control: s.Hosts[0], worker: s.Hosts[1]}
			var args []string
			if kind == "hardened" {
				args = []string{"--profile", "hardened"}
			}
			inOrder(t, s, []stage{
				{"a cluster", func(t *testing.T) { v.T = t; v.create(args) }},
				{"the key of Secrets is only where it must be", func(t *testing.T) {
					if v.T = t; kind == "hardened" {
						v.keyIsOnlyInItsPlaces()
					}
				}},
				{"attacks", func(t *testing.T) {
					v.T = t
					for _, a := range attacks {
						got := a.try(v)
						mu.Lock()
						printed[kind+" "+a.name] = append(printed[kind+" "+a.name], got)
						mu.Unlock()
						want := a.plain
						if kind == "hardened" {
							want = a.hardened
						}
						if !regexp.MustCompile(want).MatchString(got) {
							t.Errorf("%s: printed %q, want %q", a.name, got, want)
						}
					}
				}},
			})
		})
	}
}

// create makes the cluster with a balancer and the embedded registry, which have ports of their own, and what the attackers have.
func (v *victim) create(args []string) {
	v.Helper()
	out := install(v.T, v.control, 0, append([]string{"init", "--control-plane-vip", virtual, "--control-plane-balancer", "--embedded-registry"}, args...)...)
	join, err := site.JoinArgs(out)
	if err != nil {
		v.Fatal(err)
	}
	v.bootstrap = regexp.MustCompile(`[a-z0-9]{6}\.[a-z0-9]{16}`).FindString(strings.Join(join, " "))
	install(v.T, v.worker, 0, join...)
	systemIsUp(v.T, v.s, 2)
	root, err := v.control.Root()
	if err == nil { // a worker has no kubectl: an attacker brings one
		_, err = v.worker.CopyIn(v.Context(), filepath.Join(root, "usr/local/bin/kubectl"), "/usr/local/bin/kubectl", 0o755)
	}
	if err != nil {
		v.Fatal(err)
	}
	if v.image, err = site.WorkloadImage(version); err != nil {
		v.Fatal(err)
	}
	const pod = `
---
{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: app}, spec: {
  nodeName: %s, serviceAccountName: probe, securityContext: {runAsNonRoot: true, runAsUser: 1000, seccompProfile: {type: RuntimeDefault}},
  volumes: [{name: other, secret: {secretName: %s}}],
  containers: [{name: agnhost, image: "%s", imagePullPolicy: Never, args: [pause], volumeMounts: [{name: other, mountPath: /other}],
    securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}]}}`
	if err := v.s.Apply(v.Context(), `
{apiVersion: v1, kind: Namespace, metadata: {name: app}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: user, namespace: app}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: probe, namespace: app}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: user, namespace: app}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit},
  subjects: [{kind: ServiceAccount, name: user, namespace: app}]}
---
{apiVersion: v1, kind: Secret, metadata: {name: other, namespace: app}, stringData: {password: `+owned+`}}
---
{apiVersion: v1, kind: Secret, metadata: {name: own, namespace: app}, stringData: {password: mine}}`+
		fmt.Sprintf(pod, "owner", v.control.Name, "other", v.image)+fmt.Sprintf(pod, "probe", v.worker.Name, "own", v.image)+fmt.Sprintf(pod, "short", v.worker.Name, "own", v.image)); err != nil {
		v.Fatal(err)
	}
	kubectlAt(v.T, v.control, "--namespace", "app", "wait", "--for=condition=Ready", "--timeout=15s", "pod/owner", "pod/probe", "pod/short")
	ip := kubectlAt(v.T, v.control, "--namespace", "app", "get", "pod", "probe", "--output", "jsonpath={.status.podIP}")
	v.pod = strings.TrimSpace(run(v.T, v.worker, "sh", "-c", "for n in /run/netns/cni-*; do if ip -n ${n##*/} -o address | grep -q ' "+ip+"/'; then echo $n; fi; done"))
	if v.pod == "" {
		v.Fatalf("no network namespace has the address %s", ip)
	}
	v.token = v.tokenOf("probe")
	v.user = strings.TrimSpace(kubectlAt(v.T, v.control, "--namespace", "app", "create", "token", "user"))
}

func (v *victim) tokenOf(pod string) string {
	return strings.TrimSpace(kubectlAt(v.T, v.control, "--namespace", "app", "exec", pod, "--", "cat", "/var/run/secrets/kubernetes.io/serviceaccount/token"))
}

// keyIsOnlyInItsPlaces searches all files of both hosts for the key that encrypts Secrets, also after a rotation: the files have
// what is printed, the journal, the API's ConfigMaps and pods, the contents of the Secrets, and the arguments of all processes.
func (v *victim) keyIsOnlyInItsPlaces() {
	v.Helper()
	ctx, cancel := context.WithCancel(v.Context())
	arguments := make(chan string)
	go func() { arguments <- allArguments(ctx) }()
	install(v.T, v.control, 0, "etcd", "snapshot", "/root/backup.tar")
	before := run(v.T, v.control, "cat", encryptionFile)
	printed := install(v.T, v.control, 0, "secrets", "rotate", "--yes") + install(v.T, v.control, 0, "secrets", "status")
	look(v.T, v.control)
	for _, args := range [][]string{{"reconfigure", "print"}, {"upgrade", "plan"}, {"status"}} {
		printed += v.tryRun(v.control, nil, append([]string{"sh", "-c", `"$@" >>/root/printed 2>&1; echo done`, "sh", site.Installer}, args...)...)
	}
	printed += v.tryRun(v.control, nil, "sh", "-c", `cd /root
/root/install reconfigure print >kubeadm.yaml && /root/install reconfigure --config kubeadm.yaml --plan >>printed 2>&1
export KUBECONFIG=/etc/kubernetes/admin.conf
kubectl get configmaps,pods,nodes,events --all-namespaces --output yaml >objects
kubectl get secrets --all-namespaces --output go-template='{{range .items}}{{range .data}}{{. | base64decode}}{{end}}{{end}}' >contents`)
	for _, h := range v.s.Hosts {
		run(v.T, h, "sh", "-c", "journalctl --no-pager --all --output cat >/root/journal")
	}
	cancel()
	printed += <-arguments

	after := run(v.T, v.control, "cat", encryptionFile)
	keys := map[string]bool{}
	for _, found := range regexp.MustCompile(`[A-Za-z0-9+/]{43}=`).FindAllString(before+after, -1) {
		keys[found] = true
	}
	if len(keys) != 2 {
		v.Fatalf("%d keys before and after the rotation, want 2", len(keys))
	}
	for key := range keys {
		if strings.Contains(printed, key) {
			v.Error("a key is in what is printed, or in arguments")
		}
		for i, h := range v.s.Hosts {
			files := strings.Fields(v.all(h, "grep", "--recursive", "--files-with-matches", "--fixed-strings", "--devices=skip", "--text", "--exclude-dir=proc", "--exclude-dir=sys", "--exclude-dir=dev", key, "/"))
			v.Logf("%s: a key is in %q", h.Name, files)
			if i > 0 && len(files) > 0 {
				v.Errorf("the worker has a key in %q", files)
			}
			for _, file := range files {
				if file != encryptionFile && file != "/root/backup.tar" && !strings.HasPrefix(file, "/var/lib/airlift/reconfigure/") {
					v.Errorf("a key is in %s", file)
				}
			}
			if inFile := strings.Contains(before, key); i == 0 && (!slices.Contains(files, encryptionFile) || slices.Contains(files, "/root/backup.tar") != inFile) {
				v.Errorf("a key, %t in the backup, was found only in %q", inFile, files)
			}
		}
	}
}

const encryptionFile = "/etc/kubernetes/encryption/secrets.yaml"

// allArguments reads the arguments and the environment of all processes of this machine and of its hosts, until ctx ends.
func allArguments(ctx context.Context) string {
	seen := map[string]bool{}
	for ctx.Err() == nil {
		files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, file := range files {
			for _, file := range []string{file, filepath.Dir(file) + "/environ"} {
				text, _ := os.ReadFile(file) // the process may have ended
				seen[string(text)] = true
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	return strings.Join(slices.Collect(maps.Keys(seen)), "\n")
}

// all returns everything that a command prints. grep fails if it finds nothing.
func (v *victim) all(h *lab.Host, argv ...string) string {
	v.Helper()
	var out bytes.Buffer
	_ = h.Exec(v.Context(), nil, &out, io.Discard, argv...)
	return out.String()
}

// at is an address of a host, with a port and a path.
func (v *victim) at(h *lab.Host, rest string) string { return h.Addr.String() + ":" + rest }

// tryRun returns the first line that a command prints, whether it fails or not. Secrets are cut.
func (v *victim) tryRun(h *lab.Host, stdin []byte, argv ...string) string {
	v.Helper()
	var out bytes.Buffer
	ctx, cancel := context.WithTimeout(v.Context(), 40*time.Second)
	defer cancel()
	err := h.Exec(ctx, bytes.NewReader(stdin), &out, &out, argv...)
	text := strings.TrimSpace(out.String())
	for strings.HasPrefix(text, "Warning: ") { // of the API
		_, text, _ = strings.Cut(text, "\n")
	}
	first, _, _ := strings.Cut(text, "\n")
	switch {
	case first != "":
		return strings.TrimSpace(first)
	case err != nil:
		return err.Error()
	}
	return "(nothing)"
}

// curl sends a request from the worker, after the arguments in, and returns the status and the first line of the answer.
func (v *victim) curl(in []string, args ...string) string {
	v.Helper()
	const format = "%{stderr}status %{http_code}"
	script := `out=$("$@" 2>/tmp/attack.status); status=$(sed -n 's/^status //p' /tmp/attack.status)
if [ "$status" = 000 ] || [ -z "$status" ]; then sed 's/status 000$//' /tmp/attack.status; else echo "$status $(echo "$out" | tr -d '\n' | tr -s ' ' | cut -c 1-200)"; fi`
	argv := append([]string{"sh", "-c", script, "sh"}, in...)
	argv = append(argv, "curl", "--silent", "--show-error", "--insecure", "--max-time", "5", "--write-out", format)
	return v.tryRun(v.worker, nil, append(argv, args...)...)
}

func (v *victim) fromPod(args ...string) string {
	v.Helper()
	return v.curl([]string{"nsenter", "--net=" + v.pod}, args...)
}

// asNode runs kubectl with the worker's credentials.
func (v *victim) asNode(stdin string, args ...string) string {
	v.Helper()
	return v.tryRun(v.worker, []byte(stdin), append([]string{"kubectl", "--kubeconfig", "/etc/kubernetes/kubelet.conf"}, args...)...)
}

// withToken runs kubectl with a token.
func (v *victim) withToken(token, stdin string, args ...string) string {
	v.Helper()
	return v.tryRun(v.worker, []byte(stdin), append([]string{"kubectl", "--kubeconfig", "/dev/null", "--server", "https://" + v.at(v.control, "6443"),
		"--certificate-authority", "/etc/kubernetes/pki/ca.crt", "--token", token}, args...)...)
}

func (v *victim) asJoining(stdin string, args ...string) string {
	v.Helper()
	return v.withToken(v.bootstrap, stdin, args...)
}

func (v *victim) asUser(stdin string, args ...string) string {
	v.Helper()
	return v.withToken(v.user, stdin, append([]string{"--namespace", "app"}, args...)...)
}

// runPod runs a command in a pod on the control plane, as the user, and returns what it prints.
func (v *victim) runPod(name, command, container, spec string) string {
	v.Helper()
	out := v.asUser(fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {nodeName: %s, restartPolicy: Never, %s,
containers: [{name: agnhost, image: %q, imagePullPolicy: Never, command: [sh, -c, %q], %s}]}}`, name, v.control.Name, spec, v.image, command, container), "create", "--filename", "-")
	if !strings.HasSuffix(out, " created") {
		return out
	}
	if out := v.asUser("", "wait", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=30s", "pod/"+name); !strings.Contains(out, "condition met") {
		return out
	}
	words := strings.Fields(v.asUser("", "logs", name))
	if len(words) > 1 {
		return words[0] + " …" // it is a key
	}
	return words[0]
}

// validity is how long a token is valid.
func (v *victim) validity(token string) string {
	v.Helper()
	parts := strings.Split(token, ".")
	var claims struct{ Iat, Exp int64 }
	if len(parts) != 3 {
		v.Fatal("the token is no JWT")
	}
	data, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err == nil {
		err = json.Unmarshal(data, &claims)
	}
	if err != nil {
		v.Fatal(err)
	}
	return (time.Duration(claims.Exp-claims.Iat) * time.Second).String()
}

// oldToken uses the token of a pod that is deleted. API servers remember a token for seconds.
func oldToken(v *victim) string {
	token := v.tokenOf("short")
	kubectlAt(v.T, v.control, "--namespace", "app", "delete", "pod", "short", "--now")
	try := func() string { return v.fromPod("-H", "Authorization: Bearer "+token, service+"/api/v1/secrets") }
	out := try()
	for end := time.Now().Add(30 * time.Second); !strings.HasPrefix(out, "401") && time.Now().Before(end); out = try() {
		time.Sleep(time.Second)
	}
	return regexp.MustCompile(`^401 .*Unauthorized.*`).ReplaceAllString(out, "401 Unauthorized")
}

// request requests a certificate of a node's name, and returns what became of it. A host gives its address to the certificate.
func (v *victim) request(as func(stdin string, args ...string) string, name, signer, node string, of *lab.Host) string {
	v.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		v.Fatal(err)
	}
	usage := "client auth"
	template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}}}
	if of != nil {
		usage = "server auth"
		template.DNSNames, template.IPAddresses = []string{node}, []net.IP{of.Addr.AsSlice()}
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		v.Fatal(err)
	}
	text := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
	out := as(fmt.Sprintf("{apiVersion: certificates.k8s.io/v1, kind: CertificateSigningRequest, metadata: {name: %s}, spec: {request: %s, signerName: %s, usages: [digital signature, %s]}}", name, text, signer, usage),
		"create", "--validate=false", "--filename", "-")
	if !strings.HasSuffix(out, " created") {
		return out
	}
	for range 5 {
		time.Sleep(time.Second)
		if kubectlAt(v.T, v.control, "get", "csr", name, "--output", "jsonpath={.status.certificate}") != "" {
			return "a certificate"
		}
	}
	return "no certificate: " + strings.TrimSpace(kubectlAt(v.T, v.control, "get", "csr", name, "--output", `jsonpath={range .status.conditions[*]}{.type} {.message}{end}`)+" (nobody approves it)")
}

// forgedKubelet stops the worker's kubelet and answers at its port, with a certificate that nobody signed.
func forgedKubelet(v *victim) string {
	certificate, key := selfSigned(v.T, v.worker.Name)
	pair, err := tls.X509KeyPair([]byte(certificate), []byte(key))
	if err != nil {
		v.Fatal(err)
	}
	run(v.T, v.worker, "systemctl", "stop", "kubelet")
	defer run(v.T, v.worker, "systemctl", "start", "kubelet")
	listener, err := v.worker.Listen(v.Context(), "tcp", v.at(v.worker, "10250"))
	if err != nil {
		v.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "forged") }), ReadHeaderTimeout: time.Minute}
	go func() {
		_ = server.Serve(tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{pair}}))
	}()
	defer server.Close()
	return v.tryRun(v.control, nil, "kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", "--namespace", "app", "logs", "probe")
}
