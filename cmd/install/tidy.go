package main

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// otherWords are the words of kubeadm, k0sctl and other tools for commands: suggest finds the commands by them.
var otherWords = map[string][]string{
	"cluster apply":          {"deploy", "provision", "up"},
	"cluster example":        {"sample"},
	"cluster status":         {"nodes"},
	"cluster backup":         {"snapshot"},
	"cluster reset":          {"destroy", "down", "teardown", "uninstall"},
	"preflight":              {"check", "prerequisites"},
	"init":                   {"bootstrap", "controller", "create", "install", "setup", "start"},
	"join":                   {"add", "attach", "worker"},
	"reset":                  {"clean", "cleanup", "delete", "purge", "remove", "uninstall"},
	"status":                 {"health", "info", "list", "nodes", "ps"},
	"test":                   {"conformance", "smoke", "verify"},
	"upgrade":                {"update"},
	"upgrade undo":           {"downgrade", "rollback"},
	"reconfigure":            {"configure", "modify", "set"},
	"reconfigure undo":       {"rollback"},
	"endpoint apply":         {"vip"},
	"node remove":            {"delete", "remove"},
	"kubeconfig user":        {"user"},
	"certs":                  {"cert", "pki"},
	"certs check-expiration": {"expiration", "expiry"},
	"certs rotate-ca":        {"ca", "rotate"},
	"import":                 {"airgap", "load", "pull"},
	"doctor":                 {"diagnose", "support", "sysinfo"},
	"etcd snapshot":          {"backup", "save"},
	"docs":                   {"doc", "man", "manual"},
}

// seldom are commands that no person types: they are for scripts of kubeadm, for hints that name them, and for timers. Help of
// their parent does not list them.
var seldom = []string{
	"init phase", "join phase", "reset phase", "upgrade apply phase", "upgrade node phase",
	"config images pull", "certs certificate-key", "token generate", "disown", "thin", "etcd member",
}

// seldomFlags are flags that few people type: flags of kubeadm whose values belong into a configuration file, and flags that a hint, or the text of the command,
// names when they are needed.
var seldomFlags = []string{
	"allow-experimental-api", "allow-experimental-upgrades", "allow-missing-template-keys", "allow-release-candidate-upgrades", "also",
	"apiserver-bind-port", "cert-dir", "certificate-renewal", "cleanup-tmp-dir", "component-configs", "context-lines", "cri-socket",
	"description", "discovery-file", "discovery-timeout", "discovery-token", "discovery-token-unsafe-skip-ca-verification",
	"etcd-upgrade", "feature-gates", "force-conflicts", "groups", "ignore-version", "image-repository", "kube-proxy-server", "kubeconfig-dir",
	"kubernetes-version", "max-size", "print-config", "print-manifest", "recipients-file", "remove-node", "render-dir", "restart-workloads", "rootfs", "service-dns-domain",
	"skip-certificate-key-print", "skip-file-check", "skip-token-print", "time-zone", "target-config", "timeline", "tls-bootstrap-token", "token-ttl", "unserved", "usages", "validity-period",
	"without-ledger",
}

// tidy hides what no person types from help, and adds the words of other tools to the commands.
func tidy(root *cobra.Command) {
	for path, words := range otherWords {
		at(root, path).SuggestFor = words
	}
	for _, path := range seldom {
		at(root, path).Hidden = true
	}
	var hide func(cmd *cobra.Command)
	hide = func(cmd *cobra.Command) {
		for _, set := range []*pflag.FlagSet{cmd.Flags(), cmd.PersistentFlags()} {
			set.VisitAll(func(f *pflag.Flag) {
				f.Hidden = f.Hidden || strings.HasPrefix(f.Usage, "has no effect")
			})
			for _, name := range seldomFlags {
				if f := set.Lookup(name); f != nil {
					f.Hidden = true
				}
			}
		}
		for _, sub := range cmd.Commands() {
			hide(sub)
		}
	}
	hide(root)
}

// at returns the command at a path. The tables name only commands that exist.
func at(root *cobra.Command, path string) *cobra.Command {
	cmd, rest, err := root.Find(strings.Fields(path))
	if err != nil || len(rest) > 0 {
		panic("there is no command " + path)
	}
	return cmd
}
