package reconfigure

import (
	"crypto/tls"
	"net"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubeletv1 "k8s.io/kubelet/config/v1beta1"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/pki"
	"airlift/installer/profile"
	"airlift/installer/render"
	"airlift/installer/revision"
	"airlift/scripts/fixtures/testcluster/testclient"
	"airlift/scripts/fixtures/testhost"
)

// A node of the model follows the stored configuration when it is told to.
type servingNode struct {
	plane    bool
	number   int
	signed   bool // its kubelet presents a signed certificate
	verifies bool // its API server verifies kubelets
}

// A kubelets answers for all kubelets of the model: at one port with a signed certificate, at the other one with another one.
type kubelets struct {
	ca              []byte
	signed, selfish int32
}

func startKubelets(t *testing.T) (k kubelets) {
	t.Helper()
	serve := func() (int32, []byte) {
		made, err := pki.Ensure(testhost.Config(func(c *config.Config) { c.Facts.NodeIP, c.LocalAPIEndpoint.AdvertiseAddress = "127.0.0.1", "127.0.0.1" }), fstest.MapFS{}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		files := map[string][]byte{}
		for _, f := range made.Files {
			files[strings.TrimPrefix(f.Path, "/etc/kubernetes/pki/")] = f.Data
		}
		pair, err := tls.X509KeyPair(files["apiserver.crt"], files["apiserver.key"])
		if err != nil {
			t.Fatal(err)
		}
		l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					_ = conn.(*tls.Conn).HandshakeContext(t.Context())
					conn.Close()
				}()
			}
		}()
		return int32(l.Addr().(*net.TCPAddr).Port), files["ca.crt"]
	}
	k.signed, k.ca = serve()
	k.selfish, _ = serve()
	return k
}

// TestVerificationInTwoRuns: whatever is run where, in any order, also undo of the last change of the cluster: no API server verifies a
// kubelet that has no signed certificate. And when all nodes have followed, a few runs reach what is wanted.
func TestVerificationInTwoRuns(t *testing.T) {
	kubelets := startKubelets(t)
	r, h := reconfiguring(t, Options{})
	if _, err := h.WriteFile(path.Join(testhost.Config(nil).CertificatesDir, "ca.crt"), kubelets.ca, 0o644); err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(rt *rapid.T) {
		nodes := map[string]*servingNode{}
		names := []string{"cp0", "cp1", "w0", "w1"}[:rapid.IntRange(1, 4).Draw(rt, "nodes")]
		for _, name := range names {
			nodes[name] = &servingNode{plane: strings.HasPrefix(name, "cp")}
		}
		stored := storedOf(rt, testhost.Config(nil))
		stored.Kubelet = []byte("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n")
		var former *cluster.Stored // from before the last change, nil if that is undone
		follow := func(name string) {
			n := nodes[name]
			var k kubeletv1.KubeletConfiguration
			if err := yaml.Unmarshal(stored.Kubelet, &k); err != nil {
				rt.Fatal(err)
			}
			if n.plane { // before its kubelet
				n.verifies = profile.VerifiesServing(&stored.Cluster)
				check(rt, nodes)
			}
			n.signed, n.number = k.ServerTLSBootstrap, stored.Cluster.Reconfiguration.Number
			check(rt, nodes)
		}
		store := func(next *cluster.Stored, kubelets bool) {
			next.Cluster.Reconfiguration = stored.Cluster.Reconfiguration.Next(&stored.Cluster, &next.Cluster, kubelets)
			former, stored = stored, next
		}
		run := func(wanted string) (waits bool) {
			var objects []runtime.Object
			for _, name := range names {
				objects = append(objects, nodes[name].object(name, kubelets))
			}
			r.options.Profile, r.waits = wanted, nil
			r.API.Client, _ = testclient.Fake(objects...)
			for _, name := range names {
				if _, err := r.API.Client.NodeObjects().Follow(t.Context(), name, func(f *cluster.Follows) { f.Reconfiguration = nodes[name].number }); err != nil {
					rt.Fatal(err)
				}
			}
			own := testhost.Config(nil)
			own.Cluster, own.Kubelet = stored.Cluster, nil
			initial := *own
			if err := r.useProfile(t.Context(), own, &initial, stored); err != nil {
				rt.Fatal(err)
			}
			changes := !slices.Equal(own.APIServer.ExtraArgs, stored.Cluster.APIServer.ExtraArgs) || own.Kubelet != nil
			if changes {
				next := storedOf(rt, own)
				if own.Kubelet == nil {
					next.Kubelet = stored.Kubelet
				}
				store(next, own.Kubelet != nil)
			}
			follow("cp0")
			return len(r.waits) > 0
		}
		goals := []string{profile.Hardened, profile.None}
		rt.Repeat(map[string]func(*rapid.T){
			"run":    func(rt *rapid.T) { run(rapid.SampledFrom(goals).Draw(rt, "profile")) },
			"follow": func(rt *rapid.T) { follow(rapid.SampledFrom(names).Draw(rt, "node")) },
			"undo": func(rt *rapid.T) {
				if former == nil {
					rt.Skip("there is nothing to undo")
				}
				back := *former
				fetched := *former.FetchedConfig
				back.FetchedConfig = &fetched
				store(&back, true)
				former = nil
				follow("cp0")
			},
		})
		goal := rapid.SampledFrom(goals).Draw(rt, "goal")
		for range 3 {
			for _, name := range names {
				follow(name)
			}
			run(goal)
		}
		for _, name := range names {
			follow(name)
		}
		if waits := run(goal); waits || profile.VerifiesServing(&stored.Cluster) != (goal == profile.Hardened) || profile.Used(&stored.Cluster) != (goal == profile.Hardened) {
			rt.Fatalf("%s is not reached: waits %t, %+v", goal, waits, stored.Cluster.APIServer.ExtraArgs)
		}
	})
}

