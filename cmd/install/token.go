package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"airlift/cmd/output"
	"airlift/images/release"
	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/pki"
	"airlift/internal/fault"
)

const adminConf = config.KubernetesDir + "/admin.conf"

func newTokenCmd() *cobra.Command {
	in := &tokenFlags{}
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Manage bootstrap tokens",
		Long: `Manage bootstrap tokens, with which nodes join. The commands use the first of these
kubeconfigs that exists: the files in $KUBECONFIG (default: ~/.kube/config), ` + adminConf + `.`,
	}
	cmd.PersistentFlags().StringVar(&in.kubeconfig, "kubeconfig", "", "the kubeconfig `FILE` of the cluster (default: see above)")
	cmd.PersistentFlags().BoolVar(&in.dryRun, "dry-run", false, "send the requests as a dry run: the API server checks them and changes nothing")
	cmd.AddCommand(tokenCreate(in), tokenList(in), tokenDelete(in), tokenGenerate())
	return cmd
}

type tokenFlags struct {
	kubeconfig string
	dryRun     bool
}

func (in *tokenFlags) client() (*cluster.Client, error) {
	c, err := cluster.Load(cmp.Or(in.kubeconfig, userKubeconfig()), "")
	if err != nil {
		return nil, fault.Wrap(err, fault.Failure, "run it on a control plane as root, or set --kubeconfig")
	}
	if in.dryRun {
		c.SetDryRun()
	}
	return c, nil
}

// userKubeconfig returns the kubeconfig that kubeadm token uses: the first existing file of
// $KUBECONFIG (without it: ~/.kube/config), then admin.conf.
func userKubeconfig() string {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.Precedence = append(rules.Precedence, adminConf)
	return rules.GetDefaultFilename()
}

func tokenCreate(in *tokenFlags) *cobra.Command {
	token := config.BootstrapToken{
		Usages: []string{"signing", "authentication"},
		Groups: []string{config.NodeTokenGroup},
	}
	printJoin, certificateKey, configFile := false, "", ""
	cmd := &cobra.Command{
		Use:     "create [TOKEN]",
		Short:   "Create a bootstrap token (default: a random one)",
		Example: "  ./install token create --print-join-command\n  ./install token create --print-join-command --certificate-key KEY\n\nKEY is the key that './install init phase upload-certs --upload-certs' prints.",
		Args:    output.AtMostOneArg("token"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			tokens := []config.BootstrapToken{token}
			switch {
			case certificateKey != "" && !printJoin:
				return fault.New(fault.Usage, "--certificate-key has no effect without --print-join-command").Hint("add --print-join-command")
			case configFile != "":
				if tokens, err = tokensOf(cmd, configFile, args); err != nil {
					return err
				}
			case len(args) == 1:
				tokens[0].Token = args[0]
			default:
				if tokens[0].Token, err = cluster.NewToken(); err != nil {
					return err
				}
			}
			for _, t := range tokens {
				if err := cluster.CheckToken(t.Token); err != nil {
					return err
				}
				if t.TTL < 0 {
					return fault.New(fault.Usage, "--ttl %s is negative", t.TTL).Hint("use 0 for a token that never expires")
				}
			}
			c, err := in.client()
			if err != nil {
				return err
			}
			for _, t := range tokens {
				if err := c.CreateToken(cmd.Context(), t); err != nil {
					return err
				}
				if in.dryRun { // standard output is for scripts
					fmt.Fprintf(cmd.ErrOrStderr(), "token %q created (dry run)\n", t.Token[:6])
				}
			}
			if !printJoin {
				fmt.Fprintln(cmd.OutOrStdout(), tokens[0].Token)
				return nil
			}
			hashes, err := pki.CAHashes(c.CA)
			if err != nil {
				return err
			}
			endpoint, err := c.Reachable(cmd.Context(), c.Server)
			if err != nil {
				return err
			}
			join := cluster.JoinCommand(endpoint, tokens[0].Token, hashes...)
			if otherPodNetwork(cmd.Context(), c) {
				join += cluster.OtherPodNetwork
			}
			if certificateKey != "" {
				join += " --control-plane --certificate-key " + certificateKey
			}
			fmt.Fprintln(cmd.OutOrStdout(), join)
			return nil
		},
	}
	f := cmd.Flags()
	f.BoolVar(&printJoin, "print-join-command", false, "print the command for joining hosts")
	f.StringVar(&certificateKey, "certificate-key", "", "with --print-join-command: print the command for joining control planes, with this key of the uploaded certificates")
	f.StringVar(&configFile, "config", "", "create the tokens in kubeadm's configuration `FILE` (bootstrapTokens of InitConfiguration)")
	f.DurationVar(&token.TTL, "ttl", config.DefaultTokenTTL, "how long the token is valid; 0 means that it never expires")
	f.StringVar(&token.Description, "description", "", "what the token is for")
	f.StringSliceVar(&token.Usages, "usages", token.Usages, "the allowed uses of the token: signing, authentication")
	f.StringSliceVar(&token.Groups, "groups", token.Groups, "the groups of a user who authenticates with the token")
	return cmd
}

// otherPodNetwork reports whether the cluster has another pod network than this file. A user who
// may only create tokens may not read the cluster's network.
func otherPodNetwork(ctx context.Context, c *cluster.Client) bool {
	m, err := manifest()
	if err != nil || m == nil || m.CNI != release.Flannel {
		return false
	}
	has, err := c.NodeObjects().HasFlannel(ctx)
	return err == nil && !has
}

// tokensOf reads the tokens from a configuration file. The command line cannot
// have a token then.
func tokensOf(cmd *cobra.Command, file string, args []string) ([]config.BootstrapToken, error) {
	if len(args) > 0 {
		return nil, fault.New(fault.Usage, "a token and --config cannot be given together").Hint("remove one of them")
	}
	var cfg config.Config
	if err := readConfig(cmd, file, &cfg, config.ReadInit); err != nil {
		return nil, err
	}
	if len(cfg.BootstrapTokens) == 0 {
		return nil, fault.New(fault.Usage, "%s has no bootstrapTokens", file)
	}
	for i := range cfg.BootstrapTokens {
		t := &cfg.BootstrapTokens[i]
		if len(t.Usages) == 0 {
			t.Usages = []string{"signing", "authentication"}
		}
		if len(t.Groups) == 0 {
			t.Groups = []string{config.NodeTokenGroup}
		}
	}
	return cfg.BootstrapTokens, nil
}

func tokenDelete(in *tokenFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "delete TOKEN...",
		Short: "Delete tokens, given in full or by their ID (the first six characters)",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fault.New(fault.Usage, "token delete requires a token").Hint("'./install token list' prints the tokens")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := in.client()
			if err != nil {
				return err
			}
			for _, token := range args {
				if err := c.DeleteToken(cmd.Context(), token); err != nil {
					return err
				}
				note := ""
				if in.dryRun {
					note = " (dry run)"
				}
				fmt.Fprintf(cmd.OutOrStdout(), "token %q deleted%s\n", strings.SplitN(token, ".", 2)[0], note)
			}
			return nil
		},
	}
}

func tokenGenerate() *cobra.Command {
	return &cobra.Command{
		Use:   "generate",
		Short: "Print a random token; it is not added to a cluster",
		RunE: func(cmd *cobra.Command, _ []string) error {
			token, err := cluster.NewToken()
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), token)
			return nil
		},
	}
}
