package clustertest

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"airlift/installer/clustertest/diagnosis"
	"airlift/installer/clustertest/probe"
	"airlift/installer/host"
	"airlift/installer/loadbalancer"
	"airlift/internal/fault"
)

// Labels of what a test creates, and the roles of its pods.
const (
	managedBy, airlift = "app.kubernetes.io/managed-by", "airlift"
	roleLabel          = "airlift.dev/test" // of the namespace: the nonce of the test

	roleServer = "server"
	roleProbe  = "probe"
	rolePull   = "pull"
	roleVolume = "volume"
)

// Names of the objects in the namespace.
const (
	anyService   = "any"      // every server
	localService = "local"    // the server on the node of the client
	balancedName = "balanced" // of type LoadBalancer: every server
	volumeName   = "volume"
	policyName   = "closed"
	volumePath   = "/volume"
)

// clear removes what a former test left.
func (t *Test) clear(ctx context.Context) error {
	return t.remove(ctx, func(*corev1.Namespace) bool { return true })
}

// created reports whether this test created a namespace, also if no answer has confirmed that.
func (t *Test) created(n *corev1.Namespace) bool { return n.Labels[roleLabel] == t.nonce }

// remove removes the namespace of a test, and waits until it is gone. One that is not meant stays.
func (t *Test) remove(ctx context.Context, meant func(*corev1.Namespace) bool) error {
	ctx, cancel := context.WithTimeout(ctx, cleanupTime)
	defer cancel()
	namespaces := t.Client.API.CoreV1().Namespaces()
	for first := true; ; first = false {
		found, err := namespaces.Get(ctx, Namespace, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			if pause(ctx, poll) != nil {
				return err
			}
			continue // an API server may be away for a moment
		case found.Labels[managedBy] != airlift:
			return fault.New(fault.Failure, "the namespace %s exists, and Airlift did not create it", Namespace).Hint("see it: kubectl get all -n " + Namespace + "; remove it, or rename what it is for")
		case !meant(found):
			return nil
		case first || found.DeletionTimestamp == nil:
			// Without a grace period, pods on a node that is lost do not hold the namespace.
			_ = t.Client.API.CoreV1().Pods(Namespace).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}, metav1.ListOptions{}) // the namespace controller deletes them, too
			if err := namespaces.Delete(ctx, Namespace, *metav1.NewPreconditionDeleteOptions(string(found.UID))); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
				return err
			}
		}
		if err := pause(ctx, poll); err != nil {
			return fault.New(fault.Failure, "the namespace %s is still there after %s%s", Namespace, cleanupTime, remains(found)).
				Hint("see what holds it: kubectl get namespace " + Namespace + " -o yaml")
		}
	}
}

// remains returns why Kubernetes has not removed a namespace yet: ": Some resources are remaining: …".
func remains(n *corev1.Namespace) string {
	for _, c := range n.Status.Conditions {
		if c.Status == corev1.ConditionTrue {
			return ": " + c.Message
		}
	}
	return ""
}

