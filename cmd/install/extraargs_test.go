package main

import (
	"slices"
	"testing"

	"github.com/spf13/pflag"

	"airlift/installer/config"
)

// TestExtraArgs: the flags of 'init phase control-plane' reach the component's arguments, and
// only the phases that kubeadm gives them have them.
func TestExtraArgs(t *testing.T) {
	p := &initPhase{}
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	p.bind(f, "control-plane")
	if err := f.Parse([]string{"--apiserver-extra-args", "v=4,feature-gates=A=true", "--apiserver-extra-args=audit-log-path=-", "--scheduler-extra-args", " v = 2 ", "--controller-manager-extra-args=v=3"}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name      string
		got, want []config.Arg
	}{
		{"apiserver", p.cfg.APIServer.ExtraArgs, []config.Arg{{Name: "v", Value: "4"}, {Name: "feature-gates", Value: "A=true"}, {Name: "audit-log-path", Value: "-"}}},
		{"scheduler", p.cfg.Scheduler.ExtraArgs, []config.Arg{{Name: "v", Value: "2"}}},
		{"controller-manager", p.cfg.ControllerManager.ExtraArgs, []config.Arg{{Name: "v", Value: "3"}}},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("%s: %+v, want %+v", c.name, c.got, c.want)
		}
	}
	for _, bad := range []string{"v", "=4", "enable-admission-plugins=A,B", ""} {
		if err := f.Parse([]string{"--apiserver-extra-args", bad}); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
	for phase, want := range map[string][]string{
		"control-plane/apiserver": {"apiserver"}, "control-plane/scheduler": {"scheduler"}, "certs": nil, "etcd/local": nil,
	} {
		f := pflag.NewFlagSet("", pflag.ContinueOnError)
		new(initPhase).bind(f, phase)
		for _, component := range []string{"apiserver", "controller-manager", "scheduler"} {
			if has := f.Lookup(component+"-extra-args") != nil; has != slices.Contains(want, component) {
				t.Errorf("%s has --%s-extra-args: %t", phase, component, has)
			}
		}
	}
	if _, errs, code := install(t, "init", "phase", "control-plane", "apiserver", "--config", writeConfig(t, configFile), "--apiserver-extra-args", "v=4"); code != 2 {
		t.Errorf("together with --config: %d %s", code, errs)
	}
}
