package serving

import (
	"crypto/tls"
	"encoding/json"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/pki"
	"airlift/scripts/fixtures/testcluster/testclient"
	"airlift/scripts/fixtures/testhost"
)

// TestUnverified: a kubelet counts only with a certificate that the CA signed for its address. One that does not answer does not count.
func TestUnverified(t *testing.T) {
	cluster1, ca := kubeletWith(t, "127.0.0.1")
	other, _ := kubeletWith(t, "127.0.0.1")
	otherAddress, sameCA := kubeletWith(t, "192.0.2.9")
	for name, c := range map[string]struct {
		ca        []byte
		addresses []string
		port      int32
		verified  bool
	}{
		"signed":                 {ca, []string{"127.0.0.1"}, cluster1, true},
		"of another CA":          {ca, []string{"127.0.0.1"}, other, false},
		"for another address":    {sameCA, []string{"127.0.0.1"}, otherAddress, false},
		"no answer":              {ca, []string{"127.0.0.1"}, 1, false},
		"an address is missing":  {ca, nil, cluster1, false},
		"the port is not known":  {ca, []string{"127.0.0.1"}, 0, false},
		"the first address only": {ca, []string{"127.0.0.1", "192.0.2.9"}, cluster1, true},
	} {
		reasons := Unverified(t.Context(), c.ca, []cluster.NodeState{{Name: "worker", Addresses: c.addresses, KubeletPort: c.port}})
		if (len(reasons) == 0) != c.verified || !c.verified && !strings.HasPrefix(reasons[0], "worker: ") {
			t.Errorf("%s: %q", name, reasons)
		}
	}
}

// kubeletWith serves a certificate of a new cluster for an address. It returns its port, and the CA of the cluster.
func kubeletWith(t *testing.T, address string) (port int32, ca []byte) {
	t.Helper()
	file := certificates(t, address)
	pair, err := tls.X509KeyPair(file("apiserver.crt"), file("apiserver.key"))
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
	return int32(l.Addr().(*net.TCPAddr).Port), file("ca.crt")
}

// certificates returns the files of a new control plane with an address, by their names.
func certificates(t *testing.T, address string) (file func(name string) []byte) {
	t.Helper()
	made, err := pki.Ensure(testhost.Config(func(c *config.Config) {
		c.Facts.NodeIP, c.LocalAPIEndpoint.AdvertiseAddress, c.ControlPlaneEndpoint = address, address, "192.0.2.100:6443"
		c.NodeRegistration.Name = "plane"
	}), fstest.MapFS{}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return func(name string) []byte {
		i := slices.IndexFunc(made.Files, func(f pki.File) bool { return strings.HasSuffix(f.Path, "/pki/"+name) })
		if i < 0 {
			t.Fatalf("no %s", name)
		}
		return made.Files[i].Data
	}
}

// controlPlane returns the settings and the host of a control plane at 192.0.2.10, whose endpoint is 192.0.2.100.
func controlPlane(t *testing.T) (*Settings, fstest.MapFS) {
	t.Helper()
	s := &Settings{Node: "plane", Server: "https://192.0.2.10:6443", CertificatesDir: "/pki", Ranges: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")}}
	files, err := s.Files()
	if err != nil {
		t.Fatal(err)
	}
	return s, fstest.MapFS{"pki/apiserver.crt": {Data: certificates(t, "192.0.2.10")("apiserver.crt")}, SettingsPath[1:]: {Data: files[0].Data}}
}

var plane = map[string]string{cluster.ControlPlaneLabel: ""}

// at returns a Node that is two days old.
func at(name, uid string, labels map[string]string, addresses ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid), Labels: labels, CreationTimestamp: metav1.NewTime(time.Now().Add(-48 * time.Hour))}}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: name}}
	for _, a := range addresses {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	return n
}

// TestObjectsForARunningCluster: workers that joined before are recorded, so that their requests are approved at any time. An address that
// is another node's, or no host's, is not; a record stays; and control planes decide about themselves.
func TestObjectsForARunningCluster(t *testing.T) {
	stored := emptyRecord()
	stored.Data = map[string]string{"fixed": `{"uid":"4","addresses":["192.0.2.40"]}`, "again": `{"uid":"of a former Node","addresses":["192.0.2.99"]}`}
	client, _ := testclient.Fake(stored, at("plane", "1", plane, "192.0.2.10"), at("honest", "2", nil, "192.0.2.20", "2001:db8::20"),
		at("thief", "3", nil, "192.0.2.10", "10.96.0.7", "192.0.2.40", "127.0.0.1"), at("fixed", "4", nil, "192.0.2.41"), at("again", "5", nil, "192.0.2.50"),
		at("twin", "6", nil, "192.0.2.60"), at("twin2", "7", nil, "192.0.2.60"), at("endpoint", "8", nil, "192.0.2.100"))
	s, root := controlPlane(t)
	objects, err := s.ObjectsFor(t.Context(), client, root)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Apply(t.Context(), objects...); err != nil {
		t.Fatal(err)
	}
	m, err := client.API.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(t.Context(), recordMap, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	all, err := decodeRecords(m)
	if err != nil {
		t.Fatal(err)
	}
	want := records{"fixed": {"4", []string{"192.0.2.40"}}, "honest": {"2", []string{"192.0.2.20", "2001:db8::20"}}, "again": {"5", []string{"192.0.2.50"}}}
	is, _ := json.Marshal(all)
	if should, _ := json.Marshal(want); string(is) != string(should) {
		t.Errorf("recorded %s\nwant     %s", is, should)
	}
	again, err := s.ObjectsFor(t.Context(), client, root)
	if err != nil {
		t.Fatal(err)
	}
	if changed, err := client.Apply(t.Context(), again...); err != nil || len(changed) > 0 {
		t.Errorf("a second run changes %q, %v", changed, err)
	}
}
