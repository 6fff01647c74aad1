package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"airlift/bundle"
	"airlift/bundle/signature"
	"airlift/installer/multihost/seed"
	"airlift/installer/multihost/spec"
	"airlift/internal/atomicfile"
	"airlift/internal/fault"
	"airlift/internal/interrupt"
	"airlift/internal/progress"
)

// Formats of what hosts need before they can read a drive.
const (
	cloudInit = "cloud-init"
	ignition  = "ignition"
)

type seedFlags struct {
	file, key, out, format, drive string
	ttl                           time.Duration
	password                      passwordFlag
}

func newSeedCmd() *cobra.Command {
	var in seedFlags
	cmd := &cobra.Command{
		Use:   "seed FILE",
		Short: "Write a drive from which hosts become a cluster by themselves",
		Long: `Write what a drive needs so that hosts become the cluster of a cluster.yaml by themselves, at their first
boot and without SSH: the seed, its signature by a minisign secret key, and the bundle FILE as ` + seed.Installer + `.
Give the file system of the drive the label ` + seed.Label + `.

Each host in cluster.yaml needs match, with its serial number, a MAC address or a label, and nodeIP. Before, check the
file with './install cluster validate', which also knows the values of kubeadm's documents.

With --format, also write what starts the seed on a stock image: user data for cloud-init, or a configuration for
Ignition. It has the public key and the sha256 of what starts FILE, and no secrets.

The seed has a bootstrap token, and the key to the certificates of control planes. Until the cluster is complete, or
--ttl ends, who has the drive can join machines to the cluster: keep it as a password. See 'bundle docs seed'.

` + passwordHelp,
		Example: `  bundle seed install --key airlift.key --out /media/AIRLIFT
  bundle seed install --file cluster.yaml --key airlift.key --out /media/CIDATA --format cloud-init --ttl 24h`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return in.run(cmd, args[0]) },
	}
	f := cmd.Flags()
	f.StringVarP(&in.file, "file", "f", spec.DefaultFile, "the cluster.yaml `FILE`")
	f.StringVar(&in.key, "key", "", "`FILE` with the secret key (required)")
	bindOut(f, &in.out, "", "`DIRECTORY` of the drive (required)")
	f.DurationVar(&in.ttl, "ttl", seed.DefaultTTL, "how long hosts may begin to join")
	f.StringVar(&in.format, "format", "", "also write the first boot of a host: "+cloudInit+" or "+ignition)
	f.StringVar(&in.drive, "drive", "", "with --format: the `LABEL` of the drive, or a directory on the hosts (default "+seed.Label+" or "+seed.CloudLabel+")")
	in.password.bind(f)
	complete(cmd, "format", []string{cloudInit, ignition})
	return cmd
}

func (in *seedFlags) check(file string) error {
	switch {
	case in.key == "":
		return fault.New(fault.Usage, "--key is required").Hint("bundle seed " + fault.Word(file) + " --key airlift.key; to create one: bundle keygen")
	case in.format != "" && !slices.Contains([]string{cloudInit, ignition}, in.format):
		return fault.New(fault.Usage, "unknown format %q", in.format).Hint(fault.Choose(in.format, "the formats are", []string{cloudInit, ignition}))
	case in.drive != "" && in.format == "":
		return fault.New(fault.Usage, "--drive has no effect without --format").Hint("add --format " + cloudInit + " or --format " + ignition)
	}
	info, err := os.Stat(in.out)
	switch {
	case in.out == "":
		err = errors.New("--out is required")
	case err == nil && !info.IsDir():
		err = fmt.Errorf("%s is not a directory", in.out)
	}
	return fault.Wrap(err, fault.Usage, "name the directory at which the drive is mounted: --out DIRECTORY")
}

