package registrycmd

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"airlift/cmd/install/nodecmd"
	"airlift/installer/config"
	"airlift/installer/flow/registrymirrors"
	"airlift/installer/host"
	"airlift/installer/workflow"
	"airlift/internal/fault"
)

// BindSite adds the flags for the registries of the site, which init and join have, too.
func BindSite(f *pflag.FlagSet, r *config.RegistryFlags) {
	f.StringArrayVar(&r.Mirrors, "registry-mirror", nil, "HOST=URL: pull the images of the registry HOST from URL first; "+config.DefaultRegistry+"=URL for all registries (repeatable)")
	f.StringArrayVar(&r.CAs, "registry-ca", nil, "FILE or HOST=FILE: trust the CA certificates in FILE, for all registries and mirrors or for HOST (repeatable)")
	f.StringVar(&r.Auth, "registry-auth", "", "a `FILE` with the credentials for registries and mirrors, in the format of docker's config.json")
}

func newMirrors(e nodecmd.Environment) *cobra.Command {
	dryRun, none := false, false
	var flags config.RegistryFlags
	cmd := &cobra.Command{
		Use:   "mirrors",
		Short: "Change the mirrors, CAs and credentials of registries on this node",
		Long: `Change the registries of the site on this running node: their mirrors, CAs and credentials.
The flags are the same as for init and join. They replace the whole set: what an earlier
command set, and these flags do not have, is removed. --off removes all.

Run it on each node. containerd reads the files in /etc/containerd/certs.d at each pull, so
nothing restarts. Files there that Airlift did not write, or that were edited since, stay and
are named. The embedded registry keeps its part.

It is safe to run it again: it finishes what an interrupted run left.`,
		Example: `  ./install registry mirrors --registry-mirror docker.io=https://mirror.example:5000 --registry-ca site-ca.pem
  ./install registry mirrors --off --dry-run`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch given := len(flags.Mirrors)+len(flags.CAs) > 0 || flags.Auth != ""; {
			case given && none:
				return fault.New(fault.Usage, "--off cannot be together with flags that set registries").Hint("remove --off, or the other flags")
			case !given && !none:
				return fault.New(fault.Usage, "there is no flag with a registry").
					Hint("give all registries: --registry-mirror HOST=URL, --registry-ca FILE, --registry-auth FILE; or --off to remove them")
			}
			registries, warnings, err := flags.Read()
			if err != nil {
				return err
			}
			return e.Change(cmd, nodecmd.How{DryRun: dryRun}, func(h *host.Host, c *workflow.Console) (nodecmd.Run, error) {
				for _, w := range warnings {
					c.Warn("%s", w)
				}
				return registrymirrors.New(registries, h, c)
			})
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	BindSite(f, &flags)
	f.BoolVar(&none, "off", false, "remove the mirrors, CAs and credentials that init, join or this command set")
	f.BoolVar(&dryRun, "dry-run", false, "only print what would be done")
	return cmd
}
