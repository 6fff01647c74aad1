package main

import (
	"filippo.io/age"
	"github.com/spf13/cobra"

	"airlift/cmd/output"
	"airlift/installer/backup"
	"airlift/installer/backup/target"
	"airlift/installer/config"
	"airlift/installer/flow/initcluster"
	"airlift/installer/host"
	"airlift/installer/snapshot"
	"airlift/internal/fault"
)

// etcdRestoreFlags are the flags of etcd restore: some flags of init, and the flags for the backup.
type etcdRestoreFlags struct {
	initFlags
	identities   []string
	passphrase   bool
	caCertHashes []string
	targetConfig string
}

func newEtcdRestoreCmd() *cobra.Command {
	in := &etcdRestoreFlags{}
	cmd := &cobra.Command{
		Use:   "restore FILE|URL",
		Short: "Restore a cluster from a backup, with this host as its first control plane",
		Long: `Restore a cluster from a backup, with this host as its first control plane. The host must
not be part of a cluster; its name and addresses may differ from the lost hosts'.
The command runs init with the CAs, the keys and etcd's data of the backup. It accepts the
same configuration, creates new certificates for the new addresses, and updates the
addresses in the cluster's objects. Nodes of lost control planes are removed.

Then join the other control planes and new workers as usual, with the command that it
prints. Existing workers continue if the control-plane endpoint, a name or an address, now
points to this host. On others, run './install reset' and join them again.

Encryption does not prove who wrote a backup: everyone who has the public key can write one.
Give the hash that './install etcd snapshot' printed with --ca-cert-hash: then the command
accepts only a file with the key of that CA.

A URL restores from another machine, see './install etcd snapshot': s3://BUCKET/PREFIX or
sftp://USER@HOST/DIRECTORY takes the newest backup there, and a name after it another one.
'./install etcd list' shows what is there, and --target-config names the file with the credentials.

The file must have the backup's minor version of Kubernetes. Everything in the backup is
checked before this host changes. An interrupted run is continued by the same command.`,
		Example: `  ./install etcd restore /mnt/backup/cluster.tar
  ./install etcd restore /mnt/backup/cluster.tar.age --identity key.txt --ca-cert-hash sha256:…
  ./install etcd restore s3://backups/plant-7 --target-config target.yaml --identity key.txt --ca-cert-hash sha256:…
  ./install etcd restore /mnt/backup/cluster.tar --control-plane-endpoint k8s.site.example`,
		Args: output.OneArg("etcd restore requires one file or URL", ""),
		RunE: func(cmd *cobra.Command, args []string) error { return in.run(cmd, args[0]) },
	}
	f, cfg := cmd.Flags(), &in.cfg
	f.SortFlags = false
	f.StringArrayVar(&in.identities, "identity", nil, "a `FILE` with the age secret key that decrypts the backup (repeatable)")
	f.BoolVar(&in.passphrase, "passphrase", false, "decrypt it with a passphrase, which is read from the terminal")
	f.StringVar(&in.targetConfig, "target-config", "", "the `FILE` with the credentials of the target of a URL; - for standard input")
	f.StringSliceVar(&in.caCertHashes, "ca-cert-hash", nil, "restore only a backup that has the CA with this hash, sha256:<hex>, and its key (repeatable)")
	f.StringVar(&cfg.LocalAPIEndpoint.AdvertiseAddress, "apiserver-advertise-address", "", "the address at which this API server is reachable (default: this host's, if there is only one candidate)")
	f.StringVar(&cfg.ControlPlaneEndpoint, "control-plane-endpoint", "", "a stable address or DNS name for the whole control plane (default: the backup's)")
	f.StringSliceVar(&cfg.Endpoint.VIPs, "control-plane-vip", nil, "a free `ADDRESS` in the subnet of the control planes, as for init (default: the backup's)")
	f.BoolVar(&cfg.Endpoint.Balancer, "control-plane-balancer", false, "run a balancer on each node, as for init (default: as in the backup)")
	f.BoolVar(&cfg.Registry.Used, "embedded-registry", false, "let the control planes serve this file, as for init (default: as in the backup)")
	f.StringSliceVar(&cfg.APIServer.CertSANs, "apiserver-cert-extra-sans", nil, "additional IP addresses and DNS names in the API server's certificate (default: the backup's)")
	f.StringVar(&cfg.Patches, "patches", "", "a `DIRECTORY` with patches, as for init")
	nodeFlags(f, cfg, &in.runFlags)
	f.StringVar(&in.token, "token", "", "the bootstrap token for joining nodes, abcdef.0123456789abcdef (default: a random one)")
	f.DurationVar(&in.tokenTTL, "token-ttl", config.DefaultTokenTTL, "how long the token is valid; 0 means that it never expires")
	f.BoolVar(&cfg.UploadCerts, "upload-certs", false, "upload the control plane certificates to the cluster, encrypted, so that other control planes can join")
	f.StringVar(&cfg.CertificateKey, "certificate-key", "", "the key that encrypts the uploaded certificates, 64 hexadecimal digits (default: a random one)")
	return cmd
}

// openBackup reads a backup to its end. One of a target is copied to this host first.
func (in *etcdRestoreFlags) openBackup(cmd *cobra.Command, path string, identities []age.Identity) (*snapshot.File, error) {
	if !target.IsURL(path) {
		return snapshot.Open(cmd.Context(), path, identities)
	}
	if len(identities) == 0 {
		return nil, fault.New(fault.Usage, "a backup at a target is encrypted").Hint("give the secret key of age with --identity FILE, or --passphrase")
	}
	h, err := host.Open("/")
	if err != nil {
		return nil, err
	}
	return snapshot.OpenElsewhere(cmd.Context(), h, path, in.targetConfig, in.caCertHashes, identities)
}

func (in *etcdRestoreFlags) run(cmd *cobra.Command, path string) error {
	identities, err := backup.Identities(in.identities)
	if err != nil {
		return err
	}
	if in.passphrase {
		passphrase, err := readPassphrase(cmd, "Passphrase of "+path+": ")
		if err != nil {
			return err
		}
		identity, err := age.NewScryptIdentity(passphrase)
		if err != nil {
			return fault.New(fault.Usage, "--passphrase: %w", err)
		}
		identities = append(identities, identity)
	}
	file, err := in.openBackup(cmd, path, identities)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := file.CheckCA(in.caCertHashes); err != nil {
		return err
	}
	if len(in.caCertHashes) == 0 {
		output.Warner(cmd)("nothing proves that this is a backup of your cluster: compare the hash of its CA with the one that './install etcd snapshot' printed, or use --ca-cert-hash: %s", file.CACertHash())
	}
	b, done, err := shared.Payload()
	if err != nil {
		return err
	}
	defer done()
	if err := file.CheckVersion(b); err != nil {
		return err
	}
	in.read = func(cmd *cobra.Command) error {
		cfg, warnings, err := file.Config()
		if err != nil {
			return err
		}
		return fillConfig(cmd, &in.cfg, cfg, warnings)
	}
	r, err := in.open(cmd)
	if err != nil {
		return err
	}
	defer r.done()
	run := initcluster.NewRestore(r.plan, in.options, file, r.host, r.console)
	defer run.Close()
	return recorded(cmd, r.host, in.cfg.KubernetesVersion, func() error { return run.Run(cmd.Context()) })
}
