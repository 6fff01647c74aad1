//go:build e2e

package e2e

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"airlift/installer/host"
	"airlift/scripts/lab"
	"airlift/scripts/lab/site"
)

// An endpointLab is a cluster of three control planes and some workers, and a host outside of it.
type endpointLab struct {
	*site.Site
	planes, workers []*lab.Host
	outside         *lab.Host
	admin           *tls.Config
	ways            []way
	// balanced: each node has Airlift's balancer.
	balanced bool
	// lasts is how long each fault lasts.
	lasts time.Duration
}

// A way is how a client reaches the API servers.
type way struct {
	name    string
	dial    dialer
	address string
}

func (w way) url(path string) string { return "https://" + w.address + path }

func newEndpointLab(t *testing.T, o lab.Options, workers int) *endpointLab {
	o.Hosts = 3 + workers + 1
	o.Virtual = []netip.Addr{netip.MustParseAddr(virtual)}
	s := up(t, o)
	return &endpointLab{Site: s, planes: s.Hosts[:3], workers: s.Hosts[3 : 3+workers], outside: s.Hosts[3+workers]}
}

func (l *endpointLab) nodes() []*lab.Host { return l.Hosts[:len(l.Hosts)-1] }

// create makes the cluster, with these arguments of init.
func (l *endpointLab) create(t *testing.T, args ...string) {
	t.Helper()
	out := install(t, l.planes[0], 0, append([]string{"init", "--upload-certs"}, args...)...)
	join, err := site.JoinArgs(out)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range l.planes[1:] {
		install(t, h, 0, append(slices.Clone(join), "--control-plane", "--certificate-key", certificateKey(t, out))...)
	}
	for _, h := range l.workers {
		install(t, h, 0, join...)
	}
	systemIsUp(t, l.Site, len(l.nodes()))
	l.admin = administrator(t, l.planes[0])
}

// withEndpoint makes the cluster with the virtual address and the balancer.
func (l *endpointLab) withEndpoint(t *testing.T) {
	l.balanced = true
	l.create(t, "--control-plane-vip", virtual, "--control-plane-balancer")
	l.ways = []way{
		{"through the balancer, from a worker", l.workers[0].Dial, balancer},
		{"through the address, from a worker", l.workers[0].Dial, virtual + ":6443"},
		{"through the address, from outside", l.outside.Dial, virtual + ":6443"},
	}
}

