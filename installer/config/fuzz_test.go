package config

import (
	"strings"
	"testing"
)

// FuzzRead passes any bytes to all readers. They must not panic. If a reader
// accepts the bytes, the result must be writable and readable again.
func FuzzRead(f *testing.F) {
	for _, text := range []string{
		"", "---\n", "{}", "a: &a [*a]", "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nnetworking: {podSubnet: x, podSubnet: y}\n",
		"apiVersion: kubeadm.k8s.io/v1beta3\nkind: ClusterConfiguration\nscheduler: &s\n  extraArgs: {a: b}\ncontrollerManager:\n  <<: *s\n",
		"apiVersion: kubeadm.k8s.io/v1\nkind: InitConfiguration\nnodeRegistration: {taints: [], kubeletExtraArgs: [{name: v, value: '2', mergeMethod: append}]}\nbootstrapTokens: [{ttl: 1h}]\n",
		"apiVersion: kubeadm.k8s.io/v1beta4\nkind: JoinConfiguration\ndiscovery: {file: {kubeConfigPath: 'file:///x'}}\ncontrolPlane: {}\n",
		"apiVersion: kubeadm.k8s.io/v1beta4\nkind: ResetConfiguration\nunmountFlags: [MNT_FORCE]\ntimeouts: {discovery: 1m}\n",
		"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nevictionHard: {memory.available: 1}\n",
		"{\"apiVersion\": \"kubeadm.k8s.io/v1beta4\",\n\"kind\": 3}", "? [a]\n: b\n", "!!binary x", "\t", "- - -\n--- x\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, read := range []func(s *source){
			func(s *source) {
				if c := s.init(); c != nil {
					c.CompleteInit()
					_, _ = c.ValidateInit(), c.Warnings()
					for _, api := range apiVersions {
						written, err := c.WriteInit(api)
						if err != nil {
							t.Fatal(err)
						}
						again := parse("again", written)
						again.check(true)
						if again.init(); again.Err() != nil && !strings.Contains(again.Err().Error(), "empty") {
							t.Fatalf("%s\n%v", written, again.Err())
						}
					}
				}
			},
			func(s *source) {
				if c := s.join(); c != nil {
					c.CompleteJoin()
					_ = c.ValidateJoin()
				}
			},
			func(s *source) {
				if r := s.reset(); r != nil {
					r.Complete()
					_ = r.ValidateReset()
				}
			},
		} {
			s := parse("file", data)
			s.check(false)
			read(s)
			for _, m := range s.Problems {
				if m.Line < 1 || m.Line > strings.Count(string(data), "\n")+1 {
					t.Errorf("%q is said to be at line %d of %q", m.Text, m.Line, data)
				}
			}
		}
		_, _, _ = DecodeClusterConfiguration(data)
	})
}