// start creates the namespace, its objects, the servers, and the pods that need no servers.
func (t *Test) start(ctx context.Context) error {
	api := t.Client.API
	_, err := api.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Namespace, Labels: map[string]string{
		managedBy: airlift, roleLabel: t.nonce,
		// The pods have a file of the host, and some its network.
		"pod-security.kubernetes.io/enforce": "privileged", "pod-security.kubernetes.io/warn": "privileged", "pod-security.kubernetes.io/audit": "privileged",
	}}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	// The namespace's own ServiceAccount is created later, by a controller.
	account, err := api.CoreV1().ServiceAccounts(Namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: t.meta("test", ""), AutomountServiceAccountToken: ptr.To(false)}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	// A drain of a node, of Airlift or of kubectl, refuses pods that nothing controls.
	t.owner = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ServiceAccount", Name: account.Name, UID: account.UID, Controller: ptr.To(true)}}
	services := []*corev1.Service{t.service(anyService), t.service(localService)}
	if t.site.balancer != nil {
		services = append(services, t.service(balancedName))
	}
	for _, s := range services {
		if _, err := api.CoreV1().Services(Namespace).Create(ctx, s, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	if _, err := api.NetworkingV1().NetworkPolicies(Namespace).Create(ctx, t.policy(), metav1.CreateOptions{}); err != nil {
		return err
	}
	var pods []*corev1.Pod
	for _, n := range t.site.tested {
		pods = append(pods, t.serverPod(n))
		if t.site.registry != nil {
			pods = append(pods, t.pullPod(n))
		}
	}
	if t.site.class != nil && len(t.site.tested) > 0 {
		if _, err := api.CoreV1().PersistentVolumeClaims(Namespace).Create(ctx, t.claim(), metav1.CreateOptions{}); err != nil {
			return err
		}
		pods = append(pods, t.volumePod())
	}
	return t.create(ctx, pods...)
}

// create creates pods. Until the API server knows the ServiceAccount, it refuses them; and an API server may be away for a moment.
func (t *Test) create(ctx context.Context, pods ...*corev1.Pod) error {
	for _, p := range pods {
		var err error
		for range 10 {
			_, err = t.Client.API.CoreV1().Pods(Namespace).Create(ctx, p, metav1.CreateOptions{})
			if apierrors.IsAlreadyExists(err) {
				err = nil // the answer to the request before was lost
			}
			if reason := apierrors.ReasonForError(err); err == nil || reason != metav1.StatusReasonForbidden && reason != metav1.StatusReasonUnknown {
				break
			}
			if err := pause(ctx, poll); err != nil {
				return err
			}
		}
		if err != nil {
			return fault.Wrap(fmt.Errorf("creating the pod %s: %w", p.Name, err), fault.Failure, "if a webhook or a policy of the site refuses it: exempt the namespace "+Namespace)
		}
	}
	return nil
}

func (t *Test) meta(name, role string) metav1.ObjectMeta {
	labels := map[string]string{managedBy: airlift}
	if role != "" {
		labels[roleLabel] = role
	}
	return metav1.ObjectMeta{Namespace: Namespace, Name: name, Labels: labels}
}

func (t *Test) service(name string) *corev1.Service {
	s := &corev1.Service{ObjectMeta: t.meta(name, ""), Spec: corev1.ServiceSpec{
		Selector: map[string]string{roleLabel: roleServer}, IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicyPreferDualStack),
		Ports: []corev1.ServicePort{
			{Name: "tcp", Protocol: corev1.ProtocolTCP, Port: probe.OpenPort, TargetPort: intstr.FromInt32(probe.OpenPort)},
			{Name: "udp", Protocol: corev1.ProtocolUDP, Port: probe.OpenPort, TargetPort: intstr.FromInt32(probe.OpenPort)},
		},
	}}
	switch name {
	case localService:
		s.Spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyLocal)
	case balancedName:
		s.Spec.Type, s.Spec.LoadBalancerClass, s.Spec.AllocateLoadBalancerNodePorts = corev1.ServiceTypeLoadBalancer, ptr.To(loadbalancer.Class), ptr.To(false)
		s.Spec.Ports = s.Spec.Ports[:1]
	default:
		s.Spec.Type = corev1.ServiceTypeNodePort
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal // a port of a host leads to the pod on that host
		s.Spec.Ports = s.Spec.Ports[:1]
	}
	return s
}

// policy lets everyone connect to the servers, but not to their closed port.
func (t *Test) policy() *networkingv1.NetworkPolicy {
	port := ptr.To(intstr.FromInt32(probe.OpenPort))
	return &networkingv1.NetworkPolicy{ObjectMeta: t.meta(policyName, ""), Spec: networkingv1.NetworkPolicySpec{
		PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{roleLabel: roleServer}},
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
		Ingress: []networkingv1.NetworkPolicyIngressRule{{Ports: []networkingv1.NetworkPolicyPort{
			{Protocol: ptr.To(corev1.ProtocolTCP), Port: port}, {Protocol: ptr.To(corev1.ProtocolUDP), Port: port},
		}}},
	}}
}

func (t *Test) claim() *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: t.meta(volumeName, ""), Spec: corev1.PersistentVolumeClaimSpec{
		StorageClassName: &t.site.class.Name, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}},
	}}
}

// podName returns the name of a pod on a node. Of a node whose name leaves no room for the role, it has the hash: with a dot, no other node's pod has it.
func podName(role, node string) string {
	if name := role + "-" + node; len(name) <= validation.DNS1123SubdomainMaxLength {
		return name
	}
	return fmt.Sprintf("%s.%.16x", role, sha256.Sum256([]byte(node)))
}

func serverName(node string) string { return podName(roleServer, node) }

// container is the name of the container of each pod. Webhooks may add others.
const container = "test"

