package site

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"airlift/scripts/upstream/components"
)

// Workload is a Deployment with a pod on each node, and a Service for it. Each pod answers with
// its name.
const workload = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: hello, labels: {app: hello}}
spec:
  replicas: %[2]d
  selector: {matchLabels: {app: hello}}
  template:
    metadata: {labels: {app: hello}}
    spec:
      terminationGracePeriodSeconds: 1
      tolerations: [{key: node-role.kubernetes.io/control-plane, operator: Exists, effect: NoSchedule}]
      topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: hello}}}
      containers:
      - name: hello
        image: %[1]s
        imagePullPolicy: Never
        args: [netexec, --http-port=8080]
        readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: hello}
spec:
  selector: {app: hello}
  ports: [{port: 80, targetPort: 8080}]
`

// WorkloadImage is the user's image in the demo's bundle: upstream's test server, in the
// version of Kubernetes' own tests.
func WorkloadImage(version string) (string, error) {
	r, err := components.Find(version)
	if err != nil {
		return "", err
	}
	return "registry.k8s.io/e2e-test-images/agnhost:" + r.Agnhost, nil
}

// A Pod is one pod of the workload.
type Pod struct{ Name, Node, IP string }

// Deploy runs the workload with one pod on each host, waits until all pods answer, and returns
// them.
func (s *Site) Deploy(ctx context.Context, version string) ([]Pod, error) {
	image, err := WorkloadImage(version)
	if err != nil {
		return nil, err
	}
	if err := s.Apply(ctx, fmt.Sprintf(workload, image, len(s.Hosts))); err != nil {
		return nil, err
	}
	if _, err := s.Kubectl(ctx, "rollout", "status", "deployment/hello", "--timeout", "2m"); err != nil {
		state, _ := s.Kubectl(ctx, "describe", "pods", "-l", "app=hello")
		return nil, fmt.Errorf("waiting for the workload: %w\n%s", err, state)
	}
	pods, err := s.Pods(ctx)
	if err != nil {
		return nil, err
	}
	return pods, s.waitService(ctx, pods)
}

// serviceTimeout limits the wait until a new Service works everywhere: a ready pod, its
// EndpointSlice, each node's kube-proxy rules, a name in DNS.
const serviceTimeout = 30 * time.Second

// waitService waits until every pod got one answer from the Service. After that every request
// must succeed.
func (s *Site) waitService(ctx context.Context, pods []Pod) error {
	ctx, cancel := context.WithTimeout(ctx, serviceTimeout)
	defer cancel()
	for _, p := range pods {
		for {
			out, err := s.Ask(ctx, p, s.ServiceURL())
			if err == nil && !strings.Contains(out, `"errors"`) {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("waiting for the Service to answer %s on %s: %w; last answer: %s (%v)", p.Name, p.Node, ctx.Err(), out, err)
			case <-time.After(200 * time.Millisecond):
			}
		}
	}
	return nil
}

// ServiceURL is the URL of the workload's Service, with its DNS name. The answer is the name of
// a pod.
func (s *Site) ServiceURL() string {
	domain := s.Domain
	if domain == "" {
		domain = "cluster.local"
	}
	return "http://hello.default.svc." + domain + "/hostname"
}

// Pods lists the workload's pods.
func (s *Site) Pods(ctx context.Context) ([]Pod, error) {
	out, err := s.Kubectl(ctx, "get", "pods", "-l", "app=hello",
		"-o", `jsonpath={range .items[*]}{.metadata.name} {.spec.nodeName} {.status.podIP}{"\n"}{end}`)
	if err != nil {
		return nil, err
	}
	var pods []Pod
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) == 3 {
			pods = append(pods, Pod{f[0], f[1], f[2]})
		}
	}
	return pods, nil
}

// Ask requests a URL from a pod, with the pod's DNS and network, and returns the answer.
func (s *Site) Ask(ctx context.Context, from Pod, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	// netexec's dial endpoint resolves the name and connects from the pod.
	host, path, _ := strings.Cut(strings.TrimPrefix(url, "http://"), "/")
	name, port, ok := strings.Cut(host, ":")
	if !ok {
		port = "80"
	}
	dial := fmt.Sprintf("http://%s/dial?protocol=http&host=%s&port=%s&request=%s&tries=1", net.JoinHostPort(from.IP, "8080"), name, port, path)
	return s.Hosts[0].Output(ctx, "curl", "--silent", "--show-error", "--fail", "--max-time", "20", dial)
}

// AskEach sends requests to the Service from every pod until every pod has answered, and returns
// the pods that answered each. It fails after serviceTimeout: a node may learn about the
// Service's pods at different times.
func (s *Site) AskEach(ctx context.Context, pods []Pod, url string) (map[string][]string, error) {
	answered := map[string][]string{}
	deadline := time.Now().Add(serviceTimeout)
	for _, from := range pods {
		seen := map[string]bool{}
		for len(seen) < len(pods) && time.Now().Before(deadline) {
			out, err := s.Ask(ctx, from, url)
			if err != nil {
				return nil, err
			}
			if strings.Contains(out, `"errors"`) {
				return nil, fmt.Errorf("requesting %s from %s: %s", url, from.Name, strings.TrimSpace(out))
			}
			for _, p := range pods {
				if strings.Contains(out, p.Name) && !seen[p.Name] {
					seen[p.Name] = true
					answered[from.Name] = append(answered[from.Name], p.Name)
				}
			}
		}
	}
	return answered, nil
}
