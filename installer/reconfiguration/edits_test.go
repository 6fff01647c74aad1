package reconfiguration

import (
	"slices"
	"strings"
	"testing"

	"airlift/installer/config"
)

const schedulerPod = `apiVersion: v1
kind: Pod
metadata:
  labels: {component: kube-scheduler}
  name: kube-scheduler
  namespace: kube-system
spec:
  containers:
  - command:
    - kube-scheduler
    - --bind-address=127.0.0.1
    - --leader-elect=true
    - --v=2
    image: registry.k8s.io/kube-scheduler:v1.37.1
    livenessProbe: {failureThreshold: 8}
    name: kube-scheduler
    resources: {requests: {cpu: 100m}}
    volumeMounts:
    - {mountPath: /etc/kubernetes/scheduler.conf, name: kubeconfig, readOnly: true}
  hostNetwork: true
  volumes:
  - {hostPath: {path: /etc/kubernetes/scheduler.conf, type: FileOrCreate}, name: kubeconfig}
`

// TestSamePod: only what the kubelet reads counts.
func TestSamePod(t *testing.T) {
	for _, c := range []struct {
		from, to string
		same     bool
	}{
		{"", "", true},
		{"kind: Pod\n", "kind: Pod # a comment\n", true},
		{"    - --bind-address=127.0.0.1\n    - --leader-elect=true\n", "    - --leader-elect=true\n    - --bind-address=127.0.0.1\n", true},
		{"    - --v=2\n", "    - --v=2\n    - --v=3\n", false},
		{"cpu: 100m", "cpu: 0.1", true},
		{"cpu: 100m", "cpu: 200m", false},
		{"    - --v=2\n", "", false},
		{"hostNetwork: true", "hostNetwork: true\n  hostNetwerk: true", false},
		{"kind: Pod\n", "kind: [\n", false},
	} {
		if got := SamePod([]byte(schedulerPod), []byte(strings.Replace(schedulerPod, c.from, c.to, 1))); got != c.same {
			t.Errorf("%q instead of %q: %t", c.to, c.from, got)
		}
	}
	two := strings.Replace(schedulerPod, "--v=2", "--v=2\n    - --v=3", 1)
	if SamePod([]byte(two), []byte(strings.Replace(two, "--v=2\n    - --v=3", "--v=3\n    - --v=2", 1))) {
		t.Error("the order of a repeated flag matters")
	}
}

// TestPodFields: flags, volumes and variables have fields, all else is a patch.
func TestPodFields(t *testing.T) {
	const args, envs, volumes = "ClusterConfiguration.scheduler.extraArgs", "ClusterConfiguration.scheduler.extraEnvs", "ClusterConfiguration.scheduler.extraVolumes"
	for _, c := range []struct {
		from, to string
		want     []string
	}{
		{"kind: Pod\n", "kind: Pod # a comment\n", nil},
		{"    - --bind-address=127.0.0.1\n    - --leader-elect=true\n", "    - --leader-elect=true\n    - --bind-address=127.0.0.1\n", nil},
		{"--v=2", "--v=4", []string{args}},
		{"    - --v=2\n", "", []string{args}}, // an extra argument
		{"    - --leader-elect=true\n", "", []string{Patch}},
		{"    - --v=2\n", "    - --profiling=false\n    - --v=2\n    - --v=3\n", []string{args}},
		{"    - --v=2\n", "    - --v=2\n    - --profiling\n", []string{Patch}},
		{"    - kube-scheduler\n", "    - /site/kube-scheduler\n", []string{Patch}},
		{"    name: kube-scheduler\n", "    name: kube-scheduler\n    env: [{name: TZ, value: UTC}]\n", []string{envs}},
		{"    - {mountPath: /etc", "    - {mountPath: /site, name: kubeconfig, readOnly: true}\n    - {mountPath: /etc", []string{volumes}},
		{"  volumes:\n", "  volumes:\n  - {hostPath: {path: /srv/site}, name: site}\n", []string{volumes}},
		{"  volumes:\n", "  volumes:\n  - {emptyDir: {}, name: site}\n", []string{Patch}},
		{":v1.37.1", ":v1.36.0", []string{Patch}},
		{"    - --v=2\n    image: registry.k8s.io/", "    - --v=4\n    image: site.example/", []string{args, Patch}},
		{"hostNetwork: true", "hostNetwork: false", []string{Patch}},
		{"  containers:\n", "  containers:\n  - {name: other, image: other}\n", []string{Patch}},
		{"kind: Pod\n", "kind: [\n", nil},
	} {
		edited := strings.Replace(schedulerPod, c.from, c.to, 1)
		if edited == schedulerPod {
			t.Fatalf("%q has no place", c.from)
		}
		cluster := &config.Cluster{Scheduler: config.Component{ExtraArgs: []config.Arg{{Name: "v", Value: "2"}}}}
		if got := PodFields(cluster, "kube-scheduler", []byte(schedulerPod), []byte(edited)); !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, want %q", c.to, got, c.want)
		}
	}
	mounts := strings.Replace(schedulerPod, "  volumes:\n", "  volumes:\n  - {hostPath: {path: /srv/site}, name: site}\n", 1)
	if got := PodFields(&config.Cluster{}, "etcd", []byte(schedulerPod), []byte(mounts)); !slices.Equal(got, []string{Patch}) {
		t.Errorf("etcd has no extraVolumes: %q", got)
	}
}

func TestSameDocument(t *testing.T) {
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"a: 1\nb: 2\n", "# edited\nb: 2\na: 1\n", true}, {"a: 1\n", "a: 1\nb: null\n", true}, {"a: 1\n", "a: 2\n", false}, {"a: 1\n", "{", false}, {"a: [1]", "a: [1, 2]", false},
	} {
		if SameDocument([]byte(c.a), []byte(c.b)) != c.same {
			t.Errorf("%q, %q", c.a, c.b)
		}
	}
	if fields, err := DifferingFields([]byte("a: 1\nb: 2\nc: 3\nd: null\n"), []byte("c: 4\nb: 2\ne: 5\n")); err != nil || !slices.Equal(fields, []string{"a", "c", "e"}) {
		t.Errorf("%q, %v", fields, err)
	}
}
