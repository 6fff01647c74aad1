package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"airlift/builder/fetch"
	"airlift/builder/push"
	"airlift/builder/registry"
	"airlift/bundle"
	"airlift/internal/fault"
	"airlift/internal/progress"
)

func newPushCmd() *cobra.Command {
	var output *outputFormat
	var base, auth string
	var mirrorFlags, cas []string
	cmd := &cobra.Command{
		Use:   "push FILE REGISTRY[/PREFIX]",
		Short: "Push the images of a bundle to a registry",
		Long: `Push the images of a bundle to a registry, with upstream's digests. Each image goes to
REGISTRY/PREFIX/HOST/PATH: registry.k8s.io/pause:3.10 to
registry.example/mirror/registry.k8s.io/pause:3.10. A port of HOST is written with a dash.

A bundle stores layers uncompressed. push compresses them as upstream did. If it cannot
do that for some layers that the registry does not have, push lists these layers and
pushes nothing: build the bundle with --keep-compressed-layers.

A bundle has the manifests of one platform. If upstream's image is an index of several
platforms, push uploads the manifest of the bundle's platform and then the index. Some
registries, such as distribution with its default configuration, refuse an index without
all of its manifests. The tag then points to the manifest of the platform, and the image
cannot be pulled by the digest of the index. push prints this digest.

It is safe to run push again: layers that the registry has are not sent again. --base FILE
is the base of an additional bundle; push reads from it the layers that the bundle does
not have.

Credentials, CAs and plain http work as in "bundle build": --registry-auth,
--registry-ca and --mirror HOST=http://HOST.`,
		Example: `  bundle push install registry.example/mirror
  bundle push install registry.example:5000 --registry-ca ca.pem
  bundle push install localhost:5000 --mirror localhost:5000=http://localhost:5000
  bundle push more registry.example/mirror --base install
  bundle push install registry.example/mirror --output json`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			display := progress.New(cmd.ErrOrStderr())
			defer display.Close()
			client, err := pushClient(display, mirrorFlags, cas, auth)
			if err != nil {
				return err
			}
			f, err := bundle.OpenWhole(args[0])
			if err != nil {
				return err
			}
			defer f.Close()
			o := push.Options{File: f, Target: args[1], Registry: client, Progress: display}
			if base != "" {
				if o.Base, err = bundle.OpenWhole(base); err != nil {
					return err
				}
				defer o.Base.Close()
			}
			r, err := push.Run(cmd.Context(), o)
			if err != nil && cmd.Context().Err() != nil {
				return fault.Wrap(err, fault.Interrupted, "run the same command again: layers that the registry has are not sent again")
			}
			if err != nil {
				return err
			}
			display.Close()
			if *output == "json" {
				return printJSON(cmd.OutOrStdout(), r)
			}
			return printPushed(cmd.OutOrStdout(), r)
		},
	}
	f := cmd.Flags()
	f.StringVar(&base, "base", "", "bundle `FILE` that was the base of an additional bundle")
	f.StringArrayVar(&mirrorFlags, "mirror", nil, "HOST=URL: send requests for HOST to URL (repeatable)")
	f.StringArrayVar(&cas, "registry-ca", nil, "trust the CA certificates in this FILE, or HOST=FILE, or a directory as docker's certs.d (repeatable)")
	f.StringVar(&auth, "registry-auth", "", "`FILE` with the credentials, in the format of docker's config.json")
	output = addOutputFlag(cmd)
	return cmd
}

// pushClient returns a client for registries that has no cache.
func pushClient(display *progress.Display, mirrorFlags, cas []string, auth string) (*registry.Client, error) {
	list, err := parseMirrors(mirrorFlags)
	if err != nil {
		return nil, err
	}
	trust, err := fetch.NewTrust(cas)
	if err != nil {
		return nil, err
	}
	mirrors, err := fetch.NewMirrors(trust.Transport(), list)
	if err != nil {
		return nil, err
	}
	f := fetch.New(nil, mirrors)
	f.Note = func(s string) { display.Printf("  %s\n", s) }
	c := registry.New(f, mirrors, "")
	c.AuthFile = auth
	return c, nil
}

// printPushed lists the images in the registry.
func printPushed(out io.Writer, r *push.Result) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "IMAGE\tDIGEST\n")
	others := 0
	for _, i := range r.Images {
		fmt.Fprintf(w, "%s\t%s\n", i.Pushed, i.Digest)
		if i.Digest != i.Upstream {
			others++
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "\n%d images; layers: %d sent (%s), %d were in the registry\n", len(r.Images), r.Sent, progress.Bytes(r.Bytes), r.Present)
	if others > 0 {
		fmt.Fprintf(out, "The registry refused %d indexes without the manifests of other platforms. Their tags point to the\nmanifest of this platform, and the digest of upstream's index is not in the registry:\n", others)
		for _, i := range r.Images {
			if i.Digest != i.Upstream {
				fmt.Fprintf(out, "  %s: %s\n", i.Reference, i.Upstream)
			}
		}
	}
	return nil
}