// nobody is the user of pods that need no rights.
const nobody = 65534

// pod returns a pod that runs the command airlift of its node, in an image of the node. It goes to the node without the scheduler, and
// tolerates all taints: also a node that is cordoned is tested.
func (t *Test) pod(name, role string, n *corev1.Node, args ...string) *corev1.Pod {
	const command = "/airlift"
	p := &corev1.Pod{ObjectMeta: t.meta(name, role), Spec: corev1.PodSpec{
		ServiceAccountName: "test", AutomountServiceAccountToken: ptr.To(false), EnableServiceLinks: ptr.To(false),
		RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: ptr.To[int64](1), ActiveDeadlineSeconds: ptr.To[int64](serverSeconds + 30),
		Tolerations:     []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		SecurityContext: &corev1.PodSecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}, FSGroup: ptr.To[int64](nobody)},
		Containers: []corev1.Container{{
			Name: container, ImagePullPolicy: corev1.PullNever, Command: append([]string{command}, args...),
			TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
			SecurityContext: &corev1.SecurityContext{
				RunAsUser: ptr.To[int64](nobody), RunAsGroup: ptr.To[int64](nobody), ReadOnlyRootFilesystem: ptr.To(true), AllowPrivilegeEscalation: ptr.To(false),
				Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			},
			VolumeMounts: []corev1.VolumeMount{{Name: "command", MountPath: command, ReadOnly: true}},
		}},
		Volumes: []corev1.Volume{{Name: "command", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{
			Path: host.CommandPath, Type: ptr.To(corev1.HostPathFile),
		}}}},
	}}
	p.OwnerReferences = t.owner
	if n != nil {
		p.Spec.NodeName, p.Spec.Containers[0].Image = n.Name, cmp.Or(image(n), t.anyImage())
	} else {
		p.Spec.Containers[0].Image = t.anyImage()
	}
	return p
}

// anyImage is an image that some node has.
func (t *Test) anyImage() string {
	for i := range t.site.tested {
		if name := image(&t.site.tested[i]); name != "" {
			return name
		}
	}
	return "airlift-test" // the kubelet reports that it does not have it
}

// argument encodes what a pod is to do.
func argument(v any) string {
	data, _ := json.Marshal(v) // of a struct of strings and numbers
	return string(data)
}

func (t *Test) serverPod(n corev1.Node) *corev1.Pod {
	p := t.pod(serverName(n.Name), roleServer, &n, "test", "serve", argument(probe.Server{Node: n.Name, Nonce: t.nonce, Nodes: t.site.askers(n.Name), Seconds: serverSeconds}))
	p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: probe.OpenPort, HostPort: t.site.hostPort, Protocol: corev1.ProtocolTCP}}
	return p
}

// pullPod makes the kubelet ask the embedded registry for an image. Its layers are on the node already.
func (t *Test) pullPod(n corev1.Node) *corev1.Pod {
	p := t.pod(podName(rolePull, n.Name), rolePull, &n, "--help") // without a payload, a command that needs none
	p.Spec.Containers[0].ImagePullPolicy = corev1.PullAlways
	onHost(p)
	return p
}

func onHost(p *corev1.Pod) { p.Spec.HostNetwork, p.Spec.DNSPolicy = true, corev1.DNSDefault }

// volumePod writes a file to a volume. The scheduler chooses its node, because that decides where some volumes are created.
func (t *Test) volumePod() *corev1.Pod {
	plan := probe.Plan{Nonce: t.nonce, CA: string(t.Client.CA), Checks: []probe.Check{{Kind: diagnosis.Volume, How: "write", Address: volumePath}}}
	p := t.pod(roleVolume, roleVolume, nil, "test", "probe", argument(plan))
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: volumeName, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: volumeName}}})
	p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: volumeName, MountPath: volumePath})
	return p
}

// probePod asks everything from a node: from the pod network, or from the network of the host.
func (t *Test) probePod(n corev1.Node, plan probe.Plan) *corev1.Pod {
	prefix := roleProbe
	if plan.Host {
		prefix = "host-" + roleProbe
	}
	p := t.pod(podName(prefix, n.Name), roleProbe, &n, "test", "probe", argument(plan))
	if plan.Host {
		onHost(p)
		c := p.Spec.Containers[0].SecurityContext
		c.RunAsUser, c.RunAsGroup = ptr.To[int64](0), ptr.To[int64](0)
		c.Capabilities.Add = []corev1.Capability{"NET_RAW"} // echo requests
	}
	return p
}

