package preflight

import (
	"reflect"
	"testing"

	"airlift/installer/config"
)

func TestKubeletFlags(t *testing.T) {
	arg := func(name, value string) config.Arg { return config.Arg{Name: name, Value: value} }
	for _, c := range []struct {
		file string
		want []config.Arg
	}{
		{"", nil},
		{`KUBELET_EXTRA_ARGS=`, nil},
		{`KUBELET_EXTRA_ARGS="--a=b --c d"`, []config.Arg{arg("a", "b"), arg("c", "d")}},
		{`KUBELET_EXTRA_ARGS=--node-ip=10.0.0.1 --v 2`, []config.Arg{arg("node-ip", "10.0.0.1"), arg("v", "2")}},
		{`KUBELET_EXTRA_ARGS=--fail-swap-on --max-pods 10`, []config.Arg{arg("fail-swap-on", "true"), arg("max-pods", "10")}},
		{`KUBELET_EXTRA_ARGS=--fail_swap_on max-pods`, []config.Arg{arg("fail_swap_on", "true"), arg("", "max-pods")}},
		{`KUBELET_EXTRA_ARGS='--node-labels="a=b c" -v2'`, []config.Arg{arg("node-labels", "a=b c"), arg("v", "2")}},
		{"# KUBELET_EXTRA_ARGS=--x=y\nOTHER=1\nKUBELET_EXTRA_ARGS=--z=1\n", []config.Arg{arg("z", "1")}},
		{"# KUBELET_EXTRA_ARGS=--x=y\n", nil},
		{"KUBELET_EXTRA_ARGS=--a=1\nKUBELET_EXTRA_ARGS=--a=2", []config.Arg{arg("a", "2")}},
		{`KUBELET_EXTRA_ARGS="--a=\"b c\""`, []config.Arg{arg("a", "b c")}},
	} {
		if got := KubeletFlags("KUBELET_EXTRA_ARGS", []byte(c.file)); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", c.file, got, c.want)
		}
	}
}
