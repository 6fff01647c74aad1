//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"airlift/images/release"
	"airlift/scripts/lab"
	"airlift/scripts/lab/site"
	"airlift/scripts/oracle/upstream/components"
)

// A speakerLab is a cluster in which some nodes can answer for the address of a Service. The only pod of the Service is on another
// node. So each lost request is lost because no node answers, and not because kube-proxy sends it to a pod of a lost node.
type speakerLab struct {
	*endpointLab
	speakers []*lab.Host // the nodes that can answer
	server   *lab.Host   // the node with the pod
	macs     map[*lab.Host]string
	off      *lab.Host // the node without power
}

// A balancerWay gives addresses to Services. The lab has only one at a time.
type balancerWay struct {
	name       string
	start, end func(t *testing.T)
	// speaker is a pattern of the command line of its process on each node, and controller of another process, if there is one.
	speaker, controller string
	faults              map[string]*noticed
	uses                map[string]*used // of the speakers and of the controller
}

// The name of the node and the image are inserted.
const balancedServer = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      nodeSelector: {kubernetes.io/hostname: %s}
      tolerations: [{operator: Exists}]
      containers:
      - {name: web, image: %s, imagePullPolicy: Never, args: [netexec, --http-port=8080]}
`

const balancedService = `
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {type: LoadBalancer, selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
`

// pools of both ways have the same addresses.
const (
	airliftPools = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: pools, namespace: load-balancer}\ndata: {default: \"" + pool4 + "\"}\n"
	metalLBPools = `
apiVersion: metallb.io/v1beta1
kind: IPAddressPool
metadata: {name: default, namespace: metallb-system}
spec: {addresses: [` + pool4 + `]}
---
apiVersion: metallb.io/v1beta1
kind: L2Advertisement
metadata: {name: default, namespace: metallb-system}
`
)

const airliftName = "Airlift"

// noSpeaker is a label of nodes that answer for no address, with either way.
const noSpeaker = "node.kubernetes.io/exclude-from-external-load-balancers"

// TestLoadBalancerFaults measures the table of docs/load-balancer.md: what a host outside of the cluster notices of faults of a worker that
// answers for an address, with Airlift's add-on and with MetalLB.
func TestLoadBalancerFaults(t *testing.T) {
	l := newSpeakerLab(t, "e2e-lb-faults", 1, 2)
	l.server, l.speakers = l.planes[0], l.workers
	l.compare(t)
}

// TestLoadBalancerFaultsOfControlPlanes measures the same if the nodes that answer are the control planes: a fault also takes an API
// server and a member of etcd.
func TestLoadBalancerFaultsOfControlPlanes(t *testing.T) {
	l := newSpeakerLab(t, "e2e-lb-planes", 3, 1, "--control-plane-vip", virtual, "--control-plane-balancer")
	l.server, l.speakers = l.workers[0], l.planes
	l.compare(t)
}

// newSpeakerLab makes a cluster with Airlift's add-on. Its nodes have the images of MetalLB.
func newSpeakerLab(t *testing.T, name string, planes, workers int, initArgs ...string) *speakerLab {
	path := filepath.Join(t.TempDir(), "install")
	nodes := planes + workers
	s := boot(t, lab.Options{Name: name, Hosts: nodes + 1, Virtual: []netip.Addr{netip.MustParseAddr(virtual), netip.MustParseAddr(web4)}})
	buildBundle(t, path, "--", "--addon", release.LoadBalancer)
	if _, err := s.CopyBundle(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	l := &speakerLab{endpointLab: &endpointLab{Site: s, planes: s.Hosts[:planes], workers: s.Hosts[planes:nodes], outside: s.Hosts[nodes]}, macs: map[*lab.Host]string{}}
	l.create(t, initArgs...)
	for _, command := range []string{"controller", "speaker"} {
		archive := filepath.Join(t.TempDir(), command+".tar")
		writeCommandImage(t, archive, command, "quay.io/metallb/"+command+":"+components.MetalLB)
		for _, h := range l.nodes() {
			if _, err := h.CopyIn(t.Context(), archive, "/root/image.tar", 0o600); err != nil {
				t.Fatal(err)
			}
			run(t, h, "ctr", "-n", "k8s.io", "images", "import", "/root/image.tar")
		}
	}
	return l
}

// writeCommandImage writes an archive of an image that has only a command of the rig.
func writeCommandImage(t *testing.T, path, command, reference string) {
	t.Helper()
	binary, err := components.Path(version, command)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	image, err := mutate.AppendLayers(empty.Image, fileLayer(t, command, string(data)))
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config.OS, config.Architecture, config.Config.Entrypoint = "linux", "amd64", []string{"/" + command}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag(reference)
	if err != nil {
		t.Fatal(err)
	}
	if err := tarball.WriteToFile(path, tag, image); err != nil {
		t.Fatal(err)
	}
}

// airlift is the add-on, which init has applied. It is switched off by a selector that no node matches.
func (l *speakerLab) airlift(t *testing.T) balancerWay {
	selector := func(t *testing.T, value string) {
		kubectl(t, l.Site, "patch", "daemonset", "load-balancer", "-n", "load-balancer", "-p", `{"spec":{"template":{"spec":{"nodeSelector":{"off":`+value+`}}}}}`)
	}
	return balancerWay{
		name: airliftName, speaker: "^/airlift/airlift load-balancer", faults: map[string]*noticed{}, uses: map[string]*used{},
		start: func(t *testing.T) {
			selector(t, "null")
			kubectl(t, l.Site, "rollout", "status", "daemonset/load-balancer", "-n", "load-balancer", "--timeout=120s")
			succeeds(t, l.Apply(t.Context(), airliftPools))
		},
		end: func(t *testing.T) {
			kubectl(t, l.Site, "delete", "configmap", "pools", "-n", "load-balancer")
			selector(t, `"yes"`)
			kubectl(t, l.Site, "wait", "--for=delete", "pod", "--all", "-n", "load-balancer", "--timeout=120s")
		},
	}
}

// metalLB is MetalLB with the manifest and the defaults of its release.
func (l *speakerLab) metalLB(t *testing.T) balancerWay {
	binary, err := components.Path(version, "speaker")
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := os.ReadFile(filepath.Join(filepath.Dir(binary), "metallb-native.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	const file = "/root/metallb.yaml"
	for _, h := range l.planes {
		write(t, h, file, string(manifest))
	}
	return balancerWay{
		name: "MetalLB", speaker: "^/speaker", controller: "^/controller", faults: map[string]*noticed{}, uses: map[string]*used{},
		start: func(t *testing.T) {
			kubectl(t, l.Site, "apply", "-f", file)
			kubectl(t, l.Site, "rollout", "status", "deployment/controller", "-n", "metallb-system", "--timeout=180s")
			kubectl(t, l.Site, "rollout", "status", "daemonset/speaker", "-n", "metallb-system", "--timeout=180s")
			eventually(t, 2*time.Minute, func() string { // its webhook
				if err := l.Apply(t.Context(), metalLBPools); err != nil {
					return err.Error()
				}
				return ""
			})
		},
		end: func(t *testing.T) {
			kubectl(t, l.Site, "delete", "ipaddresspools,l2advertisements", "--all", "-n", "metallb-system")
			kubectl(t, l.Site, "delete", "-f", file, "--timeout=180s")
		},
	}
}

// A speakerFault is what happens to the node that answers.
type speakerFault struct {
	name string
	do   func(t *testing.T, l *speakerLab, h *lab.Host)
}

// speakerFaults are the faults in the order of the table.
var speakerFaults = []speakerFault{
	{"the node loses its power", func(t *testing.T, l *speakerLab, h *lab.Host) {
		succeeds(t, h.PowerCut(t.Context()))
		l.off = h
	}},
	{"it has power again", func(t *testing.T, l *speakerLab, _ *lab.Host) {
		succeeds(t, l.off.Boot(t.Context()))
		l.off = nil
		systemIsUp(t, l.Site, len(l.nodes()))
	}},
	{"it is drained", func(t *testing.T, l *speakerLab, h *lab.Host) {
		kubectl(t, l.Site, "drain", h.Name, "--ignore-daemonsets", "--delete-emptydir-data")
	}},
	{"it is uncordoned", func(t *testing.T, l *speakerLab, _ *lab.Host) {
		for _, h := range l.speakers {
			kubectl(t, l.Site, "uncordon", h.Name)
		}
	}},
	{"it reboots", func(t *testing.T, l *speakerLab, h *lab.Host) {
		succeeds(t, h.Reboot(t.Context()))
		systemIsUp(t, l.Site, len(l.nodes()))
	}},
}

// afterFault is for how long requests go on after a fault.
const afterFault = 20 * time.Second

// noticed is what the client noticed of a fault, in each run.
type noticed struct {
	gaps, lost, sent []float64 // the longest time without an answer in seconds; requests
	moved            int       // how often another node answered then
	decided          int       // how often the node also had Airlift's Lease of the node that decides
}

// used is what processes used: megabytes, and percent of a core.
type used struct{ resident, anonymous, peak, cpu []float64 }

// compare gives each way each fault, in turns, and logs the tables.
func (l *speakerLab) compare(t *testing.T) {
	for _, h := range l.nodes() {
		l.macs[h] = strings.Fields(run(t, h, "ip", "-brief", "link", "show", "eth0"))[2] // sysfs has the interfaces of the machine
		change := noSpeaker + "="
		if slices.Contains(l.speakers, h) {
			change = noSpeaker + "-"
		}
		kubectl(t, l.Site, "label", "node", h.Name, "--overwrite", change)
	}
	image, err := site.WorkloadImage(version)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Apply(t.Context(), fmt.Sprintf(balancedServer, l.server.Name, image)); err != nil {
		t.Fatal(err)
	}
	ways := []balancerWay{l.airlift(t), l.metalLB(t)}
	for range endpointRuns(t) {
		for _, w := range ways {
			l.turn(t, w)
			t.Logf("\n%s", speakerTables(ways))
		}
		slices.Reverse(ways) // each is the first one in half of the runs
	}
}

// turn gives the Service its address by one way, and measures it.
func (l *speakerLab) turn(t *testing.T, w balancerWay) {
	w.start(t)
	if err := l.Apply(t.Context(), balancedService); err != nil {
		t.Fatal(err)
	}
	l.settle(t, w)
	l.use(t, w)
	for _, f := range speakerFaults {
		l.suffer(t, w, f)
	}
	kubectl(t, l.Site, "delete", "service", "web")
	w.end(t)
}

// settle waits until all nodes, except one without power, have their process, and the address answers.
func (l *speakerLab) settle(t *testing.T, w balancerWay) {
	t.Helper()
	if l.off == nil {
		systemIsUp(t, l.Site, len(l.nodes()))
	}
	eventually(t, 3*time.Minute, func() string {
		for _, h := range l.nodes() {
			if h == l.off {
				continue
			}
			if _, err := h.Output(t.Context(), "pgrep", "-f", w.speaker); err != nil {
				return h.Name + " has no process of " + w.name
			}
		}
		if err := request(newClient(l.outside.Dial), "http://"+web4+"/hostname"); err != nil {
			return err.Error()
		}
		return ""
	})
	time.Sleep(10 * time.Second)
}

// answering returns the node with the hardware address that the kernel of the client has for the address.
func (l *speakerLab) answering(t *testing.T) *lab.Host {
	t.Helper()
	_ = request(newClient(l.outside.Dial), "http://"+web4+"/hostname")
	known := run(t, l.outside, "ip", "neighbour", "show", web4)
	for _, h := range l.speakers {
		if strings.Contains(known, l.macs[h]) {
			return h
		}
	}
	t.Fatalf("no node answers: %q", known)
	return nil
}

// suffer gives the node that answers a fault, and measures what the client notices.
func (l *speakerLab) suffer(t *testing.T, w balancerWay, f speakerFault) {
	l.settle(t, w)
	h := l.answering(t)
	for _, plane := range l.planes {
		if plane != h {
			l.Control = plane
		}
	}
	decides, _ := l.Kubectl(t.Context(), "get", "lease", "assignments", "-n", "load-balancer", "-o", "jsonpath={.spec.holderIdentity}")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	p := startRequests(ctx, newClient(l.outside.Dial), "http://"+web4+"/hostname")
	time.Sleep(2 * time.Second)
	f.do(t, l, h)
	time.Sleep(afterFault)
	stop()
	<-p.done
	n := w.faults[f.name]
	if n == nil {
		n = &noticed{}
		w.faults[f.name] = n
	}
	n.gaps, n.lost, n.sent = append(n.gaps, p.longest.Seconds()), append(n.lost, float64(p.failed)), append(n.sent, float64(p.sent))
	now := l.answering(t)
	if now != h {
		n.moved++
	}
	if decides == h.Name && w.name == airliftName {
		n.decided++
	}
	load, _ := os.ReadFile("/proc/loadavg")
	t.Logf("%s, %s: %s answered, then %s; %q decides; %d of %d requests lost, %.2f s without an answer; load %s", w.name, f.name, h.Name, now.Name, decides, p.failed, p.sent, p.longest.Seconds(), load)
}

// useTime is how long the processes are watched.
const useTime = 30 * time.Second

// use measures what the processes of a way use while nothing happens.
func (l *speakerLab) use(t *testing.T, w balancerWay) {
	const script = `pid=$(pgrep -f "$1" | head -n 1); test -n "$pid" || exit 0
cut -d' ' -f14,15 /proc/$pid/stat; sleep $2; cut -d' ' -f14,15 /proc/$pid/stat
awk '/^(VmRSS|RssAnon|VmHWM):/ {print $2}' /proc/$pid/status`
	var mu sync.Mutex
	for kind, pattern := range map[string]string{"each node": w.speaker, "the controller": w.controller} {
		if pattern == "" {
			continue
		}
		u := w.uses[kind]
		if u == nil {
			u = &used{}
			w.uses[kind] = u
		}
		atOnce(l.nodes(), func(h *lab.Host) {
			out := attempt(t, h, "sh", "-c", script, "sh", pattern, fmt.Sprint(useTime.Seconds()))
			var user, system, userThen, systemThen, peak, resident, anonymous float64
			if n, _ := fmt.Sscan(out, &user, &system, &userThen, &systemThen, &peak, &resident, &anonymous); n != 7 {
				return // the controller is on another node
			}
			mu.Lock()
			defer mu.Unlock()
			const kib, ticks = 1024 / 1e6, 100
			u.peak, u.resident, u.anonymous = append(u.peak, peak*kib), append(u.resident, resident*kib), append(u.anonymous, anonymous*kib)
			u.cpu = append(u.cpu, 100*(userThen+systemThen-user-system)/ticks/useTime.Seconds())
		})
	}
}

// speakerTables are the tables of what the client noticed, and of what the processes used.
func speakerTables(ways []balancerWay) string {
	ways = slices.SortedFunc(slices.Values(ways), func(a, b balancerWay) int { return strings.Compare(a.name, b.name) })
	text := "| fault | | runs | seconds without an answer | lost requests | of | the address moved | the node also decided |\n" + strings.Repeat("|---", 8) + "|\n"
	for _, f := range speakerFaults {
		for _, w := range ways {
			if n := w.faults[f.name]; n != nil {
				text += fmt.Sprintf("| %s | %s | %d | %s | %s | %s | %d | %d |\n", f.name, w.name, len(n.gaps), leastToMost("%.2f", n.gaps), leastToMost("%.0f", n.lost), leastToMost("%.0f", n.sent), n.moved, n.decided)
			}
		}
	}
	text += "\n| | | samples | memory | of it anonymous | largest so far | percent of a core |\n" + strings.Repeat("|---", 7) + "|\n"
	for _, w := range ways {
		for _, kind := range slices.Sorted(maps.Keys(w.uses)) {
			u := w.uses[kind]
			text += fmt.Sprintf("| %s | %s | %d | %s MB | %s MB | %s MB | %s |\n", w.name, kind, len(u.cpu), leastToMost("%.1f", u.resident), leastToMost("%.1f", u.anonymous), leastToMost("%.1f", u.peak), leastToMost("%.2f", u.cpu))
		}
	}
	return text
}

// leastToMost are the least value, the median and the largest one.
func leastToMost(format string, list []float64) string {
	if len(list) == 0 {
		return "–"
	}
	list = slices.Sorted(slices.Values(list))
	median := (list[(len(list)-1)/2] + list[len(list)/2]) / 2
	return fmt.Sprintf(format+", "+format+", "+format, list[0], median, list[len(list)-1])
}