// plan is what a probe asks.
func (t *Test) plan(n corev1.Node, inHost bool) probe.Plan {
	s := t.site
	p := probe.Plan{
		Node: n.Name, Nonce: t.nonce, Host: inHost, CA: string(t.Client.CA), Name: s.dnsName, Peers: t.peers(n.Name), SteadySeconds: steadySeconds,
		Proxy: t.hasProxy(n.Name),
	}
	add := func(kind diagnosis.Kind, to, via, how, name, address string, port any) {
		p.Checks = append(p.Checks, probe.Check{Kind: kind, To: to, Via: via, How: how, Name: name, Address: net.JoinHostPort(address, fmt.Sprint(port))})
	}
	p.NameIPv6 = len(s.kubernetes) > 0 && !slices.ContainsFunc(s.kubernetes, func(a string) bool { return probe.FamilyOf(a) == "IPv4" })
	for _, peer := range p.Peers {
		for _, a := range peer.Pods {
			if is := net.ParseIP(a); is != nil {
				p.IPv4, p.IPv6 = p.IPv4 || is.To4() != nil, p.IPv6 || is.To4() == nil
			}
		}
	}
	if t.servers[n.Name] != nil {
		for _, a := range t.addresses[localService] {
			add(diagnosis.LocalProxy, "", "TCP to "+a, "echo-tcp", "", a, probe.OpenPort)
			add(diagnosis.LocalProxy, "", "UDP to "+a, "echo-udp", "", a, probe.OpenPort)
		}
	}
	if len(t.servers) > 0 {
		for _, a := range t.addresses[anyService] {
			add(diagnosis.Service, "", "TCP to "+a, "echo-tcp", "", a, probe.OpenPort)
		}
	}
	for _, a := range s.kubernetes {
		add(diagnosis.API, "", diagnosis.KubernetesService, "api", "", a, 443)
	}
	for _, node := range sorted(s.api) {
		p.Checks = append(p.Checks, probe.Check{Kind: diagnosis.API, To: node, Via: s.api[node], How: "api", Address: s.api[node]})
	}
	if inHost {
		for _, e := range s.endpoints {
			p.Checks = append(p.Checks, probe.Check{Kind: diagnosis.API, Via: e.via, How: "api", Address: e.address, Name: e.name})
		}
		t.hostChecks(p.Peers, add)
		t.addressChecks(&p)
		return p
	}
	if s.dnsName != "" && s.dnsReady > 0 {
		for _, a := range s.dnsService {
			add(diagnosis.DNSService, "", "UDP to "+a, "dns-udp", "", a, dnsPort)
			add(diagnosis.DNSService, "", "TCP to "+a, "dns-tcp", "", a, dnsPort)
			p.Steady = append(p.Steady, probe.Check{Via: diagnosis.SteadyDNS, How: "dns-udp", Address: net.JoinHostPort(a, dnsPort)})
		}
	}
	for _, pod := range s.dnsPods {
		for _, ip := range pod.Status.PodIPs {
			add(diagnosis.DNSPod, pod.Spec.NodeName, "UDP to "+ip.IP, "dns-udp", "", ip.IP, dnsPort)
			add(diagnosis.DNSPod, pod.Spec.NodeName, "TCP to "+ip.IP, "dns-tcp", "", ip.IP, dnsPort)
		}
	}
	if next := p.Peers[1%len(p.Peers)]; len(next.Pods) > 0 {
		add(diagnosis.Policy, next.Node, "", "closed", "", next.Pods[0], probe.ClosedPort)
	}
	for _, a := range t.addresses[anyService] {
		p.Steady = append(p.Steady, probe.Check{Via: "a Service", How: "echo-tcp", Address: net.JoinHostPort(a, strconv.Itoa(probe.OpenPort))})
	}
	for _, a := range s.kubernetes {
		p.Steady = append(p.Steady, probe.Check{Via: diagnosis.KubernetesService, How: "api", Address: net.JoinHostPort(a, "443")})
	}
	return p
}

