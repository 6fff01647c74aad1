package main

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"airlift/installer/backup"
	"airlift/installer/backup/target"
	"airlift/installer/config"
	"airlift/installer/snapshot"
	"airlift/internal/fault"
)

type etcdSnapshotFlags struct {
	recipients, recipientsFiles []string
	passphrase, force           bool
	withoutQuorum               bool
	every, zone                 string
	keep                        int
	scheduled                   bool // the timer's service runs it
	mountPoint                  string
	kubeconfig                  string
	targetConfig                string
}

func newEtcdSnapshotCmd() *cobra.Command {
	in := &etcdSnapshotFlags{}
	cmd := &cobra.Command{
		Use:   "snapshot FILE|DIRECTORY|URL",
		Short: "Save a backup of the cluster to a file or another machine, now or at intervals",
		Long: `Save a backup of the cluster to one file, from which './install etcd restore' restores the
cluster, also on other hosts. Run it as root on a control plane.

The file is a tar archive with a manifest, a verified snapshot of etcd, the keys that all
control planes share (the CAs, the service account key), the configuration, and the files
that flags of the control plane refer to (--encryption-provider-config). It contains all
secrets of the cluster: keep it safe, or encrypt it with age (--recipient). Its mode is
0600. An interrupted run leaves no file. The command prints the hash of the CA, with which
'etcd restore --ca-cert-hash' checks that a file is a backup of this cluster.

If this host's etcd member has no leader, its data may be old, and nothing is saved. If most
control planes are lost, --without-quorum saves what this one has, also while no API server
answers: restore the cluster from it.

A URL sends the backup to another machine: s3://BUCKET/PREFIX to a server of S3, or
sftp://USER@HOST:PORT/DIRECTORY to a server of SSH. Such a backup must be encrypted. It is
read back and compared. Other commands may change this host while a backup is written or sent. --target-config names the file with the address of the S3 server or
the host key of the SSH server, and the credentials; only its owner may be able to read it.
See './install docs backup'.

With --every the argument is a directory or a URL: a systemd timer on this host writes a new file
to it at this interval, and removes the oldest ones. The first one is written at once. A time
that passed while the host was off counts at boot, and a failed backup is tried again after 15
minutes. If the directory is on a drive that is not mounted, the backup fails. If a target fails,
encrypted backups wait on this host, at most three. Of a target, the timer removes only
backups that are in this host's own list.
'--every off' removes the timer. Reset also removes it, and keeps the files.`,
		Example: `  ./install etcd snapshot /mnt/backup/cluster.tar
  ./install etcd snapshot /mnt/backup/cluster.tar.age --recipient age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p
  ./install etcd snapshot /mnt/backup --every 6h --keep 8
  ./install etcd snapshot s3://backups/plant-7 --every 6h --recipient age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p --target-config target.yaml
  ./install etcd snapshot --every off`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 || len(args) == 0 && in.every == "off" {
				return nil
			}
			return fault.New(fault.Usage, "etcd snapshot requires one file or URL, or with --every one directory or URL").Hint("see '" + cmd.CommandPath() + " --help'")
		},
		RunE: func(cmd *cobra.Command, args []string) error { return in.run(cmd, args) },
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringArrayVar(&in.recipients, "recipient", nil, "encrypt the file with age to this public `KEY`, age1… (repeatable)")
	f.StringArrayVar(&in.recipientsFiles, "recipients-file", nil, "encrypt it to the public keys in this `FILE`, one on each line (repeatable)")
	f.BoolVar(&in.passphrase, "passphrase", false, "encrypt it with a passphrase, which is read from the terminal")
	f.BoolVar(&in.force, "force", false, "replace an existing file")
	f.BoolVar(&in.withoutQuorum, "without-quorum", false, "also save the data of an etcd member that has no leader: its last changes may be missing")
	f.StringVar(&in.every, "every", "", "write a backup at this `INTERVAL` (15m, 6h, 24h, 168h: it divides an hour or a day, or is a week), with a systemd timer; off removes the timer")
	f.StringVar(&in.zone, "time-zone", "UTC", "with --every: the time zone of the times, such as Europe/Berlin")
	f.IntVar(&in.keep, "keep", 8, "with --every: how many backups to keep in the directory or at the target")
	f.StringVar(&in.targetConfig, "target-config", "", "the `FILE` with the credentials of the target of a URL; - for standard input")
	f.StringVar(&in.kubeconfig, "kubeconfig", adminConf, "the kubeconfig `FILE` of the cluster")
	f.BoolVar(&in.scheduled, "scheduled", false, "write to the directory, as the timer does")
	f.StringVar(&in.mountPoint, "mount-point", "", "with --scheduled: the `DIRECTORY` where the backups' file system must be mounted")
	for _, name := range []string{"scheduled", "mount-point"} {
		_ = f.MarkHidden(name) // it fails only if the flag does not exist
	}
	return cmd
}

