package redact

import (
	"encoding/base64"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
)

// Planted secrets. No one may be in what is redacted.
const (
	plantedToken       = "qx7k2m.9f3b8d1c6e5a4f70"
	plantedKey         = "4f1d6c0b9a8e7f6d5c4b3a291817161504f1d6c0b9a8e7f6d5c4b3a291817161"
	plantedPassword    = "Tr0ub4dor&3-xyz"
	plantedJWT         = "eyJhbGciOiJSUzI1NiIsImtpZCI6IngifQ.eyJpc3MiOiJrdWJlcm5ldGVzIn0.c2lnbmF0dXJlLXBhcnQtb2YtdGhl"
	plantedRegistry    = "YWRtaW46c3VwZXJzZWNyZXQxMjM="
	plantedEnvironment = "hunter2hunter2"
)

// privateKey returns a real key in PEM, from openssl.
func privateKey(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256").Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// planted returns texts with secrets in the places where they occur, and the parts that must
// not be left.
func planted(t *testing.T) (texts, secrets []string) {
	key := privateKey(t)
	lines := strings.Split(strings.TrimSpace(key), "\n")
	inJSON, err := json.Marshal(map[string]string{"tls.key": key})
	if err != nil {
		t.Fatal(err)
	}
	b64 := base64.StdEncoding.EncodeToString([]byte(key))
	indented := "data:\n  tls.key: |\n    " + strings.ReplaceAll(strings.TrimSpace(key), "\n", "\n    ") + "\n  next: kept\n"
	secrets = []string{
		lines[1], lines[2], b64, b64[40:120], base64.StdEncoding.EncodeToString([]byte(b64))[:80],
		strings.Split(plantedToken, ".")[1], plantedKey, plantedPassword, plantedJWT, strings.Split(plantedJWT, ".")[2], plantedRegistry, plantedEnvironment,
	}
	texts = []string{
		key, string(inJSON), indented,
		"users:\n- name: admin\n  user:\n    client-certificate-data: LS0t\n    client-key-data: " + b64 + "\n    token: " + plantedJWT + "\n",
		"client-key-data: " + base64.StdEncoding.EncodeToString([]byte(b64)),
		"a field without a telling name: " + b64,
		"kubeadm join 10.0.0.1:6443 --token " + plantedToken + " --discovery-token-ca-cert-hash sha256:abc --certificate-key " + plantedKey,
		"certificateKey: " + plantedKey, `{"certificateKey":"` + plantedKey + `"}`, "--certificate-key=" + plantedKey,
		"Authorization: Bearer " + plantedJWT, "authorization: Basic " + plantedRegistry, "> Bearer " + plantedKey + "\n", `"Authorization":["Bearer ` + plantedKey + `"]`,
		"env:\n- name: DB_PASSWORD\n  value: " + plantedPassword + "\n- name: MODE\n  value: plain\n",
		`"env":[{"name":"API_TOKEN","value":"` + plantedEnvironment + `"},{"name":"MODE","value":"plain"}]`,
		"Environment=DB_PASSWORD=" + plantedPassword + " MODE=plain\n", "Environment=\"REGISTRY_SECRET=" + plantedEnvironment + "\"\n", "export AWS_SECRET_ACCESS_KEY='" + plantedEnvironment + "'",
		"password: |\n  " + plantedPassword + "\n  second line " + plantedEnvironment + "\nnext: kept\n",
		"password: \"" + plantedPassword + "\"\n", "passwd=" + plantedPassword + "\n", `{\"password\":\"` + plantedPassword + `\"}`,
		"https://robot:" + plantedEnvironment + "@registry.example/v2/",
		`{"auths":{"registry.example":{"auth":"` + plantedRegistry + `"}}}`,
		"[host.\"https://mirror\".header]\n  Authorization = [\"Basic " + plantedRegistry + "\"]\n",
		"token-id: qx7k2m\ntoken-secret: 9f3b8d1c6e5a4f70\n",
		"time=x msg=\"login failed\" password=" + plantedPassword + " user=jane",
	}
	return texts, secrets
}

func TestRedact(t *testing.T) {
	texts, secrets := planted(t)
	for _, text := range append(texts, strings.Join(texts, "\n")) {
		got := string(Text([]byte(text)))
		for _, secret := range secrets {
			if strings.Contains(got, secret) {
				t.Errorf("%q is still in\n%s", secret, got)
			}
		}
		if !strings.Contains(got, "redacted") {
			t.Errorf("nothing was redacted in\n%s", text)
		}
		if twice := string(Text([]byte(got))); twice != got {
			t.Errorf("redacted again:\n%s\nbefore:\n%s", twice, got)
		}
	}
}

// TestRedactKeeps: what an engineer needs stays.
func TestRedactKeeps(t *testing.T) {
	certificate, err := exec.Command("sh", "-c", "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout /dev/null -subj /CN=test -days 1 2>/dev/null").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		string(certificate), "certificate-authority-data: " + base64.StdEncoding.EncodeToString(certificate),
		"- --service-account-key-file=/etc/kubernetes/pki/sa.pub\n- --enable-bootstrap-token-auth=true\n- --authorization-mode=Node,RBAC\n",
		"authentication:\n  anonymous:\n    enabled: false\n  x509:\n    clientCAFile: /etc/kubernetes/pki/ca.crt\n",
		"image: registry.k8s.io/etcd@sha256:" + plantedKey, "tokenTTL: 24h0m0s\nsecretName: coredns\nautomountServiceAccountToken: true\n",
		"volumes:\n- name: x\n  secret:\n    secretName: web\n", "error: unknown flag: --no-such-flag\n", "node host1.site.example: 10.77.0.11",
		"  - name: kube-api-access-x2x4z\n    projected:\n      sources:\n      - serviceAccountToken:\n          expirationSeconds: 3607\n          path: token\n",
		"default via 10.0.0.1 dev eth0 proto static\n", "-A KUBE-SERVICES -d 10.96.0.1/32 -p tcp --dport 443 -j KUBE-SVC-NPX46M4PTMTKRN6Y\n",
	} {
		if got := string(Text([]byte(text))); got != text {
			t.Errorf("%q became\n%q", text, got)
		}
	}
}

func FuzzRedact(f *testing.F) {
	f.Add("password: x\n", 3)
	f.Fuzz(func(t *testing.T, text string, at int) {
		if at < 0 || at > len(text) {
			return
		}
		line := "\npassword: " + plantedPassword + "\n"
		if got := string(Text([]byte(text[:at] + line + text[at:]))); strings.Contains(got, plantedPassword) {
			t.Errorf("%q", got)
		}
	})
}

// TestTextInParameters: a line that is no parameter is taken out, whatever its letters are.
func TestTextInParameters(t *testing.T) {
	form := File("/etc/sysctl.d/x.conf")
	for _, text := range []string{"6ckm1br/SZM2syY2\n", "6ckm1br/SZM2syY2==\n", "hunter2.correct.horse\n", "net.hunter2\n", "-6ckm1br/SZM2syY2\n"} {
		if got := string(form([]byte(text))); got != Marker+"\n" {
			t.Errorf("%q became %q", text, got)
		}
	}
	for _, text := range []string{"-net.ipv4.conf.*.rp_filter\n", "net/ipv4/ip_forward = 1\n", "vm.overcommit_memory=1\n"} {
		if got := string(form([]byte(text))); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
}
