package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"airlift/cmd/suggest"
	"airlift/internal/fault"
)

func newRootCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bundle",
		Short: "Build one file that installs Kubernetes on hosts without a network",
		Long: `Build one file that installs Kubernetes on hosts without a network.

"bundle build" downloads the binaries and images of a Kubernetes version from the
upstream sites, verifies each of them, and writes them into one executable file.
Copy that file to the hosts and run it there: ./install init, ./install join.

"bundle init" writes an example of a bundle.yaml, which describes a bundle with the
site's own manifests, charts, files and systemd units. "bundle build --file" writes a
lock next to it, so that later builds give the same bundle; "bundle update" renews the lock.

Ctrl-C, SIGTERM, a lost session and a closed output interrupt the command. It keeps
the downloads. A second Ctrl-C ends it at once.

Exit codes: 0 success, 1 failure, 2 usage error, 4 the bundle is missing, truncated
or damaged, or not signed by the required key, 10 scan --fail-on found vulnerabilities,
130 interrupted.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			return refuseEmpty(cmd, "key", "signature", "require-version", "sign-key", "fail-on")
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return cmd.Help()
		},
	}
	cmd.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return fault.Wrap(err, fault.Usage, suggest.Flag(c, err))
	})
	cobra.EnableCommandSorting = false
	for i, g := range []struct {
		title    string
		commands []*cobra.Command
	}{
		{"Build:", []*cobra.Command{newInitCmd(), newBuildCmd(), newUpdateCmd(), newVersionsCmd(), newImagesCmd()}},
		{"Look at a file:", []*cobra.Command{newVerifyCmd(), newInspectCmd(), newDiffCmd(), newSBOMCmd(), newScanCmd()}},
		{"Carry a file:", []*cobra.Command{newSplitCmd(), newJoinCmd(), newDeltaCmd(), newPatchCmd(), newRepairCmd(), newPushCmd()}},
		{"Sign:", []*cobra.Command{newKeygenCmd(), newSignCmd()}},
		{"Boot hosts:", []*cobra.Command{newSeedCmd()}},
		{"Help:", []*cobra.Command{newDocsCmd(), newVersionCmd()}},
	} {
		id := fmt.Sprint(i)
		cmd.AddGroup(&cobra.Group{ID: id, Title: g.title})
		for _, c := range g.commands {
			c.GroupID, c.SuggestFor = id, otherWords[c.Name()]
			cmd.AddCommand(c)
		}
		cmd.SetHelpCommandGroupID(id) // of the last group
		cmd.SetCompletionCommandGroupID(id)
	}
	cmd.AddCommand(newManCmd())
	usageErrors(cmd)
	return cmd
}

// otherWords are the words of other tools for commands.
var otherWords = map[string][]string{
	"build": {"create", "download", "make", "pack", "package", "pull", "save"},
	"init":  {"example", "new"}, "verify": {"check", "test"}, "inspect": {"info", "list", "ls", "show"}, "versions": {"releases"},
	"push": {"publish", "upload"}, "join": {"merge"}, "docs": {"doc", "manual"}, "scan": {"audit", "vulnerabilities"},
}

// usageErrors makes cobra's errors about arguments usage errors (exit code 2).
func usageErrors(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(c *cobra.Command, args []string) error {
			return fault.Wrap(check(c, args), fault.Usage, suggest.Command(c, args))
		}
	}
	for _, sub := range cmd.Commands() {
		usageErrors(sub)
	}
}

// refuseEmpty refuses flags that were given with an empty value, for example from an unset
// variable. Otherwise the command would silently ignore the flag.
func refuseEmpty(cmd *cobra.Command, names ...string) error {
	for _, name := range names {
		if f := cmd.Flags().Lookup(name); f != nil && f.Changed && (f.Value.String() == "" || f.Value.String() == "[]") {
			return fault.New(fault.Usage, "--%s is empty", name).Hint("give --" + name + " a value, or remove the flag")
		}
	}
	return nil
}
