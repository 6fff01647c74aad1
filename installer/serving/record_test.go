package serving

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"airlift/internal/fault"
	"airlift/scripts/fixtures/testcluster/testclient"
)

// TestRecorded: an administrator cannot give a node what belongs to another one, to the API servers, the endpoint or Services, also not before
// the node joins. When the other node's record is removed or changed, its address is free, whatever its kubelet reports.
func TestRecorded(t *testing.T) {
	stored := emptyRecord()
	stored.Data = map[string]string{
		"w1": `{"uid":"2","addresses":["192.0.2.20","w1.example"]}`, "gone": `{"uid":"of a former Node","addresses":["192.0.2.99"]}`, "later": `{"addresses":["192.0.2.50"]}`, "broken": `{`,
	}
	client, _ := testclient.Fake(stored, at("plane", "1", plane, "192.0.2.10"), at("plane2", "9", plane, "192.0.2.11"), at("w1", "2", nil, "192.0.2.20"), at("w2", "3", nil, "192.0.2.30"))
	_, root := controlPlane(t)
	for _, c := range []struct {
		node, addresses string
		code            fault.Code
		hint            string
	}{
		{"w2", "192.0.2.31", fault.Failure, "./install node addresses broken ADDRESS"},
		{"broken", "192.0.2.60", 0, ""},
		{"w2", "192.0.2.30", 0, ""},
		{"w2", "192.0.2.20", fault.Preflight, `-p '{"data":{"w1":null}}'`},
		{"w2", "192.0.2.50", fault.Preflight, "./install node addresses later ADDRESS"},
		{"w2", "192.0.2.30 w1.example", fault.Preflight, "./install node addresses w1 ADDRESS"},
		{"w2", "plane", fault.Preflight, "./install node addresses w2 ADDRESS"},
		{"w2", "kubernetes.default", fault.Preflight, "./install node addresses w2 ADDRESS"},
		{"w2", "192.0.2.10", fault.Preflight, "./install node addresses w2 ADDRESS"}, // of an API server
		{"w2", "192.0.2.11", fault.Preflight, "./install node addresses w2 ADDRESS"}, // of a control plane whose API server does not run
		{"plane", "192.0.2.11", fault.Preflight, "./install node addresses plane ADDRESS"},
		{"plane", "192.0.2.12 plane", 0, ""}, // its certificate has its name
		{"plane", "192.0.2.12 kubernetes", fault.Preflight, "./install node addresses plane ADDRESS"},
		{"w9", "192.0.2.100", fault.Preflight, "./install node addresses w9 ADDRESS"}, // of the endpoint
		{"w9", "10.96.0.7", fault.Preflight, "./install node addresses w9 ADDRESS"},
		{"kubernetes", "192.0.2.90", fault.Preflight, "./install node addresses kubernetes ADDRESS"},
		{"w2", "192.0.2.99 w2 w2.example", 0, ""},
		{"w1", "192.0.2.21", 0, ""},
		{"w2", "192.0.2.20", 0, ""},
		{"w1", "192.0.2.20", fault.Preflight, `-p '{"data":{"w2":null}}'`},
	} {
		_, err := SetAddresses(t.Context(), client, root, c.node, strings.Fields(c.addresses))
		if fault.ExitCode(err) != c.code || !strings.Contains(fault.Hint(err), c.hint) {
			t.Errorf("%s of %s: %v, code %d\nhint: %s", c.addresses, c.node, err, fault.ExitCode(err), fault.Hint(err))
		}
	}
}

// TestRequestOfAFormerNode: a request that waits since before the Node was created is of another node with this name. It does not decide
// which addresses the new one has.
func TestRequestOfAFormerNode(t *testing.T) {
	now := time.Now()
	node := at("w1", "2", nil, "192.0.2.20")
	node.CreationTimestamp = metav1.NewTime(now)
	request := func(age time.Duration, address string) *request {
		return &request{node: "w1", names: []string{"w1"}, addresses: []netip.Addr{netip.MustParseAddr(address)}, created: now.Add(-age)}
	}
	s := &site{now: now, nodes: []corev1.Node{*node}, records: records{}}
	if pinned, err := s.judge(request(2*time.Minute, "192.0.2.66")); err == nil || pinned != nil {
		t.Errorf("%+v, %v", pinned, err)
	}
	if pinned, err := s.judge(request(2*time.Second, "192.0.2.20")); err != nil || pinned == nil {
		t.Errorf("%+v, %v", pinned, err)
	}
}

// TestUnrecorded: a worker that registered again after its join has no record: its Node has another UID. One that has just joined may still
// get one by its request, and a control plane needs none.
func TestUnrecorded(t *testing.T) {
	again, joining := at("again", "33", nil), at("joining", "4", nil)
	again.CreationTimestamp, joining.CreationTimestamp = metav1.NewTime(time.Now().Add(-61*time.Minute)), metav1.NewTime(time.Now().Add(-59*time.Minute))
	m := emptyRecord()
	m.Data = map[string]string{
		"recorded": `{"uid":"2","addresses":["10.0.0.2"]}`, "again": `{"uid":"3","addresses":["10.0.0.3"]}`, "before": `{"addresses":["10.0.0.6"]}`,
	}
	client, _ := testclient.Fake(m, again, joining, at("plane", "1", plane), at("recorded", "2", nil), at("restored", "5", nil), at("before", "6", nil))
	names, err := Unrecorded(t.Context(), client)
	if err != nil || !slices.Equal(names, []string{"again", "restored"}) {
		t.Errorf("%q, %v", names, err)
	}
}