func check(t *rapid.T, nodes map[string]*servingNode) {
	for plane, p := range nodes {
		for name, n := range nodes {
			if p.verifies && !n.signed {
				t.Fatalf("%s verifies %s, which has no signed certificate", plane, name)
			}
		}
	}
}

// storedOf returns what a cluster stores of a configuration.
func storedOf(t *rapid.T, c *config.Config) *cluster.Stored {
	s := &cluster.Stored{FetchedConfig: &cluster.FetchedConfig{Cluster: c.Cluster}}
	if c.Kubelet != nil {
		text, err := render.KubeletConfig(c)
		if err != nil {
			t.Fatal(err)
		}
		s.Kubelet = text
	}
	s.Cluster.Kubelet = nil
	return s
}

// TestInterruptedSecondRun: a run that is continued stays the run that it was, whatever the kubelets answer then.
func TestInterruptedSecondRun(t *testing.T) {
	kubelets := startKubelets(t)
	own := testhost.Config(nil)
	if _, err := profile.Apply(profile.Hardened, own); err != nil {
		t.Fatal(err)
	}
	target := own.Cluster
	profile.DeferVerification(&own.Cluster)
	stored := &cluster.Stored{FetchedConfig: &cluster.FetchedConfig{Cluster: own.Cluster}}
	for second, signed := range map[bool]bool{true: false, false: true} {
		r, h := reconfiguring(t, Options{Profile: profile.Hardened})
		n := &servingNode{plane: true, signed: signed}
		r.API.Client, _ = testclient.Fake(n.object("cp0", kubelets))
		if _, err := h.WriteFile(path.Join(target.CertificatesDir, "ca.crt"), kubelets.ca, 0o644); err != nil {
			t.Fatal(err)
		}
		r.Record = &revision.Record{Kind: revision.Reconfigure, From: "v1.37.1", To: "v1.37.1", Change: "0123456789abcdef"}
		if second {
			r.Record.Parts = []string{verificationPart}
		}
		next := *own
		next.Cluster = target
		initial := *own
		if err := r.inTwoRuns(t.Context(), &next, &initial, stored); err != nil || profile.VerifiesServing(&next.Cluster) != second {
			t.Errorf("the second run %t is continued: %v, %+v", second, err, next.APIServer.ExtraArgs)
		}
	}
}

// object is the Node of a node.
func (n *servingNode) object(name string, k kubelets) *corev1.Node {
	o := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	if n.plane {
		o.Labels[cluster.ControlPlaneLabel] = ""
	}
	o.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}}
	o.Status.DaemonEndpoints.KubeletEndpoint.Port = k.selfish
	if n.signed {
		o.Status.DaemonEndpoints.KubeletEndpoint.Port = k.signed
	}
	return o
}