func (in *seedFlags) run(cmd *cobra.Command, file string) error {
	ctx := cmd.Context()
	if err := in.check(file); err != nil {
		return err
	}
	f, err := bundle.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.NeedsWhole(); err != nil {
		return err
	}
	m, err := f.Manifest()
	if err != nil {
		return err
	}
	c, err := spec.Read(in.file)
	if err != nil {
		return err
	}
	for _, w := range c.Warnings {
		fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s\n", w)
	}
	key, err := signature.ReadSecretKey(in.key, func() (string, error) { return in.password.existing(ctx, in.key) })
	if err != nil {
		return err
	}
	if err := f.Check(ctx, nil); err != nil { // a damaged file is not signed
		return err
	}
	_, arch, _ := strings.Cut(m.Platform, "/")
	s, err := seed.New(c, seed.Bundle{ID: f.ID(), Version: m.KubernetesVersion, Arch: arch, Size: f.Size()}, time.Now(), in.ttl)
	if err != nil {
		return err
	}
	boot := seed.Boot{Key: key.PublicKey(), Drive: in.drive}
	if _, err := boot.Files(); err != nil {
		return err
	}
	display := progress.New(cmd.ErrOrStderr())
	defer display.Close()
	if s.Bundle.SHA256, err = placeInstaller(ctx, display, f, filepath.Join(in.out, seed.Installer)); err != nil {
		return err
	}
	if boot.Start, err = startOf(f); err != nil {
		return err
	}
	written, err := in.write(s, boot, key)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	fmt.Fprintf(out, "cluster   %s, Kubernetes %s\nseed      %s, signed by key %s\nvalid     until %s\n", c.Name, m.KubernetesVersion, s.ID, key.ID(), s.Expires.Format("2006-01-02 15:04 UTC"))
	for _, h := range c.Hosts {
		fmt.Fprintf(out, "host      %s %s: %s\n", h.Name, h.Role, h.Match)
	}
	for _, name := range append([]string{seed.Installer}, written...) {
		fmt.Fprintf(out, "written   %s\n", filepath.Join(in.out, name))
	}
	return nil
}

// write writes the small files of the drive. The signature comes after the seed: without it, hosts refuse the drive.
func (in *seedFlags) write(s *seed.Seed, boot seed.Boot, key signature.SecretKey) (names []string, err error) {
	data, err := s.Encode()
	if err != nil {
		return nil, err
	}
	type file struct {
		name string
		data []byte
		mode fs.FileMode
	}
	files := []file{{seed.File, data, 0o600}, {seed.File + ".minisig", s.Sign(data, key), 0o644}}
	switch in.format {
	case cloudInit:
		text, err := boot.CloudInit()
		if err != nil {
			return nil, err
		}
		files = append(files, file{"user-data", text, 0o644}, file{"meta-data", []byte("instance-id: airlift-" + s.ID + "\n"), 0o644})
	case ignition:
		text, err := boot.Ignition()
		if err != nil {
			return nil, err
		}
		files = append(files, file{"airlift.ign", text, 0o644})
	}
	if err := os.Remove(filepath.Join(in.out, seed.File+".minisig")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, f := range files {
		if err := atomicfile.Write(filepath.Join(in.out, f.name), f.data, f.mode); err != nil {
			return nil, err
		}
		names = append(names, f.name)
	}
	return names, nil
}

// startOf returns what starts the installer in a file: its thin file.
func startOf(f *bundle.File) (s seed.Start, err error) {
	h := sha256.New()
	s.First, s.Last = f.ThinParts()
	for _, part := range []*io.SectionReader{io.NewSectionReader(f.Reader(), 0, s.First), io.NewSectionReader(f.Reader(), f.Size()-s.Last, s.Last)} {
		if _, err := io.Copy(h, part); err != nil {
			return s, err
		}
	}
	s.SHA256 = hex.EncodeToString(h.Sum(nil))
	return s, nil
}

// placeInstaller copies the bundle to the drive, unless it is there, and returns its sha256.
func placeInstaller(ctx context.Context, display *progress.Display, f *bundle.File, to string) (sum string, err error) {
	item := display.Item("copying "+f.Path(), f.Size())
	defer func() {
		if err != nil {
			item.Failed()
		}
	}()
	h := sha256.New()
	whole := interrupt.Reader(ctx, f.Reader())
	if sameFile(f.Path(), to) {
		if _, err := io.Copy(io.MultiWriter(h, interrupt.Meter(item.Add)), whole); err != nil {
			return "", err
		}
		item.Done("in place")
		return hex.EncodeToString(h.Sum(nil)), nil
	}
	out, err := atomicfile.Create(to)
	if err != nil {
		return "", err
	}
	defer out.Discard()
	if _, err := io.Copy(io.MultiWriter(out, h, interrupt.Meter(item.Add)), whole); err != nil {
		return "", err
	}
	if err := out.Finish(0o755); err != nil {
		return "", err
	}
	if err := out.Replace(); err != nil {
		return "", err
	}
	item.Done("copied")
	return hex.EncodeToString(h.Sum(nil)), nil
}