// hostChecks adds what only the network of a host asks: ports of hosts, and embedded registries.
func (t *Test) hostChecks(peers []probe.Peer, add func(kind diagnosis.Kind, to, via, how, name, address string, port any)) {
	for _, peer := range peers {
		for _, a := range peer.Hosts {
			if slices.ContainsFunc(t.addresses[anyService], func(s string) bool { return probe.FamilyOf(s) == probe.FamilyOf(a) }) && len(peer.Pods) > 0 {
				add(diagnosis.NodePort, peer.Node, "", "echo-tcp", "", a, t.nodePort)
				add(diagnosis.HostPort, peer.Node, "", "echo-tcp", "", a, t.site.hostPort)
			}
		}
	}
	if t.site.registry != nil {
		for _, node := range sorted(t.site.api) {
			for _, peer := range peers {
				if peer.Node == node && len(peer.Hosts) > 0 {
					add(diagnosis.Registry, node, "", "connect", "", peer.Hosts[0], registryPort)
				}
			}
		}
	}
}

// hasProxy reports whether kube-proxy runs on a node.
func (t *Test) hasProxy(node string) bool {
	for _, p := range t.site.system {
		if p.Spec.NodeName == node && p.Labels["k8s-app"] == "kube-proxy" {
			return true
		}
	}
	return false
}

// pods lists the pods of a role.
func (t *Test) pods(ctx context.Context, role string) ([]corev1.Pod, error) {
	list, err := repeat(ctx, func() (*corev1.PodList, error) {
		return t.Client.API.CoreV1().Pods(Namespace).List(ctx, metav1.ListOptions{LabelSelector: roleLabel + "=" + role})
	})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// repeat repeats a request until it succeeds, for readTime: an API server may be away for a moment, and the test is to report that.
func repeat[T any](ctx context.Context, request func() (T, error)) (T, error) {
	for end := time.Now().Add(readTime); ; {
		answer, err := request()
		if err == nil || time.Now().After(end) || pause(ctx, poll) != nil {
			return answer, err
		}
	}
}

// maxLog is what is read of a log.
const maxLog = 8 << 20

// log opens what a pod printed. The API server reads it from the kubelet, without the pod network.
func (t *Test) log(ctx context.Context, pod string) (io.ReadCloser, error) {
	if t.openLog != nil {
		return t.openLog(ctx, pod)
	}
	return t.Client.API.CoreV1().Pods(Namespace).GetLogs(pod, &corev1.PodLogOptions{Container: container, LimitBytes: ptr.To[int64](maxLog)}).Stream(ctx)
}

// A podState is what the kubelet reports about a pod with one container.
type podState struct {
	running, started, ended, ready, succeeded bool
	why                                       string // it does not run, or has failed
}

func stateOf(p *corev1.Pod) (s podState) {
	s.running = p.Status.Phase == corev1.PodRunning
	s.succeeded = p.Status.Phase == corev1.PodSucceeded
	s.ended = s.succeeded || p.Status.Phase == corev1.PodFailed
	s.started = s.running || s.succeeded
	s.why = firstText(p.Status.Reason, p.Status.Message)
	for _, c := range p.Status.Conditions {
		s.ready = s.ready || c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			s.why = c.Message
		}
	}
	for _, c := range p.Status.ContainerStatuses {
		switch {
		case c.State.Terminated != nil:
			s.started, s.ended = true, s.ended || c.Name == container
			s.succeeded = s.succeeded || c.Name == container && c.State.Terminated.ExitCode == 0
			s.why = cmp.Or(s.why, firstText(fmt.Sprintf("it exited with code %d", c.State.Terminated.ExitCode), c.State.Terminated.Message))
		case c.State.Waiting != nil && c.State.Waiting.Reason != "ContainerCreating":
			s.why = firstText(c.State.Waiting.Reason, c.State.Waiting.Message)
		}
	}
	if s.why == "" && !s.started {
		s.why = "it did not start in time"
	}
	return s
}

// firstText joins a reason and its message.
func firstText(reason, message string) string {
	if reason == "" || message == "" {
		return cmp.Or(reason, message)
	}
	return reason + ": " + message
}

// readServices reads the addresses that the Services got.
func (t *Test) readServices(ctx context.Context) error {
	list, err := repeat(ctx, func() (*corev1.ServiceList, error) {
		return t.Client.API.CoreV1().Services(Namespace).List(ctx, metav1.ListOptions{})
	})
	if err != nil {
		return err
	}
	t.addresses = map[string][]string{}
	for _, s := range list.Items {
		t.addresses[s.Name] = addressesOf(&s)
		for _, p := range s.Spec.Ports {
			t.nodePort = max(t.nodePort, p.NodePort)
		}
	}
	return nil
}
