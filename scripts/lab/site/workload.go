package site

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"airlift/scripts/oracle/upstream/components"
)

// Workload is a Deployment with a pod on each node, and a Service for it. Each pod answers with
// its name. They run in a namespace of the Pod Security level restricted, too.
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
      securityContext: {runAsNonRoot: true, runAsUser: 65534, seccompProfile: {type: RuntimeDefault}}
      tolerations: [{key: node-role.kubernetes.io/control-plane, operator: Exists, effect: NoSchedule}]
      topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: hello}}}
      containers:
      - name: hello
        image: %[1]s
        imagePullPolicy: Never
        args: [netexec, --http-port=8080]
        securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
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
func (c *Cluster) Deploy(ctx context.Context, version string) ([]Pod, error) {
	image, err := WorkloadImage(version)
	if err != nil {
		return nil, err
	}
	if err := c.Apply(ctx, fmt.Sprintf(workload, image, c.Nodes)); err != nil {
		return nil, err
	}
	if _, err := c.Kubectl(ctx, "rollout", "status", "deployment/hello", "--timeout", c.limit(2*time.Minute).String()); err != nil {
		state, _ := c.Kubectl(ctx, "describe", "pods", "-l", "app=hello")
		return nil, fmt.Errorf("waiting for the workload: %w\n%s", err, state)
	}
	return c.waitService(ctx)
}

// limit is a time limit for this cluster.
func (c *Cluster) limit(d time.Duration) time.Duration { return d * time.Duration(max(1, c.Slow)) }

// serviceTimeout limits the wait until a new Service works everywhere: a ready pod, its
// EndpointSlice, each node's kube-proxy rules, a name in DNS.
const serviceTimeout = 30 * time.Second

// waitService waits until every pod got one answer from the Service, and returns the pods. After
// that every request must succeed. It lists the pods before each round: after a reboot the API
// server has their earlier addresses until the kubelets start them again.
func (c *Cluster) waitService(ctx context.Context) ([]Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, c.limit(serviceTimeout))
	defer cancel()
	for {
		pods, err := c.allAnswer(ctx)
		if err == nil {
			return pods, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for the Service to answer every pod: %w; at last: %w", ctx.Err(), err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// allAnswer asks the Service once from each pod. A request to an address that no pod has any more
// gets no answer, so each has only a part of the time.
func (c *Cluster) allAnswer(ctx context.Context) ([]Pod, error) {
	pods, err := c.Pods(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range pods {
		once, cancel := context.WithTimeout(ctx, c.limit(serviceTimeout)/10)
		out, err := c.Ask(once, p, c.ServiceURL())
		cancel()
		if err == nil && strings.Contains(out, `"errors"`) {
			err = errors.New(strings.TrimSpace(out))
		}
		if err != nil {
			return nil, fmt.Errorf("%s on %s: %w", p.Name, p.Node, err)
		}
	}
	return pods, nil
}

// ServiceURL is the URL of the workload's Service, with its DNS name. The answer is the name of
// a pod.
func (c *Cluster) ServiceURL() string {
	domain := c.Domain
	if domain == "" {
		domain = "cluster.local"
	}
	return "http://hello.default.svc." + domain + "/hostname"
}

// Pods lists the workload's pods.
func (c *Cluster) Pods(ctx context.Context) ([]Pod, error) {
	out, err := c.Kubectl(ctx, "get", "pods", "-l", "app=hello",
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
func (c *Cluster) Ask(ctx context.Context, from Pod, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, c.limit(30*time.Second))
	defer cancel()
	// netexec's dial endpoint resolves the name and connects from the pod.
	host, path, _ := strings.Cut(strings.TrimPrefix(url, "http://"), "/")
	name, port, ok := strings.Cut(host, ":")
	if !ok {
		port = "80"
	}
	dial := fmt.Sprintf("http://%s/dial?protocol=http&host=%s&port=%s&request=%s&tries=1", net.JoinHostPort(from.IP, "8080"), name, port, path)
	return c.Control.Output(ctx, "curl", "--silent", "--show-error", "--fail", "--max-time", fmt.Sprint(c.limit(20*time.Second).Seconds()), dial)
}

// AskEach sends requests to the Service from every pod until every pod has answered, and returns
// the pods that answered each. It fails after serviceTimeout: a node may learn about the
// Service's pods at different times.
func (c *Cluster) AskEach(ctx context.Context, pods []Pod, url string) (map[string][]string, error) {
	answered := map[string][]string{}
	deadline := time.Now().Add(c.limit(serviceTimeout))
	for _, from := range pods {
		seen := map[string]bool{}
		for len(seen) < len(pods) && time.Now().Before(deadline) {
			out, err := c.Ask(ctx, from, url)
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