// fromPod starts a pod on the last worker, and adds the way from there.
func (l *endpointLab) fromPod(t *testing.T) {
	t.Helper()
	image, err := site.WorkloadImage(version)
	if err != nil {
		t.Fatal(err)
	}
	worker := l.workers[len(l.workers)-1]
	if err := l.Apply(t.Context(), fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: client}
spec:
  nodeName: %s
  containers: [{name: client, image: %q, imagePullPolicy: Never, args: [pause]}]
`, worker.Name, image)); err != nil {
		t.Fatal(err)
	}
	kubectl(t, l.Site, "wait", "--for=condition=Ready", "--timeout=2m", "pod/client")
	ip := kubectl(t, l.Site, "get", "pod", "client", "-o", "jsonpath={.status.podIP}")
	namespace := strings.TrimSpace(run(t, worker, "sh", "-c",
		"for n in /run/netns/cni-*; do if ip -n ${n##*/} -o address | grep -q ' "+ip+"/'; then echo $n; fi; done"))
	root, err := worker.Root()
	if err != nil || namespace == "" {
		t.Fatalf("no network namespace of the pod with the address %s (%v)", ip, err)
	}
	l.ways = append(l.ways, way{"through kubernetes.default, from a pod", func(ctx context.Context, network, address string) (net.Conn, error) {
		return lab.DialFrom(ctx, root+namespace, network, address)
	}, "10.96.0.1:443"})
}

// administrator reads the client certificate of the cluster's administrator.
func administrator(t *testing.T, h *lab.Host) *tls.Config {
	t.Helper()
	conf := run(t, h, "cat", "/etc/kubernetes/admin.conf")
	var pair [2][]byte
	for i, field := range []string{"client-certificate-data", "client-key-data"} {
		m := regexp.MustCompile(field + `: (\S+)`).FindStringSubmatch(conf)
		if m == nil {
			t.Fatalf("admin.conf has no %s", field)
		}
		var err error
		if pair[i], err = base64.StdEncoding.DecodeString(m[1]); err != nil {
			t.Fatal(err)
		}
	}
	certificate, err := tls.X509KeyPair(pair[0], pair[1])
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{certificate}}
}

// asAdmin is newClient with the administrator's certificate.
func (l *endpointLab) asAdmin(dial dialer) *http.Client {
	c := newClient(dial)
	c.Transport.(*http.Transport).TLSClientConfig = l.admin.Clone()
	return c
}

// api sends a request to the API server of a control plane. body and answer may be nil.
func (l *endpointLab) api(at *lab.Host, method, path string, body, answer any) error {
	var data []byte
	if body != nil {
		var err error
		if data, err = json.Marshal(body); err != nil {
			return err
		}
	}
	req, err := http.NewRequest(method, "https://"+at.Addr.String()+":6443"+path, bytes.NewReader(data))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := l.asAdmin(at.Dial).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		return errors.New(resp.Status)
	}
	if answer == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(answer)
}

// readySince returns since when each node is Ready. It is an error if one is not.
func (l *endpointLab) readySince(at *lab.Host) (map[string]time.Time, error) {
	var list struct {
		Items []struct {
			Metadata struct{ Name string }
			Status   struct {
				Conditions []struct {
					Type, Status       string
					LastTransitionTime time.Time
				}
			}
		}
	}
	if err := l.api(at, http.MethodGet, "/api/v1/nodes", nil, &list); err != nil {
		return nil, err
	}
	since := map[string]time.Time{}
	for _, n := range list.Items {
		for _, c := range n.Status.Conditions {
			if c.Type == "Ready" && c.Status == "True" {
				since[n.Metadata.Name] = c.LastTransitionTime
			}
		}
	}
	if len(since) != len(l.nodes()) {
		return nil, fmt.Errorf("%d nodes are Ready", len(since))
	}
	return since, nil
}

// healthy waits until nothing has been wrong for three seconds, and returns the host that has the address.
func (l *endpointLab) healthy(t *testing.T) (h *lab.Host) {
	t.Helper()
	wrong := time.Now()
	eventually(t, 5*time.Minute, func() string {
		var err error
		if h, err = l.check(t.Context()); err != nil {
			wrong = time.Now()
			return err.Error()
		}
		if time.Since(wrong) < 3*time.Second {
			return "healthy for " + time.Since(wrong).String()
		}
		return ""
	})
	return h
}

// check returns what is wrong, or the host that has the address.
func (l *endpointLab) check(ctx context.Context) (*lab.Host, error) {
	list := holders(l.planes)
	if len(list) != 1 {
		return nil, fmt.Errorf("%d hosts have the address", len(list))
	}
	for _, h := range l.planes { // also asks its etcd
		if err := request(newClient(h.Dial), "https://"+h.Addr.String()+":6443/readyz"); err != nil {
			return nil, fmt.Errorf("%s: %w", h.Name, err)
		}
	}
	for _, w := range l.ways {
		if err := request(newClient(w.dial), w.url("/readyz")); err != nil {
			return nil, fmt.Errorf("%s: %w", w.name, err)
		}
	}
	if _, err := l.readySince(l.planes[0]); err != nil {
		return nil, err
	}
	if l.balanced {
		status, err := l.workers[0].Output(ctx, host.CommandPath, "endpoint", "status")
		if n := strings.Count(status, " ready "); err != nil || n != len(l.planes) {
			return nil, fmt.Errorf("a worker's balancer uses %d API servers (%v)", n, err)
		}
	}
	return list[0], nil
}

// holders are the hosts that have the virtual address.
func holders(planes []*lab.Host) (list []*lab.Host) {
	for _, h := range planes {
		addresses, err := h.Addresses()
		if err == nil && slices.Contains(addresses, netip.MustParsePrefix(virtual+"/32")) { // an error: it is off
			list = append(list, h)
		}
	}
	return list
}

// endpointRuns is how often each fault is measured.
func endpointRuns(t *testing.T) int {
	t.Helper()
	text := cmp.Or(os.Getenv("ENDPOINT_RUNS"), "3")
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("ENDPOINT_RUNS is %q, and not how often each fault is measured", text)
	}
	return n
}

// quantiles are the median, the 95th percentile and the maximum in seconds.
func quantiles(list []time.Duration) string {
	if len(list) == 0 {
		return "–"
	}
	sorted := slices.Sorted(slices.Values(list))
	at := func(percent int) float64 { return sorted[(len(sorted)*percent+99)/100-1].Seconds() }
	return fmt.Sprintf("%.2f, %.2f, %.2f s", at(50), at(95), at(100))
}
