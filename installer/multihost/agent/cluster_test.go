package agent

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"airlift/installer/cluster"
	"airlift/installer/cluster/workloads"
	"airlift/scripts/fixtures/testcluster"
	"airlift/scripts/fixtures/testcluster/testclient"
	"airlift/scripts/fixtures/testhost"
)

func TestCredentials(t *testing.T) {
	h, cfg := testhost.ControlPlane(t, nil)
	authorities(t, h)
	client, writes := testclient.Fake()
	client.CA, client.Server = testcluster.Must(os.ReadFile(h.Path("/etc/kubernetes/pki/ca.crt")))(t), "https://10.0.0.10:6443"
	ctx := t.Context()
	worker := testcluster.Must(CreateCredentials(ctx, client, h, 30*time.Minute, false))(t)
	if worker.CertificateKey != "" || worker.APIServerEndpoint != "10.0.0.10:6443" || len(worker.CACertHashes) != 1 {
		t.Errorf("%+v", worker)
	}
	if w := writes(); !slices.Equal(w, []string{"create secrets"}) {
		t.Errorf("for a worker: %q", w)
	}
	tokens := testcluster.Must(client.ListTokens(ctx))(t)
	if len(tokens) != 1 || tokens[0].Token != worker.Token || !strings.Contains(tokens[0].Description, "cluster apply") || !tokens[0].Expires.Equal(worker.Expires) {
		t.Errorf("%+v", tokens)
	}
	made := testcluster.Must(CreateCredentials(ctx, client, h, 30*time.Minute, true))(t)
	if files := testcluster.Must(client.DownloadCerts(ctx, cfg, made.CertificateKey))(t); len(files) != 8 {
		t.Errorf("%d files were uploaded", len(files))
	}
	other := Credentials{Token: worker.Token, CertificateKey: cluster.NewCertificateKey()}
	for _, c := range []struct {
		of   Credentials
		want []string
	}{
		{other, []string{"token " + worker.Token[:6]}}, // another upload stays
		{*made, []string{"token " + made.Token[:6], "certificates"}},
		{*made, []string{}},
	} {
		if got := testcluster.Must(DeleteCredentials(ctx, client, c.of))(t); !slices.Equal(got, c.want) {
			t.Errorf("deleted %q, want %q", got, c.want)
		}
	}
	if left := testcluster.Must(client.ListTokens(ctx))(t); len(left) != 0 {
		t.Errorf("left: %+v", left)
	}
}

// With an external CA, nothing is created.
func TestCredentialsWithAnExternalCA(t *testing.T) {
	h, _ := testhost.ControlPlane(t, nil)
	authorities(t, h)
	if err := os.Remove(h.Path("/etc/kubernetes/pki/ca.key")); err != nil {
		t.Fatal(err)
	}
	client, writes := testclient.Fake()
	client.CA = testcluster.Must(os.ReadFile(h.Path("/etc/kubernetes/pki/ca.crt")))(t)
	if _, err := CreateCredentials(t.Context(), client, h, time.Minute, true); err == nil || len(writes()) > 0 {
		t.Errorf("%v", err)
	}
}

func TestCredentialsAreDeletedOnlyByAToken(t *testing.T) {
	client, _ := testclient.Fake()
	if _, err := DeleteCredentials(t.Context(), client, Credentials{}); err == nil {
		t.Error("an empty document deleted something")
	}
}

func nodeObject(name, version string, ready corev1.ConditionStatus) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "1"},
		Status:     corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{KubeletVersion: version}, Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}},
	}
}

func TestNodesAreCheckedBeforeTheFirstWrite(t *testing.T) {
	client, writes := testclient.Fake(nodeObject("a", "", "True"), nodeObject("b", "", "True"))
	for _, second := range []cluster.NodeMeta{{Name: "b", Labels: map[string]string{"x y": ""}}, {Name: "a"}} {
		_, err := SetNodes(t.Context(), client, []cluster.NodeMeta{{Name: "a", Labels: map[string]string{"zone": "a"}}, second}, false)
		if w := writes(); err == nil || len(w) > 0 {
			t.Errorf("%v, wrote %q", err, w)
		}
	}
}

// waitFor runs a wait while change is called after each report.
func waitFor(t *testing.T, w Wait, api kubernetes.Interface, change func(report int)) (reports [][]string, took time.Duration, err error) {
	began := time.Now()
	w.Report = func(missing []workloads.Lack) {
		reports = append(reports, Texts(missing))
		change(len(reports))
	}
	err = w.Until(t.Context(), api)
	return reports, time.Since(began), err
}

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "kube-proxy-x", Namespace: "kube-system", ResourceVersion: "1"}, Spec: corev1.PodSpec{NodeName: "w1"}}
		client, _ := testclient.Fake(nodeObject("w1", "v1.36.3", "False"), pod)
		update := func(n *corev1.Node) {
			if _, err := client.API.CoreV1().Nodes().Update(context.Background(), n, metav1.UpdateOptions{}); err != nil {
				t.Error(err)
			}
		}
		w := Wait{Healthy: workloads.Healthy{Nodes: []string{"w1"}, Version: "v1.37.1", Pods: true}, Timeout: time.Minute, For: 30 * time.Second}
		reports, took, err := waitFor(t, w, client.API, func(n int) {
			switch n {
			case 1:
				update(nodeObject("w1", "v1.36.3", "True"))
			case 2:
				update(nodeObject("w1", "v1.37.1", "True"))
			case 3:
				pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
				if _, err := client.API.CoreV1().Pods("kube-system").Update(context.Background(), pod, metav1.UpdateOptions{}); err != nil {
					t.Error(err)
				}
			}
		})
		if err != nil || took < 30*time.Second || len(reports) != 4 || len(reports[3]) != 0 {
			t.Fatalf("after %s: %v, %q", took, err, reports)
		}
		for i, want := range []string{"w1: not Ready", "w1: its kubelet is v1.36.3, not v1.37.1", "w1: pod kube-system/kube-proxy-x"} {
			if !strings.HasPrefix(reports[i][0], want) {
				t.Errorf("report %d: %q", i, reports[i])
			}
		}
	})
}

// Nodes that become healthy only for a moment never end the wait, and the time in which they are not is limited.
func TestWaitSeesNodesThatFlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, _ := testclient.Fake(nodeObject("w1", "v1.37.1", "True"))
		flap := func(n int) {
			status := []corev1.ConditionStatus{"True", "False"}[n%2]
			if _, err := client.API.CoreV1().Nodes().Update(context.Background(), nodeObject("w1", "v1.37.1", status), metav1.UpdateOptions{}); err != nil {
				t.Error(err)
			}
		}
		w := Wait{Timeout: time.Minute, For: 30 * time.Second}
		reports, took, err := waitFor(t, w, client.API, flap)
		if err == nil || !strings.Contains(err.Error(), "w1: not Ready") || took > 5*time.Minute || len(reports) < 10 {
			t.Errorf("after %s and %d reports: %v", took, len(reports), err)
		}
	})
}

// Pain 38: a node that the cluster does not have is not healthy.
func TestWaitForANodeThatDoesNotExist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, _ := testclient.Fake(nodeObject("w1", "v1.37.1", "True"))
		w := Wait{Healthy: workloads.Healthy{Nodes: []string{"w2"}}, Timeout: time.Minute}
		if _, _, err := waitFor(t, w, client.API, func(int) {}); err == nil || !strings.Contains(err.Error(), "w2: the node does not exist") {
			t.Error(err)
		}
	})
}