func (in *etcdSnapshotFlags) run(cmd *cobra.Command, args []string) error {
	var interval time.Duration
	if in.every != "" && in.every != "off" {
		var err error
		if interval, err = time.ParseDuration(in.every); err != nil || interval < time.Minute {
			return fault.New(fault.Usage, "--every %q is not an interval of at least one minute", in.every).Hint("for example: --every 6h")
		}
	}
	if in.keep < 1 {
		return fault.New(fault.Usage, "--keep %d: at least one backup must be kept", in.keep).Hint("for example: --keep 8")
	}
	if in.zone != "UTC" && (in.every == "" || in.every == "off") {
		return fault.New(fault.Usage, "--time-zone has an effect only with --every INTERVAL").Hint("for example: --every 6h --time-zone Europe/Berlin")
	}
	if in.passphrase && (in.every != "" || in.scheduled || len(in.recipients)+len(in.recipientsFiles) > 0) {
		return fault.New(fault.Usage, "--passphrase cannot be combined with --every or with recipients").Hint("use --recipient")
	}
	if in.withoutQuorum && (in.every != "" || in.scheduled) {
		return fault.New(fault.Usage, "--without-quorum cannot be combined with --every").Hint("save one backup: ./install etcd snapshot FILE --without-quorum")
	}
	destination, err := in.destination(args)
	if err != nil {
		return err
	}
	recipients, lines, err := backup.Recipients(in.recipients, in.recipientsFiles)
	if err != nil {
		return err
	}
	open := openUnfinished // what is left of an interrupted reset or restore may be the last copy
	if in.every != "" || in.scheduled {
		open = openHost
	}
	h, unlock, err := open()
	if err != nil {
		return err
	}
	if in.every == "off" {
		defer unlock()
		return recorded(cmd, h, "", func() error { return snapshot.RemoveTimer(cmd.Context(), h, console(cmd)) })
	}
	unlock() // the lock is not held while the backup is written to its place
	b := snapshot.New(h, console(cmd))
	b.Recipients, b.WithoutQuorum, b.Open = recipients, in.withoutQuorum, open
	if b.Kubeconfig, err = config.Absolute("--kubeconfig", in.kubeconfig); err != nil {
		return err
	}
	if in.passphrase {
		recipient, err := passphraseRecipient(cmd)
		if err != nil {
			return err
		}
		b.Recipients = append(b.Recipients, recipient)
	}
	return recordedAfter(cmd, open, func() error { return in.save(cmd, args, b, interval, lines, destination) })
}

// destination returns the target of a URL, nil for a file or a directory. A backup for it is refused before the host is opened if it
// would not be encrypted.
func (in *etcdSnapshotFlags) destination(args []string) (*snapshot.Destination, error) {
	if in.every == "off" || !target.IsURL(args[0]) {
		if in.targetConfig != "" {
			return nil, fault.New(fault.Usage, "--target-config has an effect only with a URL").Hint("for example: ./install etcd snapshot s3://BUCKET/PREFIX --target-config FILE --recipient age1…")
		}
		return nil, nil
	}
	a, err := target.ParseURL(args[0])
	if err != nil {
		return nil, err
	}
	if in.force {
		return nil, fault.New(fault.Usage, "--force has no effect with a URL").Hint("each backup at a target has a name of its own")
	}
	return &snapshot.Destination{Address: a, Config: in.targetConfig}, nil
}

// save saves a backup, or installs the timer that does, with recipients in lines.
func (in *etcdSnapshotFlags) save(cmd *cobra.Command, args []string, b *snapshot.Backup, interval time.Duration, recipients string, to *snapshot.Destination) error {
	if to != nil {
		switch {
		case interval > 0:
			return b.Schedule(cmd.Context(), snapshot.Schedule{Elsewhere: to, Every: interval, TimeZone: in.zone, Keep: in.keep, Recipients: recipients})
		case in.scheduled:
			return b.SaveElsewhere(cmd.Context(), *to, in.keep)
		}
		if err := b.SendOnce(cmd.Context(), *to); err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s\n", b.Summary)
		return nil
	}
	path, err := filepath.Abs(args[0])
	if err != nil {
		return err
	}
	switch {
	case interval > 0:
		return b.Schedule(cmd.Context(), snapshot.Schedule{Directory: path, Every: interval, TimeZone: in.zone, Keep: in.keep, Recipients: recipients})
	case in.scheduled:
		return b.SaveInDirectory(cmd.Context(), path, in.mountPoint, in.keep)
	}
	if err := b.Save(cmd.Context(), path, in.force); err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s\n", b.Summary)
	return nil
}
