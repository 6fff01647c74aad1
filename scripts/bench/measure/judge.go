package measure

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"airlift/scripts/lab"
)

// Ready has the times when a cluster became Ready.
type Ready struct {
	// Nodes is when the last node became Ready, Pods when all nodes and all system pods
	// were Ready.
	Nodes, Pods time.Time
	// Relapses counts how often everything was Ready and then something was not.
	Relapses int
	// Last lists what became Ready last.
	Last []string
}

// pause is the time between two attempts to reach a new API server.
const pause = 20 * time.Millisecond

// settle is how long everything must stay Ready. kubeadm restarts the kubelet at the end of
// init, and the node becomes NotReady for a moment.
const settle = 5 * time.Second

// readyTimeout limits the wait for a cluster.
const readyTimeout = 5 * time.Minute

// AwaitReady watches the cluster of a control plane until the given nodes and all system
// pods are Ready: kube-proxy and flannel on each node, the static pods on the control plane,
// and both pods of CoreDNS. It watches from this machine, so it uses no resources of the
// host.
func AwaitReady(ctx context.Context, control *lab.Host, nodes ...*lab.Host) (Ready, error) {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	j := judge{control: control, nodes: nodes, pods: map[types.UID]*core.Pod{}, hosts: map[types.UID]*core.Node{}}
	for {
		err := j.watch(ctx)
		if err == nil {
			return j.ready, nil
		}
		select {
		case <-ctx.Done():
			return Ready{}, fmt.Errorf("waiting for nodes and system pods to be Ready: %w: %s; last answer of the API: %v", ctx.Err(), j.missing(), err)
		case <-time.After(pause):
		}
	}
}

type judge struct {
	control *lab.Host
	nodes   []*lab.Host
	pods    map[types.UID]*core.Pod
	hosts   map[types.UID]*core.Node
	ready   Ready
}

// watch watches nodes and pods until all have been Ready for a while, or the connection is
// lost.
func (j *judge) watch(ctx context.Context) error {
	client, err := connect(j.control)
	if err != nil {
		return err
	}
	nodes, err := client.CoreV1().Nodes().List(ctx, meta.ListOptions{})
	if err != nil {
		return err
	}
	pods, err := client.CoreV1().Pods("").List(ctx, meta.ListOptions{})
	if err != nil {
		return err
	}
	clear(j.hosts)
	clear(j.pods)
	for i := range nodes.Items {
		j.hosts[nodes.Items[i].UID] = &nodes.Items[i]
	}
	for i := range pods.Items {
		j.pods[pods.Items[i].UID] = &pods.Items[i]
	}
	nodeEvents, err := client.CoreV1().Nodes().Watch(ctx, meta.ListOptions{ResourceVersion: nodes.ResourceVersion})
	if err != nil {
		return err
	}
	defer nodeEvents.Stop()
	podEvents, err := client.CoreV1().Pods("").Watch(ctx, meta.ListOptions{ResourceVersion: pods.ResourceVersion})
	if err != nil {
		return err
	}
	defer podEvents.Stop()
	for {
		j.judge(time.Now())
		var settled <-chan time.Time
		if !j.ready.Pods.IsZero() {
			settled = time.After(time.Until(j.ready.Pods.Add(settle)))
		}
		var event watch.Event
		var open bool
		select {
		case event, open = <-nodeEvents.ResultChan():
		case event, open = <-podEvents.ResultChan():
		case <-settled:
			return nil
		}
		if !open {
			return errors.New("the connection was lost")
		}
		j.take(event)
	}
}

func (j *judge) take(event watch.Event) {
	switch o := event.Object.(type) {
	case *core.Node:
		j.hosts[o.UID] = o
		if event.Type == watch.Deleted {
			delete(j.hosts, o.UID)
		}
	case *core.Pod:
		j.pods[o.UID] = o
		if event.Type == watch.Deleted {
			delete(j.pods, o.UID)
		}
	}
}

// judge records the changes at a time.
func (j *judge) judge(now time.Time) {
	nodes := len(j.unreadyNodes()) == 0
	if !nodes {
		j.ready.Nodes = time.Time{}
	} else if j.ready.Nodes.IsZero() {
		j.ready.Nodes = now
	}
	missing := append(j.unreadyNodes(), j.unreadyPods()...)
	pods := len(missing) == 0
	if !pods {
		j.ready.Last = missing
	}
	switch {
	case !pods && !j.ready.Pods.IsZero():
		j.ready.Pods = time.Time{}
		j.ready.Relapses++
	case pods && j.ready.Pods.IsZero():
		j.ready.Pods = now
	}
}

func (j *judge) missing() string {
	return "not Ready: " + strings.Join(append(j.unreadyNodes(), j.unreadyPods()...), ", ")
}

func (j *judge) unreadyNodes() (list []string) {
	ready := map[string]bool{}
	for _, n := range j.hosts {
		for _, c := range n.Status.Conditions {
			if c.Type == core.NodeReady && c.Status == core.ConditionTrue {
				ready[n.Name] = true
			}
		}
	}
	for _, h := range j.nodes {
		if !ready[h.Name] {
			list = append(list, h.Name)
		}
	}
	return list
}

// coreDNS is the number of pods in kubeadm's Deployment.
const coreDNS = 2

// unreadyPods lists the system pods that are not Ready or do not exist yet.
func (j *judge) unreadyPods() (list []string) {
	dns := 0
	perNode := map[string]bool{} // "kube-proxy host1"
	for _, p := range j.pods {
		if p.Namespace != "kube-system" && p.Namespace != "kube-flannel" {
			continue
		}
		if !podReady(p) {
			list = append(list, p.Name)
			continue
		}
		switch {
		case strings.HasPrefix(p.Name, "coredns-"):
			dns++
		case strings.HasPrefix(p.Name, "kube-proxy-"):
			perNode["kube-proxy "+p.Spec.NodeName] = true
		case strings.HasPrefix(p.Name, "kube-flannel-"):
			perNode["flannel "+p.Spec.NodeName] = true
		case strings.HasSuffix(p.Name, "-"+p.Spec.NodeName):
			perNode[strings.TrimSuffix(p.Name, "-"+p.Spec.NodeName)+" "+p.Spec.NodeName] = true
		}
	}
	if dns < coreDNS {
		list = append(list, "coredns")
	}
	want := func(what string, h *lab.Host) {
		if !perNode[what+" "+h.Name] {
			list = append(list, what+" on "+h.Name)
		}
	}
	for _, h := range j.nodes {
		want("kube-proxy", h)
		want("flannel", h)
	}
	for _, what := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		want(what, j.control)
	}
	return list
}

func podReady(p *core.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == core.PodReady {
			return c.Status == core.ConditionTrue
		}
	}
	return false
}

// connect returns a client for the API server on a host, with the host's administrator
// kubeconfig. super-admin.conf, which newer versions have, works before the roles exist.
func connect(h *lab.Host) (*kubernetes.Clientset, error) {
	root, err := h.Root()
	if err != nil {
		return nil, err
	}
	var data []byte
	for _, name := range []string{"super-admin.conf", "admin.conf"} {
		if data, err = os.ReadFile(filepath.Join(root, "etc/kubernetes", name)); err == nil {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(data)
	if err != nil {
		return nil, err
	}
	config.Dial = h.Dial
	return kubernetes.NewForConfig(config)
}
