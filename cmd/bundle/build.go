package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"airlift/bundle"
	"airlift/bundle/builder"
	"airlift/bundle/sbom"
	"airlift/bundle/signature"
	"airlift/fault"
	"airlift/progress"
)

// keepCompressedFlag is the flag of bundle build for layers as upstream compressed them.
const keepCompressedFlag = "keep-compressed-layers"

func newBuildCmd() *cobra.Command {
	var b buildFlags
	var launcher, installer, signKey, format string
	var sboms []string
	var locked bool
	var password passwordFlag
	cmd := &cobra.Command{
		Use:   "build",
		Short: "Build a bundle",
		Long: `Build a bundle: download the binaries and images of a Kubernetes version from the
upstream sites, verify every file against its published checksum and every image
against its digest, and write one file.

--file reads these options from a bundle.yaml; "bundle init" writes an example. The file
can also list the site's own software: Kubernetes manifests and Helm charts, which init
applies, and files and systemd units for the hosts. The images of their workloads are
added to the bundle. The build fails if a pod of these workloads would contact a
registry at the site. A flag replaces the value of the file; lists are added to it.

A build with --file writes bundle.lock next to bundle.yaml, if it does not exist: the
Kubernetes version, and the checksum of every component, image, chart and file. A build
that fails writes none. If the lock exists, the build uses the versions and checksums in
it. It fails if the lock does not fit bundle.yaml, and lists the differences; "bundle
update" updates the lock. --lock FILE uses another file, also without --file. --locked
fails if there is no lock.

--output and --lock must not name a file that the build reads, such as bundle.yaml, the
base or the secret key: the build then fails before it writes anything.

--addon adds an add-on of the catalog, which init applies before the site's own
manifests. "bundle versions" lists the add-ons and their versions.

--arch amd64,arm64 builds a bundle for each architecture, from one bundle.yaml and with
one lock. All of them are resolved, checked and downloaded before the first file is
written. The build then appends -amd64 and -arm64 to the file names of --output, --base,
--launcher and --installer. The files get their names when all of them are complete: a
build that fails or is interrupted changes no file. With --checksum, name the file of an
architecture: amd64/kubelet, runc.arm64.

--images-from FILE|DIR|CHART reads Kubernetes manifests, a kustomization or a Helm chart,
and adds only their images. Use it for objects that you apply yourself.

--only images,manifests builds an additional bundle: images and manifests for nodes that
another bundle has installed. It contains no Kubernetes, and no component is downloaded.
--version is the version of the clusters, for which charts are rendered. --only images
leaves out the manifests, but not their images. --only manifests leaves out the images,
so the bundle of --base must contain the images of the manifests. --base FILE is the
bundle that the nodes were installed from, or a copy: its layers are already on every
node, so they are left out and not downloaded. The default of --output is then "more".

--version takes a full version (v1.29.15), a minor version (v1.29) or stable. A
minor version and stable mean the newest release. Without --version, build uses the
newest minor version that it knows. If dl.k8s.io has no release of that minor
version, the build fails.

Some versions are newer than the known ones ("bundle versions"). For a newer patch of a
known minor version, build uses the components of the newest known patch, and prints
them. A newer minor version needs --etcd-version, --coredns-version and
--pause-version, with the versions that its "kubeadm config images list" prints. The
hosts then apply the rules of the newest known minor version. The flags are also
allowed for a newer patch. For a known version, a flag that contradicts it is a usage
error.

--image NAME adds an image from its registry. It also takes images from these sources:
  oci:DIR[:TAG]               an OCI image layout
  oci-archive:FILE[:TAG]      an OCI image layout as a tar archive
  docker-archive:FILE[:NAME]  an archive of docker save
  docker-daemon:NAME          the local Docker, at DOCKER_HOST
  containerd:NAME             the local containerd; runs ctr
Archives may be compressed. Without TAG or NAME, all images of the source are added. Add
=NAME for the name that pods use, if the source does not have it:
oci:build:v1=registry.example/app:1. docker://NAME is the same as NAME. An image with a
name of Kubernetes' own images needs =NAME, because it replaces that image.

--mirror HOST=URL sends requests for HOST to URL. Repeat it for each site that you
mirror: registry.k8s.io, dl.k8s.io, github.com, ghcr.io, the registries of your own
images, and the hosts that these redirect to. The URL's path is put before the
request's path. For a registry, a URL path that begins with /v2 replaces the /v2 of
the request: for a proxy project of Harbor, use
--mirror registry.k8s.io=https://harbor.example.com/v2/k8s. For a registry without TLS,
use --mirror HOST=http://HOST.

Registry credentials are read from the file of --registry-auth or REGISTRY_AUTH_FILE.
Without one, they are read from the files that docker login and podman login write, with
their credential helpers. They are also used for charts. --registry-ca FILE trusts the
CA certificates in FILE, in addition to the system's; HOST=FILE limits them to one host.
--registry-ca DIR reads DIR/HOST/*.crt, as in docker's certs.d. /etc/docker/certs.d and
/etc/containers/certs.d are always read.

A checksum from a mirror detects damage. It does not prove that the file is
upstream's, because the mirror supplies both; bundle build warns about this.
--checksum NAME=sha256:HEX pins a checksum that you know from another source. NAME
is a component (kubelet), a file name at the site (runc.amd64, linux/amd64/kubelet),
or an image (registry.k8s.io/pause:3.9), whose checksum is the digest of its index, or
of its manifest if it has no index. --checksums FILE reads a list in the format of
sha256sum; entries for other files are ignored. The published checksum of a pinned
file is not requested. --image NAME@sha256:HEX also pins.

--verify-signatures require verifies the signatures (sigstore, cosign) that Kubernetes
publishes for kubelet, kubectl and every image on registry.k8s.io, against the accounts
of its release engineering team. If signatures are missing or wrong, the build fails and
lists them. if-present skips signatures that cannot be found, and lists them; a wrong one
is still an error. An image that is signed only by other accounts, or with a key pair,
counts as not signed. For other components and images, only the checksum or digest is
compared; the build lists them. The manifest of the bundle records the signers, so a
bundle with verified signatures has a different sha256. off, the default, requests no
signatures.

The trusted root contains the keys of sigstore's CA and logs. It is downloaded from
tuf-repo-cdn.sigstore.dev, and kept in the cache; --trusted-root FILE reads it from a
trusted_root.json. The signatures of binaries are looked up at rekor.sigstore.dev.

OUTPUT.provenance.json records which site, mirror or flag supplied the checksum of
each file and image. It is not part of the bundle, so a bundle built through an honest
mirror has the same sha256 as one built without a mirror.

crictl is optional. If its site answers that the file does not exist (404, 410), the
bundle is built without it. With --require crictl that is an error; --without crictl
always leaves it out. Every other failure is an error.

--sign-key FILE signs the bundle with a minisign secret key ("bundle keygen"): the
signature is OUTPUT.minisig. The key is opened before anything is downloaded. A signed
file OUTPUT is only replaced by a file that the same key signs. To replace it without
the key, first remove OUTPUT.minisig.
` + passwordHelp + `

--progress json is for CI systems: standard output then has one JSON object on each
line, and nothing else. Other commands print JSON with --output json, but --output of
build is the file to write. The field "event" is start, phase, downloadStarted,
downloadFinished, note, warning, result or error; the last line is result, or error with
the hint and the exit code. bundle docs lock lists the fields. The error is also printed on
the standard error.

A bundle stores layers uncompressed. The build detects which encoder reproduces upstream's
compressed layer, so that "bundle push" can push it with upstream's digest, and prints for
how many layers it found one. --keep-compressed-layers also stores the other layers as
upstream compressed them.

--compression sets the compression level. default uses the built-in encoder. best
runs the zstd command found in PATH at its highest level and places similar files
next to each other. The file is smaller, but the build takes many times the
processor time and gigabytes of memory, and "init phase images" must also
decompress the binaries. fastest is for tests.

Downloads are kept in the cache. An interrupted download continues where it
stopped. A second build of the same version through the same mirrors needs no network.
With other mirrors, checksums and digests are requested again.`,
		Example: `  bundle build
  bundle build --version v1.29
  bundle build --version v1.29.15 --arch amd64,arm64
  bundle build --file bundle.yaml
  bundle build --file bundle.yaml --locked
  bundle build --version v1.29 --image nginx:1.27 --image ghcr.io/me/app:v2
  bundle build --version v1.29 --image docker-archive:app.tar --image oci:build:v1=registry.example/app:1
  bundle build --version v1.29 --images-from app.yaml --images-from charts/ingress
  bundle build --only images --version v1.29 --image nginx:1.28 --output more
  bundle build --only images,manifests --file more.yaml --base install --output more
  bundle build --version v1.38.0 --etcd-version 3.7.1-0 --coredns-version v1.14.7 --pause-version 3.10.2
  bundle build --version v1.29 --compression best
  bundle build --version v1.29 --image registry.example:5000/app:1 --registry-ca registry.example:5000=ca.pem
  bundle build --version v1.37 --addon local-path-storage,metrics-server,ingress
  bundle build --version v1.29 --sign-key airlift.key
  bundle build --version v1.29 --progress json > events.jsonl
  bundle build --version v1.29 --verify-signatures require
  bundle build --version v1.29 --sbom spdx-json,cyclonedx-json
  bundle build --version v1.29 --mirror registry.k8s.io=https://mirror.example.com
  bundle build --version v1.29.15 --checksums SHA256SUMS --checksum pause=sha256:7031c1b283388d2c2e09b57badb803c05ebed362dc88d84b480cc47f72a21097`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			start := time.Now()
			if err := b.chooseProgress(cmd, format); err != nil {
				return err
			}
			for _, name := range sboms {
				format, err := sbom.ParseFormat(name)
				if err != nil {
					return err
				}
				b.o.SBOM = append(b.o.SBOM, format)
			}
			list, err := b.options(cmd)
			if err != nil {
				return err
			}
			if err := b.checkLock(list); err != nil {
				return err
			}
			launchers, installers := builder.PerArch(launcher, b.arches), builder.PerArch(installer, b.arches)
			for n, o := range list {
				if err := b.checkOutput(o, input{"the launcher", launchers[n]}, input{"the installer", installers[n]},
					input{"the secret key", signKey}, input{"the file of --password-file", password.file}); err != nil {
					return err
				}
			}
			if err := b.useLock(list, locked); err != nil {
				return err
			}
			for n, arch := range b.arches {
				if list[n].Executables, err = executables(launchers[n], installers[n], arch); err != nil {
					return err
				}
			}
			var key *signature.SecretKey
			if signKey != "" {
				read, err := signature.ReadSecretKey(signKey, func() (string, error) { return password.existing(cmd.Context(), signKey) })
				if err != nil {
					return err
				}
				key = &read
			} else if password.file != "" {
				return fault.New(fault.Usage, "add --sign-key FILE", "--password-file needs --sign-key")
			}
			var platforms []string
			for n := range list {
				list[n].Key, list[n].Progress, list[n].Events = key, b.progress, b.events
				platforms = append(platforms, "linux/"+list[n].Arch)
			}
			b.events.Start(platforms)
			results, err := builder.RunAll(cmd.Context(), list)
			if err != nil && cmd.Context().Err() != nil {
				err = fault.Wrap(err, fault.Interrupted, "downloads are kept; run the same command again to continue")
			}
			return b.report(cmd, list, results, err, time.Since(start))
		},
	}
	f := cmd.Flags()
	b.bind(cmd)
	f.StringVarP(&b.o.Output, "output", "o", "install", "file to write")
	f.StringVar(&format, progressFlag, progressText, "format of the progress and the result: text, or json for one JSON object on each line (see above)")
	complete(cmd, progressFlag, []string{progressText, progressJSON})
	f.BoolVar(&locked, "locked", false, "fail if there is no lock (see above)")
	f.BoolVar(&b.o.Refresh, "refresh", false, "request versions, checksums and digests again instead of using the cached ones")
	f.BoolVar(&b.o.KeepCompressed, keepCompressedFlag, false, "also store layers as upstream compressed them, if no encoder reproduces the same bytes (for bundle push)")
	f.StringVar(&signKey, "sign-key", "", "sign the bundle with the secret key in this `FILE`")
	password.bind(f)
	f.StringSliceVar(&sboms, "sbom", nil, "also write the bundle's SBOM next to it, in these formats: spdx-json, cyclonedx-json (see bundle sbom)")
	f.StringVar(&b.compression, "compression", "default", "compression level: fastest, default or best (see above)")
	f.StringVar(&installer, "installer", "", "binary of ./cmd/install to use instead of the built-in one")
	f.StringVar(&launcher, "launcher", "", "binary of ./cmd/launch to use instead of the built-in one")
	complete(cmd, "compression", bundle.Levels())
	complete(cmd, "sbom", sbom.Formats())
	return cmd
}

