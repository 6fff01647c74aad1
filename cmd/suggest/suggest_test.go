package suggest_test

import (
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"airlift/cmd/suggest"
)

// tree is a small tree of commands with words of other tools.
func tree() (root, cluster, apply *cobra.Command) {
	command := func(name string, words ...string) *cobra.Command {
		return &cobra.Command{Use: name, SuggestFor: words, Run: func(*cobra.Command, []string) {}}
	}
	cobra.EnableCommandSorting = false
	root, cluster, apply = command("install"), command("cluster"), command("apply")
	apply.Flags().BoolP("yes", "y", false, "")
	apply.Flags().String("skip", "", "")
	apply.Flags().String("secret", "", "")
	_ = apply.Flags().MarkHidden("secret")
	cluster.PersistentFlags().StringP("file", "f", "", "")
	certs, renew, etcd, hidden := command("certs", "pki"), command("renew"), command("etcd"), command("serve")
	renew.Flags().Bool("restart", false, "")
	hidden.Hidden = true
	certs.AddCommand(renew)
	etcd.AddCommand(command("snapshot", "backup"))
	cluster.AddCommand(command("plan"), apply, command("backup"), command("destroy", "teardown"))
	root.AddCommand(command("init"), command("reset", "uninstall"), command("version"), certs, etcd, cluster, hidden)
	return root, cluster, apply
}

func TestCommand(t *testing.T) {
	root, cluster, _ := tree()
	for _, c := range []struct {
		at    *cobra.Command
		words []string
		want  string
	}{
		{root, []string{"rest"}, "did you mean 'install reset'?"},
		{root, []string{"uninstall"}, "did you mean 'install reset'?"},
		{root, []string{"backup"}, "did you mean 'install etcd snapshot' or 'install cluster backup'?"},
		{root, []string{"alpha", "certs", "renew"}, "did you mean 'install certs renew'?"},
		{root, []string{"renew"}, "did you mean 'install certs renew'?"},
		{root, []string{"snapshto"}, "did you mean 'install etcd snapshot'?"},
		{root, []string{"drain", "w1"}, "kubectl has this command: kubectl drain"},
		{root, []string{"serv"}, "see 'install --help'"},
		{root, []string{"quux"}, "see 'install --help'"},
		{cluster, []string{"aply"}, "did you mean 'install cluster apply'?"},
		{cluster, []string{"uninstall"}, "did you mean 'install reset'?"},
		{cluster, []string{"teardown"}, "did you mean 'install cluster destroy'?"},
	} {
		if got := suggest.Command(c.at, c.words); got != c.want {
			t.Errorf("%s %q: %s, want %s", c.at.CommandPath(), c.words, got, c.want)
		}
	}
}

func TestFlag(t *testing.T) {
	root, _, apply := tree()
	for _, c := range []struct {
		at   *cobra.Command
		arg  string
		want string
	}{
		{apply, "--yess", "did you mean '--yes'?"},
		{apply, "--auto-approve", "did you mean '--yes'?"},
		{apply, "--config=x", "did you mean '--file'?"},
		{apply, "--dry-run", "did you mean 'install cluster plan'?"},
		{apply, "--secrets=x", "did you mean '--secret'?"},
		{apply, "--restart", "this flag is one of 'install certs renew'"},
		{apply, "-x", "see 'install cluster apply --help'"},
		{apply, "--skip", "see 'install cluster apply --help'"}, // without its value
		{root, "--version", "did you mean 'install version'?"},
	} {
		_ = c.at.InheritedFlags() // Execute merges these flags before it parses
		err := c.at.ParseFlags([]string{c.arg})
		if err == nil || err == pflag.ErrHelp {
			t.Fatalf("%s is accepted: %v", c.arg, err)
		}
		if got := suggest.Flag(c.at, err); got != c.want {
			t.Errorf("%s: %s, want %s", c.arg, got, c.want)
		}
	}
}
