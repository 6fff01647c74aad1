//go:build e2e

package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"airlift/scripts/lab"
	"airlift/scripts/lab/site"
)

// routedWorkload is a workload behind an HTTPRoute and an Ingress, each for a host name of its own.
const routedWorkload = `
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop, namespace: shop}
spec:
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop}}
    spec:
      securityContext: {runAsNonRoot: true, runAsUser: 65534, seccompProfile: {type: RuntimeDefault}}
      containers:
      - name: web
        image: %[1]s
        imagePullPolicy: Never
        securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
        args: [netexec, --http-port=8080]
        readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: shop, namespace: shop}
spec:
  selector: {app: shop}
  ports: [{port: 8000, targetPort: 8080}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: shop, namespace: shop}
spec:
  parentRefs: [{name: traefik-gateway, namespace: traefik}]
  hostnames: [route.site.example]
  rules: [{backendRefs: [{name: shop, port: 8000}]}]
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: shop, namespace: shop}
spec:
  rules:
  - host: ingress.site.example
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: shop, port: {number: 8000}}}}]}
`

// refusesUsedPort runs the preflight checks while another process listens on port 80.
func refusesUsedPort(t *testing.T, h *lab.Host) {
	run(t, h, "systemd-run", "--quiet", "--unit=web", "socat", "TCP-LISTEN:80,fork", "EXEC:cat")
	run(t, h, "sh", "-c", "until ss -ltn | grep -q ':80 '; do sleep 0.1; done")
	contains(t, install(t, h, 3, "preflight", "init"), "Port-80", "port 80 is in use by socat")
	run(t, h, "sh", "-c", "systemctl stop web; systemctl reset-failed web 2>/dev/null || true")
}

// answersAtNodes requests the workload from each host at both nodes.
func answersAtNodes(t *testing.T, s *site.Site, image string) {
	if err := s.Apply(t.Context(), fmt.Sprintf(routedWorkload, image)); err != nil {
		t.Fatal(err)
	}
	kubectl(t, s, "wait", "-n", "shop", "--for=condition=Available", "deployment/shop", "--timeout=90s")
	kubectl(t, s, "wait", "--for=condition=Accepted", "gatewayclass/traefik", "--timeout=60s")
	kubectl(t, s, "wait", "-n", "traefik", "--for=condition=Programmed", "gateway/traefik-gateway", "--timeout=60s")
	kubectl(t, s, "rollout", "status", "-n", "traefik", "daemonset/traefik", "--timeout=60s")
	pod := strings.TrimSpace(kubectl(t, s, "get", "pods", "-n", "shop", "-o", "name"))
	pod = strings.TrimPrefix(pod, "pod/")

	each := func(test func(from, to *lab.Host)) {
		for _, from := range s.Hosts {
			for _, to := range s.Hosts {
				if from != to {
					test(from, to)
				}
			}
		}
	}
	get := func(from, to *lab.Host, host string, arguments ...string) string {
		arguments = append([]string{"curl", "--silent", "--show-error", "--max-time", "10", "--write-out", " %{http_code}",
			"--resolve", host + ":80:" + to.Addr.String(), "--resolve", host + ":443:" + to.Addr.String()}, arguments...)
		out, err := from.Output(t.Context(), arguments...)
		if err != nil {
			return fmt.Sprintf("%v: %s", err, out)
		}
		return out
	}
	want := func(answer string, from, to *lab.Host, host string, arguments ...string) {
		t.Helper()
		eventually(t, time.Minute, func() string {
			if got := get(from, to, host, arguments...); got != answer {
				return fmt.Sprintf("%s to %s, %s: %q, want %q", from.Name, to.Name, host, got, answer)
			}
			return ""
		})
	}
	each(func(from, to *lab.Host) {
		for _, host := range []string{"route.site.example", "ingress.site.example"} {
			want(pod+" 200", from, to, host, "http://"+host+"/hostname")
		}
		want("404 page not found\n 404", from, to, "other.site.example", "http://other.site.example/hostname")
		want(pod+" 200", from, to, "ingress.site.example", "--insecure", "https://ingress.site.example/hostname")
	})

	certificate, key := selfSigned(t, "route.site.example")
	if err := s.Apply(t.Context(), fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: site-tls, namespace: traefik}\ntype: kubernetes.io/tls\nstringData:\n  tls.crt: %q\n  tls.key: %q\n", certificate, key)); err != nil {
		t.Fatal(err)
	}
	kubectl(t, s, "patch", "gateway", "traefik-gateway", "-n", "traefik", "--type=json", "--patch",
		`[{"op":"add","path":"/spec/listeners/-","value":{"name":"websecure","protocol":"HTTPS","port":443,"tls":{"certificateRefs":[{"name":"site-tls"}]},"allowedRoutes":{"namespaces":{"from":"All"}}}}]`)
	each(func(from, to *lab.Host) {
		run(t, from, "sh", "-c", "cat >/tmp/site.crt <<'END'\n"+certificate+"END")
		want(pod+" 200", from, to, "route.site.example", "--cacert", "/tmp/site.crt", "https://route.site.example/hostname")
		run(t, from, "rm", "/tmp/site.crt")
	})
	t.Log(kubectl(t, s, "get", "gatewayclass,gateway,httproute,ingress", "-A"))
}

// selfSigned returns a certificate for a host name, and its key, in PEM.
func selfSigned(t *testing.T, host string) (certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: host}, DNSNames: []string{host},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	bytes, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: bytes}))
}
