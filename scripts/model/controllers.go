package model

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/peer"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/tools/clientcmd"

	"airlift/installer/config"
)

// quiet is the log of the servers: failed connections are a part of the model.
var quiet = log.New(io.Discard, "", 0)

func uid(cluster uint64, revision int64) types.UID {
	return types.UID(fmt.Sprintf("%08x-0000-0000-0000-%012x", uint32(cluster), revision))
}

func toBase64(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

func fromBase64(text string) string {
	data, _ := base64.StdEncoding.DecodeString(text)
	return string(data)
}

// connOf returns the connection of a gRPC call.
func connOf(ctx context.Context) *conn {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	a, _ := p.Addr.(runAddr)
	return a.conn
}

// A runAddr is the address of a connection, from which a server learns the command that opened it.
type runAddr struct{ conn *conn }

func (runAddr) Network() string { return "model" }
func (runAddr) String() string  { return "model" }

func (c *conn) RemoteAddr() net.Addr { return runAddr{c} }

// encodeStored returns an object as the API server stores it: as JSON, and the objects that the installer reads
// in a snapshot as Kubernetes stores them.
func encodeStored(key, text string) ([]byte, error) { return []byte(text), nil }

func decodeStored(data []byte) (string, error) { return string(data), nil }

// serveHealth serves a health check over plain HTTP on a loopback port of the host. The caller holds w.mu.
func (h *Host) serveHealth(port string, healthy func() error) (stop func()) {
	return h.serveHealthOn(h.world.listen(h.Name+"|"+port), healthy)
}

func (h *Host) serveHealthOn(l net.Listener, healthy func() error) (stop func()) {
	server := &http.Server{ErrorLog: quiet, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if err := healthy(); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})}
	h.world.done.Go(func() { _ = server.Serve(l) })
	return func() { _ = server.Close() }
}

// A client is the controller manager or the scheduler.
type client struct {
	host   *Host
	flags  map[string]string
	rootCA string // what it publishes to all pods
	server func()
}

// startClient starts a component that needs the API server. The caller holds w.mu.
func (h *Host) startClient(p *pod) (process, error) {
	for _, flag := range []string{"kubeconfig", "cluster-signing-key-file", "service-account-private-key-file"} {
		if file := p.flags[flag]; file != "" && !h.exists(file) {
			return nil, fmt.Errorf("%s does not exist", file)
		}
	}
	c := &client{host: h, flags: p.flags, rootCA: h.read(p.flags["root-ca-file"])}
	port := "10259"
	if p.component == "kube-controller-manager" {
		port = "10257"
	}
	l, err := h.selfSigned(h.world.listen(h.Name + "|" + port))
	if err != nil {
		return nil, err
	}
	c.server = h.serveHealthOn(l, c.healthy)
	return c, nil
}

func (c *client) healthy() error {
	c.host.world.mu.Lock()
	defer c.host.world.mu.Unlock()
	if c.host.world.api() == nil {
		return errors.New("the API server does not answer")
	}
	return nil
}

func (c *client) end() { c.server() }

// api returns the data of the cluster, nil if no API server is ready. The caller holds w.mu.
func (w *World) api() *etcdCluster {
	for _, h := range w.hosts {
		if s := h.apiServer(); s != nil && !time.Now().Before(s.ready) {
			if c := s.data(); c != nil {
				return c
			}
		}
	}
	return nil
}

func (h *Host) apiServer() *apiServer {
	if p := h.pods["kube-apiserver"]; p != nil && p.container != nil {
		s, _ := p.container.process.(*apiServer)
		return s
	}
	return nil
}

// update changes an object.
func (c *etcdCluster) update(key string, change func(o map[string]any)) {
	o := c.object(key)
	if o == nil {
		return
	}
	before := plainText(c.data[key])
	change(o)
	after, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	if string(after) != before {
		c.store(key, o)
	}
}

func set(o map[string]any, value any, path ...string) {
	data, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	var v any
	if err := utiljson.Unmarshal(data, &v); err != nil {
		panic(err)
	}
	for _, name := range path[:len(path)-1] {
		next, _ := o[name].(map[string]any)
		if next == nil {
			next = map[string]any{}
			o[name] = next
		}
		o = next
	}
	o[path[len(path)-1]] = v
}

