package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"airlift/bundle"
	"airlift/bundle/builder"
	"airlift/bundle/fetch"
	"airlift/fault"
	"airlift/images"
	"airlift/progress"
)

func newBuildCmd() *cobra.Command {
	var o builder.Options
	var mirrors, checksums, lists []string
	var launcher, installer, compression string
	cmd := &cobra.Command{
		Use:   "build",
		Short: "Build a bundle",
		Long: `Build a bundle: download the binaries and images of a Kubernetes version from the
upstream sites, verify every file against its published checksum and every image
against its digest, and write one file.

--version takes a full version (v1.29.15), a minor version (v1.29) or stable. A
minor version and stable mean the newest release. Without --version, build takes the
newest minor version that it knows. If dl.k8s.io has no release of that minor
version, the build fails.

Some versions are newer than the known ones ("bundle versions"). A newer patch of a
known minor version gets the components of its newest known patch; build prints which
these are. A newer minor version needs --etcd-version, --coredns-version and
--pause-version, with the versions that its "kubeadm config images list" prints. The
hosts then apply the rules of the newest known minor version. The flags are also
allowed for a newer patch. For a known version, a flag that contradicts it is a usage
error.

--mirror HOST=URL sends requests for HOST to URL. Repeat it for each site that you
mirror: registry.k8s.io, dl.k8s.io, github.com, ghcr.io, the registries of your own
images, and the hosts that these redirect to. The URL's path is put before the
request's path. For a registry, a URL path that begins with /v2 replaces the /v2 of
the request: for a proxy project of Harbor, use
--mirror registry.k8s.io=https://harbor.example.com/v2/k8s. Credentials for
registries are read from docker's config file.

A checksum from a mirror detects damage. It does not prove that the file is
upstream's, because the mirror supplies both; bundle build warns about this.
--checksum NAME=sha256:HEX pins a checksum that you know from another source. NAME
is a component (kubelet), a file name at the site (runc.amd64, linux/amd64/kubelet),
or an image (registry.k8s.io/pause:3.9), whose checksum is the digest of its index, or
of its manifest if it has no index. --checksums FILE reads a list in the format of
sha256sum; entries for other files are ignored. The published checksum of a pinned
file is not requested. --image NAME@sha256:HEX also pins.

OUTPUT.provenance.json records which site, mirror or flag supplied the checksum of
each file and image. It is not part of the bundle, so a bundle built through an honest
mirror has the same sha256 as one built without a mirror.

crictl is optional. If its site answers that the file does not exist (404, 410), the
bundle is built without it. With --require crictl that is an error; --without crictl
always leaves it out. Every other failure is an error.

--compression sets the compression level. default uses the built-in encoder. best
runs the zstd command found in PATH at its highest level and places similar files
next to each other. The file is smaller, but the build takes many times the
processor time and gigabytes of memory, and "init phase images" must also
decompress the binaries. fastest is for tests.

Downloads are kept in the cache. An interrupted download continues where it
stopped. A second build of the same version through the same mirrors needs no network.
Checksums and digests from one list of mirrors are not used with another.`,
		Example: `  bundle build
  bundle build --version v1.29
  bundle build --version v1.29.15 --arch arm64 --output install-arm64
  bundle build --version v1.29 --image nginx:1.27 --image ghcr.io/me/app:v2
  bundle build --version v1.38.0 --etcd-version 3.7.1-0 --coredns-version v1.14.7 --pause-version 3.10.2
  bundle build --version v1.29 --compression best
  bundle build --version v1.29 --mirror registry.k8s.io=https://mirror.example.com
  bundle build --version v1.29.15 --checksums SHA256SUMS --checksum pause=sha256:7031c1b283388d2c2e09b57badb803c05ebed362dc88d84b480cc47f72a21097`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			start := time.Now()
			var err error
			if o.Level, err = bundle.ParseLevel(compression); err != nil {
				return err
			}
			for _, s := range mirrors {
				m, err := fetch.ParseMirror(s)
				if err != nil {
					return err
				}
				o.Mirrors = append(o.Mirrors, m)
			}
			if o.Pins, err = pins(checksums, lists); err != nil {
				return err
			}
			if o.Executables, err = executables(launcher, installer, o.Arch); err != nil {
				return err
			}
			if o.CacheDir == "" {
				if o.CacheDir, err = defaultCache(); err != nil {
					return err
				}
			}
			if !cmd.Flags().Changed("version") {
				fmt.Fprintf(cmd.ErrOrStderr(), "note: without --version, the newest known minor version is built: %s\n", o.Version)
			}
			o.Progress = progress.New(cmd.ErrOrStderr())
			r, err := builder.Run(cmd.Context(), o)
			if err != nil && cmd.Context().Err() != nil {
				return fault.Wrap(err, fault.Interrupted, "downloads are kept; run the same command again to continue")
			}
			if err != nil {
				return err
			}
			for _, w := range r.Warnings {
				fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s\n", w)
			}
			for _, host := range r.UnusedMirrors {
				fmt.Fprintf(cmd.ErrOrStderr(), "note: --mirror %s was not used: the build requested nothing from that host\n", host)
			}
			return printResult(cmd.OutOrStdout(), r, time.Since(start))
		},
	}
	optional := strings.Join(images.Optional(), ", ")
	f := cmd.Flags()
	f.StringVar(&o.Version, "version", images.Newest(), "Kubernetes version: v1.29.15, v1.29 or stable")
	componentFlags(f, &o.Versions)
	f.StringVar(&o.Arch, "arch", runtime.GOARCH, "CPU architecture of the hosts: amd64 or arm64")
	f.StringVar(&o.CNI, "cni", images.Flannel, "pod network: flannel, or none to install your own")
	f.StringVarP(&o.Output, "output", "o", "install", "file to write")
	f.StringArrayVar(&o.Images, "image", nil, "add this image to the bundle (repeatable)")
	f.StringArrayVar(&mirrors, "mirror", nil, "HOST=URL: send requests for HOST to URL (repeatable)")
	f.StringArrayVar(&checksums, "checksum", nil, "NAME=sha256:HEX: checksum that a file or image must have (repeatable)")
	f.StringArrayVar(&lists, "checksums", nil, "file with checksums in the format of sha256sum (repeatable)")
	f.StringArrayVar(&o.Require, "require", nil, "fail if this optional component is not available: "+optional+" (repeatable)")
	f.StringArrayVar(&o.Without, "without", nil, "leave out this optional component: "+optional+" (repeatable)")
	f.StringVar(&o.CacheDir, "cache-dir", "", "directory for downloads (default airlift/bundle in the user's cache directory)")
	f.BoolVar(&o.Refresh, "refresh", false, "request versions, checksums and digests again instead of using the cached ones")
	f.StringVar(&compression, "compression", "default", "compression level: fastest, default or best (see above)")
	f.StringVar(&installer, "installer", "", "binary of ./cmd/install to use instead of the built-in one")
	f.StringVar(&launcher, "launcher", "", "binary of ./cmd/launch to use instead of the built-in one")
	for flag, values := range map[string][]string{"arch": images.Arches(), "cni": images.CNIs(), "compression": bundle.Levels(), "version": images.Known(),
		"require": images.Optional(), "without": images.Optional()} {
		cobra.CheckErr(cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)))
	}
	return cmd
}

