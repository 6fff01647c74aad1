package reconfiguration

import (
	"reflect"
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

// TestAdoptPod: flags, volumes and variables get to the configuration, all else is refused.
func TestAdoptPod(t *testing.T) {
	stored := config.Component{ExtraArgs: []config.Arg{{Name: "v", Value: "2"}}}
	volume := config.HostPathMount{Name: "site", HostPath: "/srv/site", MountPath: "/site", ReadOnly: true}
	for _, c := range []struct {
		from, to string
		args     []config.Arg
		volumes  []config.HostPathMount
		envs     int
		refused  string // fields, and a part of what is needed
	}{
		{"--v=2", "--v=4", []config.Arg{{Name: "v", Value: "4"}}, nil, 0, ""},
		{"    - --v=2\n", "", nil, nil, 0, ""},
		{"    - --v=2\n", "    - --profiling=false\n    - --v=2\n    - --v=3\n", []config.Arg{{Name: "v", Value: "2"}, {Name: "v", Value: "3"}, {Name: "profiling", Value: "false"}}, nil, 0, ""},
		{"127.0.0.1", "0.0.0.0", []config.Arg{{Name: "v", Value: "2"}, {Name: "bind-address", Value: "0.0.0.0"}}, nil, 0, ""},
		{"    - --v=2\n", "    - --v=2\n    - --vmodule=a=1,b=2\n    - --empty=\n", []config.Arg{{Name: "v", Value: "2"}, {Name: "empty"}, {Name: "vmodule", Value: "a=1,b=2"}}, nil, 0, ""},
		{"    - --v=2\n", "    - --v=2\n    - --profiling\n", stored.ExtraArgs, nil, 0, "spec.containers[0].command: --NAME=VALUE"},
		{"    - kube-scheduler\n", "    - /site/kube-scheduler\n", stored.ExtraArgs, nil, 0, "spec.containers[0].command: --patches"},
		{"    name: kube-scheduler\n", "    name: kube-scheduler\n    env: [{name: TZ, value: UTC}]\n", stored.ExtraArgs, nil, 1, ""},
		{"    - {mountPath: /etc", "    - {mountPath: /site, name: site, readOnly: true}\n    - {mountPath: /etc", stored.ExtraArgs, []config.HostPathMount{volume}, 0, ""},
		{":v1.37.1", ":v1.36.0", stored.ExtraArgs, nil, 0, "spec.containers[0].image: imageRepository"},
		{"failureThreshold: 8", "failureThreshold: 9", stored.ExtraArgs, nil, 0, "spec.containers[0].livenessProbe.failureThreshold: --patches"},
		{"hostNetwork: true", "hostNetwork: false", stored.ExtraArgs, nil, 0, "spec.hostNetwork: --patches"},
		{"  containers:\n", "  containers:\n  - {name: other, image: other}\n", stored.ExtraArgs, nil, 0, "spec.containers: --patches"},
		{"127.0.0.1", "10.0.0.1", stored.ExtraArgs, nil, 0, "--bind-address: --patches"},
		{"    - --v=2\n", "    - --v=2\n    - --peer=a,https://10.0.0.1:2380\n", stored.ExtraArgs, nil, 0, "--peer: all control planes would get it"},
		{"    - --v=2\n", "    - --v=2\n    - --name=cp1=x\n", stored.ExtraArgs, nil, 0, "--name: all control planes would get it"},
		{"    - --v=2\n", "    - --v=2\n    - --peer=10.0.0.11,210.0.0.1,cp12,a-cp1\n", []config.Arg{{Name: "v", Value: "2"}, {Name: "peer", Value: "10.0.0.11,210.0.0.1,cp12,a-cp1"}}, nil, 0, ""},
		{"kind: Pod\n", "kind: [\n", stored.ExtraArgs, nil, 0, "the manifest: --restore"},
	} {
		cluster := config.Cluster{Scheduler: stored}
		edited := strings.Replace(schedulerPod, c.from, c.to, 1)
		if c.volumes != nil {
			edited = strings.Replace(edited, "  volumes:\n", "  volumes:\n  - {hostPath: {path: /srv/site}, name: site}\n", 1)
		}
		refused, err := AdoptPod(&cluster, []string{"cp1", "10.0.0.1"}, "kube-scheduler", "/kube-scheduler.yaml", []byte(schedulerPod), []byte(edited))
		if err != nil {
			t.Fatal(err)
		}
		is := cluster.Scheduler
		if c.refused != "" {
			field, needed, _ := strings.Cut(c.refused, ": ")
			if len(refused) != 1 || refused[0].Field != "/kube-scheduler.yaml: "+field || !strings.Contains(refused[0].Needed+refused[0].Reason, needed) {
				t.Errorf("%q: refused: %+v, want %s", c.to, refused, c.refused)
			}
			continue
		}
		if len(refused) > 0 || len(is.ExtraArgs) != len(c.args) || len(c.args) > 0 && !reflect.DeepEqual(is.ExtraArgs, c.args) || len(is.ExtraVolumes) != len(c.volumes) || len(c.volumes) > 0 && is.ExtraVolumes[0] != c.volumes[0] || len(is.ExtraEnvs) != c.envs {
			t.Errorf("%q: %+v, refused %+v", c.to, is, refused)
		}
	}
	if !reflect.DeepEqual(stored.ExtraArgs, []config.Arg{{Name: "v", Value: "2"}}) {
		t.Error("the stored configuration changed")
	}
}

// TestUnadopted: a flag that kubeadm sets itself cannot be removed.
func TestUnadopted(t *testing.T) {
	is := strings.Replace(schedulerPod, "    - --leader-elect=true\n", "", 1)
	refused := Unadopted("/kube-scheduler.yaml", []byte(schedulerPod), []byte(is))
	if len(refused) != 1 || refused[0].Field != "/kube-scheduler.yaml: the flag --leader-elect" || refused[0].From != "true" {
		t.Errorf("%+v", refused)
	}
	if refused := Unadopted("/kube-scheduler.yaml", []byte(schedulerPod), []byte(schedulerPod)); refused != nil {
		t.Errorf("%+v", refused)
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
}