func text(o map[string]any, path ...string) string {
	s, _, _ := unstructured.NestedString(o, path...)
	return s
}

// controllers does what the controller manager and the scheduler do.
func (w *World) controllers() {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.api()
	leader := w.leader()
	if c == nil {
		return
	}
	w.registerServers(c)
	w.missNodes(c)
	w.verifyKubelets(c)
	if leader == nil || w.managed == c.changed {
		return
	}
	defer func() { w.managed = c.changed }()
	c.signClusterInfo()
	c.signRequests(w)
	c.publishCA(leader.rootCA)
	var nodes []string
	for i, h := range w.hosts {
		if c.data["nodes/"+h.Name] == "" {
			continue
		}
		nodes = append(nodes, h.Name)
		c.update("nodes/"+h.Name, func(o map[string]any) {
			if _, ok, _ := unstructured.NestedSlice(o, "spec", "podCIDRs"); !ok {
				cidr := fmt.Sprintf("10.244.%d.0/24", i)
				set(o, cidr, "spec", "podCIDR")
				set(o, []string{cidr}, "spec", "podCIDRs")
			}
		})
	}
	for _, key := range slices.Sorted(maps.Keys(c.data)) {
		resource, name, _ := strings.Cut(key, "/")
		switch resource {
		case "deployments":
			c.update(key, func(o map[string]any) {
				n, ok, _ := unstructured.NestedFieldNoCopy(o, "spec", "replicas")
				if !ok {
					n = int64(1)
				}
				set(o, map[string]any{"observedGeneration": generation(o), "replicas": n, "updatedReplicas": n, "readyReplicas": n, "availableReplicas": n}, "status")
			})
		case "daemonsets":
			c.update(key, func(o map[string]any) {
				n := len(nodes)
				set(o, map[string]any{"observedGeneration": generation(o), "desiredNumberScheduled": n, "currentNumberScheduled": n, "updatedNumberScheduled": n, "numberReady": n, "numberAvailable": n, "numberMisscheduled": 0}, "status")
			})
			o := c.object(key)
			namespace, ds, _ := strings.Cut(name, "/")
			for _, node := range nodes {
				pod := "pods/" + namespace + "/" + ds + "-" + node
				if c.data[pod] == "" {
					c.store(pod, ready(map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{
						"name": ds + "-" + node, "namespace": namespace,
						"ownerReferences": []any{map[string]any{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": ds, "uid": text(o, "metadata", "uid"), "controller": true}},
					}, "spec": map[string]any{"nodeName": node}}))
				}
			}
		case "services":
			namespace, service, _ := strings.Cut(name, "/")
			if name == "default/kubernetes" { // of the API servers
				continue
			}
			slice := "endpointslices/" + namespace + "/" + service + "-model"
			if c.data[slice] == "" {
				c.store(slice, map[string]any{
					"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
					"metadata":  map[string]any{"name": service + "-model", "namespace": namespace, "labels": map[string]any{"kubernetes.io/service-name": service}},
					"endpoints": []any{map[string]any{"addresses": []any{"10.244.0.2"}, "conditions": map[string]any{"ready": true}}},
				})
			}
			c.update(slice, func(o map[string]any) { // its only pod is on the last node
				if endpoints, _ := o["endpoints"].([]any); len(nodes) > 0 && len(endpoints) > 0 {
					endpoints[0].(map[string]any)["nodeName"] = nodes[len(nodes)-1]
				}
			})
		case "leases": // a node's Lease is removed with the node
			for _, owner := range (&unstructured.Unstructured{Object: c.object(key)}).GetOwnerReferences() {
				if node := c.object("nodes/" + owner.Name); owner.Kind == "Node" && text(node, "metadata", "uid") != string(owner.UID) {
					c.remove(key)
				}
			}
		case "endpointslices":
			namespace, slice, _ := strings.Cut(name, "/")
			if service, ok := strings.CutSuffix(slice, "-model"); ok && c.data["services/"+namespace+"/"+service] == "" {
				c.remove(key)
			}
		case "pods":
			if node := text(c.object(key), "spec", "nodeName"); node != "" && !slices.Contains(nodes, node) {
				c.remove(key)
			}
		}
	}
}

// nodeGrace is how long a kubelet may be silent before its node counts as down: a little less than the controller manager's.
const nodeGrace = 30 * time.Second

// missNodes marks the nodes whose kubelets do not run. The caller holds w.mu.
func (w *World) missNodes(c *etcdCluster) {
	for _, h := range w.hosts {
		if h.unit("kubelet.service").active {
			h.silent = time.Time{}
			continue
		}
		if h.silent.IsZero() {
			h.silent = time.Now()
		}
		if time.Since(h.silent) < nodeGrace {
			continue
		}
		c.update("nodes/"+h.Name, func(o map[string]any) {
			set(o, []any{map[string]any{"type": "Ready", "status": "Unknown", "message": "Kubelet stopped posting node status."}}, "status", "conditions")
		})
	}
}

// registerServers lists the API servers that run, as they do themselves. The caller holds w.mu.
func (w *World) registerServers(c *etcdCluster) {
	const key = "endpointslices/default/kubernetes"
	endpoints := []any{}
	for _, h := range w.hosts {
		if s := h.apiServer(); s != nil && s.data() == c && !time.Now().Before(s.ready) {
			endpoints = append(endpoints, map[string]any{"addresses": []any{h.IP}, "conditions": map[string]any{"ready": true}})
		}
	}
	if o := c.object(key); o != nil {
		if is, _, _ := unstructured.NestedSlice(o, "endpoints"); reflect.DeepEqual(is, endpoints) {
			return
		}
	}
	c.store(key, map[string]any{
		"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4", "endpoints": endpoints,
		"ports":    []any{map[string]any{"name": "https", "port": int64(config.DefaultBindPort), "protocol": "TCP"}},
		"metadata": map[string]any{"name": "kubernetes", "namespace": "default", "labels": map[string]any{"kubernetes.io/service-name": "kubernetes"}},
	})
}

func generation(o map[string]any) int64 {
	return (&unstructured.Unstructured{Object: o}).GetGeneration()
}

// ready adds the status of a pod that is Ready.
func ready(o map[string]any) map[string]any {
	set(o, map[string]any{"phase": "Running", "conditions": []any{map[string]any{"type": "Ready", "status": "True"}}}, "status")
	return o
}

// report reports the node and its static pods, as a kubelet does. The caller does not hold w.mu.
func (w *World) report(h *Host) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.api()
	if c == nil {
		return
	}
	networks, _ := filepath.Glob(h.hostPath("/etc/cni/net.d/*.conflist"))
	state := fmt.Sprint(c.id, h.kubeletMade, h.IP, h.claims, len(networks), h.endRuntime != nil)
	for _, component := range slices.Sorted(maps.Keys(h.pods)) {
		if p := h.pods[component]; p.container != nil {
			state += fmt.Sprint(p.uid, p.container.id, p.container.process != nil)
		}
	}
	key := "nodes/" + h.Name
	reported := func() string { // with what the cluster has of it
		text, mirrors := state+c.data[key], 0
		for _, p := range slices.Sorted(maps.Keys(h.pods)) {
			text += c.data["pods/kube-system/"+h.podName(h.pods[p])]
		}
		for key := range c.data {
			if strings.HasPrefix(key, "pods/kube-system/") && strings.HasSuffix(key, "-"+h.Name) {
				mirrors++
			}
		}
		return text + fmt.Sprint(mirrors)
	}
	if h.reported == reported() || !h.registers(c) {
		return
	}
	addresses := []any{}
	for _, a := range h.addresses() {
		addresses = append(addresses, map[string]any{"type": "InternalIP", "address": a.String()})
	}
	addresses = append(addresses, map[string]any{"type": "Hostname", "address": h.Name})
	defer func() { h.reported = reported() }()
	if c.data[key] == "" {
		if h.registered == c.id { // it registers once, when it starts
			return
		}
		c.store(key, map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": h.Name, "labels": map[string]any{"kubernetes.io/hostname": h.Name, "kubernetes.io/os": "linux"}}, "spec": map[string]any{}})
		w.note("%s: registered", h.Name)
	}
	h.registered = c.id
	c.update(key, func(o map[string]any) {
		status := map[string]any{"type": "Ready", "status": "False", "message": "no CNI configuration", "lastHeartbeatTime": time.Now().UTC().Format(time.RFC3339)}
		if len(networks) > 0 && h.endRuntime != nil {
			status["status"], status["message"] = "True", "ready"
		}
		delete(status, "lastHeartbeatTime")
		set(o, map[string]any{
			"conditions": []any{status}, "addresses": addresses, "daemonEndpoints": map[string]any{"kubeletEndpoint": map[string]any{"Port": config.KubeletPort}},
			"nodeInfo": map[string]any{"kubeletVersion": h.kubeletMade, "containerRuntimeVersion": "containerd://2.4.2", "operatingSystem": "linux", "architecture": "amd64"},
		}, "status")
	})
	for component, p := range h.pods {
		pod := "pods/kube-system/" + h.podName(p)
		if old := c.object(pod); old != nil && text(old, "metadata", "annotations", "kubernetes.io/config.hash") != p.uid {
			c.remove(pod)
		}
		if c.data[pod] == "" {
			o := map[string]any{}
			data, err := json.Marshal(p.object)
			if err != nil || utiljson.Unmarshal(data, &o) != nil {
				continue
			}
			annotations := map[string]string{"kubernetes.io/config.hash": p.uid, "kubernetes.io/config.mirror": p.uid, "kubernetes.io/config.source": "file"}
			maps.Copy(annotations, p.object.Annotations)
			set(o, map[string]any{"name": h.podName(p), "namespace": "kube-system", "labels": p.object.Labels, "annotations": annotations,
				"ownerReferences": []any{map[string]any{"apiVersion": "v1", "kind": "Node", "name": h.Name, "uid": "node", "controller": true}}}, "metadata")
			set(o, h.Name, "spec", "nodeName")
			c.store(pod, o)
		}
		c.update(pod, func(o map[string]any) {
			if p.container != nil && p.container.process != nil {
				ready(o)
				set(o, []any{map[string]any{"name": component, "ready": true, "image": p.object.Spec.Containers[0].Image, "imageID": p.object.Spec.Containers[0].Image, "restartCount": p.container.attempt, "containerID": "containerd://" + p.container.id,
					"state": map[string]any{"running": map[string]any{"startedAt": p.container.created.UTC().Format(time.RFC3339)}}}}, "status", "containerStatuses")
			} else {
				set(o, map[string]any{"phase": "Pending"}, "status")
			}
		})
	}
	for _, key := range slices.Sorted(maps.Keys(c.data)) { // mirror pods of manifests that are gone
		name, ok := strings.CutPrefix(key, "pods/kube-system/")
		if !ok || !strings.HasSuffix(name, "-"+h.Name) {
			continue
		}
		o := c.object(key)
		if text(o, "metadata", "annotations", "kubernetes.io/config.mirror") != "" && !slices.ContainsFunc(slices.Collect(maps.Values(h.pods)), func(p *pod) bool { return h.podName(p) == name }) {
			c.remove(key)
		}
	}
}

// registers reports whether the kubelet of a host has a kubeconfig for the cluster.
func (h *Host) registers(c *etcdCluster) bool {
	kubeconfig, err := clientcmd.Load([]byte(h.read(kubeletConf)))
	if err != nil {
		return false
	}
	for _, k := range kubeconfig.Clusters {
		for _, o := range h.world.hosts {
			if a := o.apiServer(); a != nil && a.data() == c {
				for ca := range strings.SplitAfterSeq(o.read(config.CertificatesDir+"/ca.crt"), "-----END CERTIFICATE-----\n") {
					if ca != "" && bytes.Contains(k.CertificateAuthorityData, []byte(ca)) {
						return true
					}
				}
			}
		}
	}
	return false
}
