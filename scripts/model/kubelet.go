package model

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"airlift/installer/config"
	"airlift/installer/host/kernel"
	"airlift/installer/pods"
	"airlift/installer/preflight"
	"airlift/installer/staticpod"
)

// A pod is a static pod that the kubelet of a host has started.
type pod struct {
	component string
	uid       string
	manifest  []byte
	flags     map[string]string
	object    corev1.Pod
	sandbox   string
	container *container
	since     time.Time // when it may start
	gone      bool      // its sandbox is removed
}

// A container runs a component. Its process is nil after it ended.
type container struct {
	id      string
	created time.Time
	attempt uint32
	exited  time.Time
	code    int32
	process process
}

// A process is a component that runs.
type process interface {
	// healthy returns why the component is not healthy.
	healthy() error
	// end ends it.
	end()
}

// waiting is the pod of a changed manifest, whose previous pod ran when the kubelet looked. It looks again
// after backOff, unless the manifest changes again.
type waiting struct {
	uid   string
	until time.Time
}

const backOff = 10 * time.Second

const kubeletPeriod = 300 * time.Millisecond

var versionText = regexp.MustCompile(`v[0-9]+\.[0-9]+\.[0-9]+`)

// startKubelet starts the kubelet. The caller holds w.mu.
func (h *Host) startKubelet() error {
	binary := h.read("usr/local/bin/kubelet")
	if binary == "" {
		return errors.New("there is no kubelet")
	}
	args := []string{"--bootstrap-kubeconfig=" + bootstrapConf, "--kubeconfig=" + kubeletConf, "--config=" + config.KubeletConfigFile}
	for _, a := range preflight.KubeletFlags("KUBELET_KUBEADM_ARGS", []byte(h.read(config.KubeletFlagsFile))) {
		args = append(args, "--"+a.Name+"="+a.Value)
	}
	if err := h.putProcess(kubeletPID, "/usr/local/bin/kubelet", args...); err != nil {
		return err
	}
	h.kubeletMade, h.registered = versionText.FindString(binary), 0
	h.endKubelet = h.world.run(kubeletPeriod, h.syncPods)
	h.serveHealth("10248", func() error { return h.kubeletReady() })
	return nil
}

// kubeletReady returns why the kubelet does not work: it exits, and systemd starts it again.
func (h *Host) kubeletReady() error {
	if !h.exists("var/lib/kubelet/config.yaml") {
		return errors.New("there is no configuration")
	}
	if !h.exists("etc/kubernetes/kubelet.conf") && !h.exists("etc/kubernetes/bootstrap-kubelet.conf") {
		return errors.New("there is no kubeconfig")
	}
	if strings.Contains(h.read("var/lib/kubelet/config.yaml"), "protectKernelDefaults: true") {
		for _, s := range kernel.KubeletSysctls() {
			if is := strings.TrimSpace(h.read("proc/sys/" + strings.ReplaceAll(s.Name, ".", "/"))); is != s.Value {
				return fmt.Errorf("%s is %s, and not %s", s.Name, is, s.Value)
			}
		}
	}
	return nil
}

// stopKubelet stops the kubelet. The pods run on.
func (h *Host) stopKubelet() {
	h.endKubelet()
	h.world.mu.Lock()
	l, port := h.world.listeners[h.Name+"|10248"], h.port
	h.port = nil
	h.world.mu.Unlock()
	if port != nil {
		port.stop()
	}
	if l != nil {
		l.Close()
	}
}

// syncPods does what the kubelet does once in a while: it makes the pods of the manifests run.
func (h *Host) syncPods() {
	if h.kubeletReady() != nil {
		return
	}
	var ended []process
	h.world.mu.Lock()
	if err := h.bootstrap(); err != nil && !h.failed(err.Error()) {
		h.world.note("%s: the kubelet has no certificate: %v", h.Name, err)
	}
	if err := h.serveAPI(); err != nil && !h.failed(err.Error()) {
		h.world.note("%s: the kubelet has no serving certificate: %v", h.Name, err)
	}
	defer func() {
		h.world.mu.Unlock()
		for _, p := range ended {
			p.end()
		}
		h.world.report(h)
	}()
	if h.endRuntime == nil { // no containerd
		return
	}
	wanted := h.manifests()
	for _, component := range slices.Sorted(maps.Keys(h.pods)) {
		p, want := h.pods[component], wanted[component]
		if want != nil && want.uid == p.uid && !p.gone {
			continue
		}
		if p.container != nil && p.container.process != nil {
			ended = append(ended, p.container.process)
			p.container.stop(137)
			h.world.note("%s: ended %s", h.Name, component)
			h.world.stops(h, component)
			if want != nil {
				h.waiting[component] = waiting{want.uid, time.Now().Add(backOff)}
			}
			continue // it is removed the next time
		}
		_ = os.RemoveAll(h.hostPath("/var/lib/kubelet/pods/" + p.uid))
		delete(h.pods, component)
	}
	for _, component := range staticPods {
		want, p := wanted[component], h.pods[component]
		if want == nil {
			continue
		}
		if wait := h.waiting[component]; p == nil && wait.uid == want.uid && time.Now().Before(wait.until) && !h.eager {
			continue
		}
		if p == nil {
			h.nextID++
			want.sandbox, want.since = fmt.Sprintf("sandbox-%s-%d", h.Name, h.nextID), time.Now()
			h.pods[component], p = want, want
			_ = os.MkdirAll(h.hostPath("/var/lib/kubelet/pods/"+p.uid), 0o750)
		}
		if p.uid == want.uid && (p.container == nil || p.container.process == nil) && !time.Now().Before(p.since) {
			h.startContainer(p)
		}
	}
}