// componentFlags adds the flags that give versions of components.
func componentFlags(f *pflag.FlagSet, v *images.Versions) {
	for _, c := range []struct {
		name    string
		version *string
		form    string
	}{{"etcd", &v.Etcd, "3.7.0-0"}, {"coredns", &v.CoreDNS, "v1.14.6"}, {"pause", &v.Pause, "3.10.2"}, {"crictl", &v.Crictl, "v1.36.0"}} {
		f.StringVar(c.version, c.name+"-version", "", "version of "+c.name+", such as "+c.form+", for a Kubernetes version that is newer than the known ones")
	}
}

func defaultCache() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fault.Wrap(fmt.Errorf("finding the user's cache directory: %w", err), fault.Usage, "choose a directory with --cache-dir")
	}
	return filepath.Join(dir, "airlift", "bundle"), nil
}

// pins parses the values of --checksum and --checksums.
func pins(checksums, lists []string) (all []builder.Pin, err error) {
	for _, s := range checksums {
		p, err := builder.ParsePin(s)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	for _, path := range lists {
		list, err := builder.ReadPins(path)
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	return all, nil
}

// printResult prints a table of the contents, and the summary of the bundle.
func printResult(out io.Writer, r *builder.Result, took time.Duration) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\nCOMPONENT\tVERSION\tSIZE\n")
	size := func(entries []string) (n int64) {
		for _, name := range entries {
			e, _ := r.Manifest.Entry(name)
			n += e.Size
		}
		return n
	}
	for _, c := range r.Manifest.Components {
		fmt.Fprintf(w, "%s\t%s\t%s\n", c.Name, c.Version, progress.Bytes(size(c.Entries)))
	}
	for _, i := range r.Manifest.Images {
		fmt.Fprintf(w, "%s\t%s\t%s\n", repository(i), tag(i), progress.Bytes(layers(i)))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "\n")
	for _, l := range r.LeftOut {
		fmt.Fprintf(out, "left out: %s %s (%s)\n", l.Name, l.Version, l.Why)
	}
	if len(r.Pinned) > 0 {
		fmt.Fprintf(out, "pinned: %s\n", strings.Join(r.Pinned, ", "))
	}
	fmt.Fprintf(w, "%s\nkubernetes\t%s\nsize\t%s (%d bytes, %s unpacked)\nsha256\t%s\nprovenance\t%s\ntook\t%.1f s\n",
		r.Path, r.Manifest.KubernetesVersion, progress.Bytes(r.Size), r.Size, progress.Bytes(r.UnpackedSize), r.SHA256, r.Provenance, took.Seconds())
	return w.Flush()
}

func layers(i bundle.Image) (n int64) {
	for _, l := range i.Layers {
		n += l.Size
	}
	return n
}

// repository and tag split a reference for a table. For an image that is named by digest,
// tag returns the digest.
func repository(i bundle.Image) string { name, _ := cut(i.Reference); return name }
func tag(i bundle.Image) string        { _, version := cut(i.Reference); return version }

func cut(reference string) (name, version string) {
	if name, digest, ok := strings.Cut(reference, "@"); ok {
		return name, digest
	}
	n := strings.LastIndex(reference, ":")
	return reference[:n], reference[n+1:]
}
