package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"airlift/installer/config"
	"airlift/installer/node"
	"airlift/installer/status"
	"airlift/scripts/fixtures/docs"
)

// TestTextsCanBeTyped looks up each command of install that a text in the source names, and each flag
// in the texts that install can print.
func TestTextsCanBeTyped(t *testing.T) {
	calls, texts, err := docs.Texts("../..")
	if err != nil {
		t.Fatal(err)
	}
	root, checked := newRootCmd(), 0
	for _, c := range calls {
		if c.Name == "install" {
			checked++
			if err := docs.CheckCall(root, c); err != nil {
				t.Error(err)
			}
		}
	}
	if checked < 100 || len(texts) < 100 {
		t.Errorf("only %d calls and %d texts found", checked, len(texts))
	}
	for _, x := range texts {
		if strings.HasPrefix(x.Page, "../../builder/") || strings.HasPrefix(x.Page, "../../cmd/bundle/") {
			continue
		}
		for _, flag := range x.Flags() {
			if !docs.HasFlag(root, flag) && !slices.Contains(docs.BundleFlags, flag) && !slices.Contains(docs.OtherFlags, flag) {
				t.Errorf("%s: there is no flag --%s: %s", x.Page, flag, x.Text)
			}
		}
	}
}

// TestAdviceCanBeTyped: the commands that status, cluster status and cluster plan print for what was edited by hand exist. They are
// composed, so that the source does not have them.
func TestAdviceCanBeTyped(t *testing.T) {
	command := regexp.MustCompile(`\./install ([a-z -]+)`)
	for _, role := range []string{node.ControlPlane, node.Worker} {
		for _, d := range []status.Drift{
			{Name: "/etc/kubernetes/manifests/kube-apiserver.yaml", Cause: status.Edited, Diff: "+b"},
			{Name: config.KubeletFlagsFile, Cause: status.Edited},
			{Name: config.KubeletConfigFile, Cause: status.Behind},
			{Name: "DaemonSet kube-system/kube-proxy", Cause: status.Edited, Diff: "+b"},
		} {
			text := d.Advise(role)
			found := command.FindAllStringSubmatch(text, -1)
			if len(found) == 0 && !strings.HasSuffix(text, ": systemctl restart kubelet") {
				t.Errorf("no command: %s", text)
			}
			for _, m := range found {
				cmd, rest, err := newRootCmd().Find(strings.Fields(m[1]))
				if err == nil {
					err = cmd.ParseFlags(rest)
				}
				if err == nil {
					err = cmd.ValidateArgs(cmd.Flags().Args())
				}
				if err != nil || !cmd.Runnable() {
					t.Errorf("%s: %q: %v", text, m[0], err)
				}
			}
		}
	}
}