// staticPods are the names of all manifests that a kubelet of the model reads.
var staticPods = append(slices.Clone(pods.StaticPodOrder), "user")

// addPod adds a static pod of the user, which is no component of the cluster.
func (h *Host) addPod() error {
	h.userPod = "apiVersion: v1\nkind: Pod\nmetadata: {name: user, namespace: default}\nspec:\n  containers:\n  - {name: user, image: \"registry.k8s.io/pause:3.10.1\"}\n"
	return h.put(userManifest, h.userPod, 0o600)
}

const userManifest = "etc/kubernetes/manifests/user.yaml"

// manifests reads the manifests of the static pods, by component.
func (h *Host) manifests() map[string]*pod {
	list := map[string]*pod{}
	for _, component := range staticPods {
		if p := h.parse(filepath.Join(h.hostPath(config.ManifestsDir), component+".yaml")); p != nil {
			list[component] = p
		}
	}
	return list
}

func (c *container) stop(code int32) {
	c.process, c.exited, c.code = nil, time.Now(), code
}

// parsed are the pods of manifests that were read before, by their UIDs.
var parsed sync.Map

// parse reads a manifest; nil if the kubelet would refuse it. The UID depends on the manifest and on the minor
// version of the kubelet.
func (h *Host) parse(file string) *pod {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	minor := h.kubeletMade
	if i := strings.LastIndexByte(minor, '.'); i > 0 {
		minor = minor[:i]
	}
	uid := fmt.Sprintf("%x", sha256.Sum256(append(data, minor...)))[:32]
	if known, ok := parsed.Load(uid); ok {
		p := known.(pod)
		return &p
	}
	p := pod{component: strings.TrimSuffix(filepath.Base(file), ".yaml"), manifest: data, uid: uid}
	if err := yaml.UnmarshalStrict(data, &p.object); err != nil || p.object.Name == "" || len(p.object.Spec.Containers) == 0 {
		return nil
	}
	read, err := staticpod.Read(file)
	if err != nil {
		return nil
	}
	p.flags = read.Flags
	parsed.Store(uid, p)
	return &p
}

// startContainer starts the container of a pod. A component that cannot start ends at once.
func (h *Host) startContainer(p *pod) {
	image := p.object.Spec.Containers[0].Image
	if p.component == "kube-apiserver" && time.Now().Before(h.lost) {
		return
	}
	if !h.store.has(image) {
		p.since = time.Now().Add(10 * time.Second)
		h.world.note("%s: %s has no image %s", h.Name, p.component, image)
		return
	}
	h.nextID++
	c := &container{id: fmt.Sprintf("container-%s-%d", h.Name, h.nextID), created: time.Now()}
	if p.container != nil {
		c.attempt = p.container.attempt + 1
	}
	p.container = c
	process, err := h.component(p, image[strings.LastIndexByte(image, ':')+1:])
	if err != nil {
		c.stop(1)
		p.since = time.Now().Add(min(5*time.Second<<min(c.attempt, 6), 5*time.Minute))
		if !h.failed(p.component + err.Error()) {
			h.world.note("%s: %s does not start: %v", h.Name, p.component, err)
		}
		return
	}
	c.process = process
	h.world.note("%s: started %s %s", h.Name, p.component, image[strings.LastIndexByte(image, ':')+1:])
}

// failed reports whether a failure was noted before.
func (h *Host) failed(text string) bool {
	if h.failures == nil {
		h.failures = map[string]bool{}
	}
	before := h.failures[text]
	h.failures[text] = true
	return before
}

// component starts a component with the flags of its pod.
func (h *Host) component(p *pod, version string) (process, error) {
	switch p.component {
	case "etcd":
		return h.startEtcd(p, version)
	case "kube-apiserver":
		return h.startAPIServer(p, version)
	case "kube-controller-manager", "kube-scheduler":
		return h.startClient(p)
	}
	return nothing{}, nil
}

// nothing is a component that the model does not know.
type nothing struct{}

func (nothing) healthy() error { return nil }
func (nothing) end()           {}