// report prints what was built, or writes it to the stream of events. failed is the error that ended
// the build; the results are then those of the files that were complete before. It returns failed.
func (b *buildFlags) report(cmd *cobra.Command, list []builder.Options, results []*builder.Result, failed error, took time.Duration) error {
	var unused []string // by no architecture
	if failed == nil {
		unused = results[0].UnusedMirrors
	}
	warned := map[string]bool{}
	for _, r := range results {
		unused = slices.DeleteFunc(slices.Clone(unused), func(host string) bool { return !slices.Contains(r.UnusedMirrors, host) })
		for _, w := range r.Warnings {
			if !warned[w] {
				b.warn(cmd, w)
			}
			warned[w] = true
		}
	}
	for _, host := range unused {
		b.note(cmd, fmt.Sprintf("--mirror %s was not used: the build requested nothing from that host", host))
	}
	for n, r := range results {
		if b.events != nil {
			b.events.On("linux/" + list[n].Arch).Result(resultEvent(r, list[n].LockPath))
		} else if err := printResult(cmd.OutOrStdout(), r, b.lockLine, took); err != nil {
			return cmp.Or(failed, err)
		}
	}
	return cmp.Or(failed, b.events.Err())
}

// printResult prints a table of the contents, and the summary of the bundle.
func printResult(out io.Writer, r *builder.Result, lockLine string, took time.Duration) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	if len(r.Manifest.Components) > 0 {
		fmt.Fprintf(w, "\nCOMPONENT\tVERSION\tSIZE\n")
	} else if len(r.Manifest.Images) > 0 {
		fmt.Fprintf(w, "\nIMAGE\tVERSION\tSIZE\n")
	}
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
	if err := siteTables(out, r.Manifest); err != nil {
		return err
	}
	fmt.Fprintf(out, "\n")
	for _, l := range r.LeftOut {
		fmt.Fprintf(out, "left out: %s %s (%s)\n", l.Name, l.Version, l.Why)
	}
	if len(r.Pinned) > 0 {
		fmt.Fprintf(out, "pinned: %s\n", strings.Join(r.Pinned, ", "))
	}
	printSignatures(out, r.Signatures)
	if r.Complete != "" {
		fmt.Fprintf(out, "complete: %s\n", r.Complete)
	}
	if n, kept, of := r.Manifest.Reproduced(); of > 0 {
		fmt.Fprintf(out, "push: %d of %d layers' compressed blobs can be reproduced%s\n", n, of, keptNote(kept))
	}
	fmt.Fprintf(w, "%s\nkubernetes\t%s\nsize\t%s (%d bytes, %s unpacked)\nsha256\t%s\nprovenance\t%s\ntook\t%.1f s\n",
		r.Path, r.Manifest.KubernetesVersion, progress.Bytes(r.Size), r.Size, progress.Bytes(r.UnpackedSize), r.SHA256, r.Provenance, took.Seconds())
	if r.Manifest.Base != nil {
		fmt.Fprintf(w, "base\t%s; left out: %s that it has\n", r.Base, layersIn(r.Manifest.OnlyInBase()))
	}
	if lockLine != "" {
		fmt.Fprintf(w, "lock\t%s\n", lockLine)
	}
	if r.Signature != "" {
		fmt.Fprintf(w, "signature\t%s\n", r.Signature)
	}
	for _, path := range r.SBOMs {
		fmt.Fprintf(w, "sbom\t%s\n", path)
	}
	return w.Flush()
}

// printSignatures prints what was verified, and what was only compared with a checksum.
func printSignatures(out io.Writer, s *builder.Signatures) {
	if s == nil {
		return
	}
	if len(s.Verified) > 0 {
		fmt.Fprintf(out, "signature verified: %s\n", strings.Join(s.Verified, ", "))
	}
	if len(s.OnlyChecksum) > 0 {
		fmt.Fprintf(out, "only checksum or digest compared: %s\n", strings.Join(s.OnlyChecksum, ", "))
	}
}

func keptNote(kept int) string {
	if kept == 0 {
		return ""
	}
	return fmt.Sprintf(", %d are kept", kept)
}

// layersIn describes layers, given by their sizes: "2 layers (34.1 MB)".
func layersIn(sizes map[string]int64) string {
	var sum int64
	for _, size := range sizes {
		sum += size
	}
	if len(sizes) == 1 {
		return "1 layer (" + progress.Bytes(sum) + ")"
	}
	return fmt.Sprintf("%d layers (%s)", len(sizes), progress.Bytes(sum))
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
