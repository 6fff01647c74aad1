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

	"airlift/builder"
	"airlift/builder/events"
	"airlift/builder/sbom"
	"airlift/bundle"
	"airlift/bundle/signature"
	"airlift/internal/fault"
	"airlift/internal/progress"
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
against its digest, and write one file. "bundle docs build" explains every option.

--version takes a full version (v1.29.15), a minor version (v1.29) or stable. Without
it, build uses the newest minor version that it knows ("bundle versions").

--file reads these options, and the site's own software, from a bundle.yaml; "bundle
init" writes an example. A bundle.lock next to it pins every version and checksum.
--validate only checks the file with the manifests, charts and files that it names, without
the network, and reports all errors at once, with their lines.
--arch amd64,arm64 writes a file for each. --only images,manifests builds an additional
bundle for nodes that another bundle has installed.

--image NAME adds an image from its registry, or from one of these sources:
  oci:DIR[:TAG]               an OCI image layout
  oci-archive:FILE[:TAG]      an OCI image layout as a tar archive
  docker-archive:FILE[:NAME]  an archive of docker save
  docker-daemon:NAME          the local Docker, at DOCKER_HOST
  containerd:NAME             the local containerd; runs ctr
Add =NAME for the name that pods use, if the source does not have it.

--mirror HOST=URL sends requests for HOST to URL. --checksum NAME=sha256:HEX pins a
checksum that you know from another source. --verify-signatures require also verifies
the signatures that Kubernetes publishes. --sign-key FILE signs the bundle with a
minisign key ("bundle keygen").
` + passwordHelp + `

Downloads are kept in the cache. An interrupted build continues where it stopped, and a
second build of the same version through the same mirrors needs no network.`,
		Example: `  bundle build
  bundle build --version v1.29
  bundle build --version v1.29.15 --arch amd64,arm64
  bundle build --file bundle.yaml
  bundle build --file bundle.yaml --validate
  bundle build --file bundle.yaml --locked
  bundle build --version v1.29 --image nginx:1.27 --image ghcr.io/me/app:v2
  bundle build --version v1.29 --image docker-archive:app.tar --image oci:build:v1=registry.example/app:1
  bundle build --version v1.29 --images-from app.yaml --images-from charts/ingress
  bundle build --only images --version v1.29 --image nginx:1.28 --out more
  bundle build --only images,manifests --file more.yaml --base install --out more
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
			if b.onlyValidate {
				return b.validate(cmd, locked)
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
			launchers, installers := builder.PerArch(launcher, b.o.Arches), builder.PerArch(installer, b.o.Arches)
			for n, o := range list {
				if err := b.checkOutput(o, input{"the launcher", launchers[n]}, input{"the installer", installers[n]},
					input{"the secret key", signKey}, input{"the file of --password-file", password.file}); err != nil {
					return err
				}
			}
			if err := b.useLock(list, locked); err != nil {
				return err
			}
			for n, arch := range b.o.Arches {
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
				return fault.New(fault.Usage, "--password-file needs --sign-key").Hint("add --sign-key FILE")
			}
			var platforms []string
			for n := range list {
				list[n].Key, list[n].Report = key, b.reporter
				platforms = append(platforms, "linux/"+list[n].Arch)
			}
			b.reporter.Send(events.EventStart, &events.Start{FormatVersion: events.FormatVersion, Platforms: platforms})
			results, err := builder.Run(cmd.Context(), list)
			if err != nil && cmd.Context().Err() != nil {
				err = fault.Wrap(err, fault.Interrupted, "downloads are kept; run the same command again to continue")
			}
			return b.report(cmd, list, results, err, time.Since(start))
		},
	}
	f := cmd.Flags()
	b.bind(cmd)
	bindOut(f, &b.o.Output, "install", "file to write")
	f.StringVar(&format, progressFlag, progressText, "format of the progress and the result: text, or json for one JSON object on each line (see above)")
	complete(cmd, progressFlag, []string{progressText, progressJSON})
	f.BoolVar(&b.onlyValidate, "validate", false, "only check what the build reads, without the network, and report all errors at once (see above)")
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

// report prints what was built, or writes it to the stream of events. failed is the error that
// ended the build; the results then list only the files that were already complete. It returns
// failed.
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
				b.reporter.Warning(w)
			}
			warned[w] = true
		}
	}
	for _, host := range unused {
		b.reporter.Note(fmt.Sprintf("--mirror %s was not used: the build requested nothing from that host", host))
	}
	for n, r := range results {
		if b.reporter.IsJSON() {
			b.reporter.On("linux/"+list[n].Arch).Send(events.EventResult, resultEvent(r, list[n].LockPath))
		} else if err := printResult(cmd.OutOrStdout(), r, len(list[n].Executables.Installer), b.lockLine, took); err != nil {
			return cmp.Or(failed, err)
		}
	}
	return cmp.Or(failed, b.reporter.Err())
}

// printResult prints the contents and the summary of the bundle.
func printResult(out io.Writer, r *builder.Result, installer int, lockLine string, took time.Duration) error {
	fmt.Fprintf(out, "\n%s\n", treeText(contents(r.Manifest, int64(installer)), false))
	for _, l := range r.LeftOut {
		fmt.Fprintf(out, "left out: %s %s (%s)\n", l.Name, l.Version, l.Why)
	}
	if len(r.Pinned) > 0 {
		fmt.Fprintf(out, "pinned: %s\n", strings.Join(r.Pinned, ", "))
	}
	if s := r.Signatures; s != nil && len(s.Verified) > 0 {
		fmt.Fprintf(out, "signature verified: %s\n", strings.Join(s.Verified, ", "))
	}
	if s := r.Signatures; s != nil && len(s.OnlyChecksum) > 0 {
		fmt.Fprintf(out, "only checksum or digest compared: %s\n", strings.Join(s.OnlyChecksum, ", "))
	}
	if r.Complete != "" {
		fmt.Fprintf(out, "complete: %s\n", r.Complete)
	}
	if n, kept, of := r.Manifest.Reproduced(); of > 0 {
		note := ""
		if kept > 0 {
			note = fmt.Sprintf(", %d are kept", kept)
		}
		fmt.Fprintf(out, "push: %d of %d layers' compressed blobs can be reproduced%s\n", n, of, note)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
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
