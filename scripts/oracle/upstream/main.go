// Upstream is a test rig: it builds the real components of a Kubernetes release from their
// Go modules and serves them on loopback as the real sites do. README.md describes what it
// serves and how it differs.
package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"airlift/internal/fault"
	"airlift/scripts/fixtures/fakesigstore"
	"airlift/scripts/oracle/upstream/compile"
	"airlift/scripts/oracle/upstream/components"
	"airlift/scripts/oracle/upstream/image"
	"airlift/scripts/oracle/upstream/serve"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		if hint := fault.Hint(err); hint != "" {
			fmt.Fprintln(os.Stderr, "hint:", hint)
		}
	}
	os.Exit(int(fault.ExitCode(err)))
}

func command() *cobra.Command {
	root := &cobra.Command{
		Use:           "upstream",
		Short:         "Build the real upstream components and serve them on loopback",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.AddCommand(buildCommand(), serveCommand(), imagesCommand(), pathCommand())
	return root
}

func buildCommand() *cobra.Command {
	var versions, only []string
	var arches []string
	var conformance, addOns bool
	cmd := &cobra.Command{
		Use:   "build",
		Short: "Build components into the cache",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			recipes, err := selectRecipes(versions, arches, only, conformance, addOns)
			if err != nil {
				return err
			}
			cache, err := components.CacheDir()
			if err != nil {
				return err
			}
			b := &compile.Builder{Cache: cache, Log: os.Stderr}
			return b.Build(cmd.Context(), recipes)
		},
	}
	versionFlag(cmd, &versions)
	archFlag(cmd, &arches)
	conformanceFlag(cmd, &conformance)
	addOnsFlag(cmd, &addOns)
	cmd.Flags().StringSliceVar(&only, "only", nil, "build only these `components` (the name of a binary means its component)")
	return cmd
}

func serveCommand() *cobra.Command {
	var versions []string
	var conformance, addOns bool
	var arches []string
	var listen, mirrorsFile, accessLog, trustedRoot string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the components as the real sites do, until interrupted",
		Long: `Build missing components, then serve registry.k8s.io, ghcr.io, dl.k8s.io and
github.com on loopback until interrupted. When all sites are ready, the command
prints the flags for bundle build, one --mirror HOST=URL per line.

With --sign FILE, the sites also have the signatures of Kubernetes, made with temporary
keys, and the transparency log is served. The trusted root is written to FILE.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return serveReleases(cmd.Context(), cmd.OutOrStdout(), versions, arches, conformance, addOns, listen, mirrorsFile, accessLog, trustedRoot)
		},
	}
	versionFlag(cmd, &versions)
	archFlag(cmd, &arches)
	conformanceFlag(cmd, &conformance)
	addOnsFlag(cmd, &addOns)
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "loopback `address` of the first site; the others use the following ports, or free ports if the port is 0")
	cmd.Flags().StringVar(&mirrorsFile, "mirrors-file", "", "also write the flags to this `file`, atomically, when ready")
	cmd.Flags().StringVar(&accessLog, "access-log", "", "append one line per request to this `file`: method, host, path, status, bytes")
	cmd.Flags().StringVar(&trustedRoot, "sign", "", "also serve signatures, and write the trusted root to this `file`")
	return cmd
}

func serveReleases(ctx context.Context, out io.Writer, versions, arches []string, conformance, addOns bool, listen, mirrorsFile, accessLog, trustedRoot string) error {
	list, err := releases(versions, arches)
	if err != nil {
		return err
	}
	cache, err := components.CacheDir()
	if err != nil {
		return err
	}
	content, err := prepare(ctx, cache, list, conformance, addOns)
	if err != nil {
		return err
	}
	var log io.Writer
	if accessLog != "" {
		f, err := os.OpenFile(accessLog, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		defer f.Close()
		log = f
	}
	var flags strings.Builder
	if trustedRoot != "" {
		blobs, err := os.MkdirTemp("", "airlift-signatures-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(blobs)
		keys := fakesigstore.New(process{})
		if content, err = content.Signed(keys, blobs); err != nil {
			return err
		}
		if err := writeFile(trustedRoot, string(keys.TrustedRoot())); err != nil {
			return err
		}
		fmt.Fprintf(&flags, "--mirror %s\n--trusted-root %s\n", keys.Mirror(), trustedRoot)
	}
	server, err := serve.Start(listen, content, log)
	if err != nil {
		return err
	}
	for _, m := range server.Mirrors {
		fmt.Fprintf(&flags, "--mirror %s=%s\n", m.Host, m.URL)
	}
	if mirrorsFile != "" {
		if err := writeFile(mirrorsFile, flags.String()); err != nil {
			return err
		}
		defer os.Remove(mirrorsFile) // the servers end with this process
	}
	fmt.Fprint(out, flags.String())
	return server.Wait(ctx)
}

// process ends if the keys cannot be made. Its servers end with it.
type process struct{}

func (process) Helper()           {}
func (process) Cleanup(func())    {}
func (process) TempDir() string   { return os.TempDir() }
func (process) Fatal(args ...any) { panic(fmt.Sprint(args...)) }

// prepare builds missing components and collects what the sites serve.
func prepare(ctx context.Context, cache string, list [][]components.Release, conformance, addOns bool) (serve.Content, error) {
	images := &image.Builder{Cache: cache, Log: os.Stderr, AddOns: addOns}
	content := serve.Content{
		Manifests: make(map[string][]image.Manifest),
		Files:     make(map[string]map[string]serve.File),
		Blob:      images.Store().Blob,
	}
	for _, release := range list {
		for _, r := range release {
			b := &compile.Builder{Cache: cache, Log: os.Stderr}
			if err := b.Build(ctx, recipes(r, conformance, addOns)); err != nil {
				return content, err
			}
		}
		if conformance {
			var err error
			if images.TestImages, _, err = images.ListTestImages(ctx, release[0]); err != nil {
				return content, err
			}
		}
		manifests, err := images.Build(ctx, release...)
		if err != nil {
			return content, err
		}
		for host, list := range manifests {
			content.Manifests[host] = append(content.Manifests[host], list...)
		}
		files, err := serve.Files(cache, release...)
		if err != nil {
			return content, err
		}
		for host, list := range files {
			if content.Files[host] == nil {
				content.Files[host] = make(map[string]serve.File)
			}
			maps.Copy(content.Files[host], list)
		}
	}
	return content, nil
}

func writeFile(path, text string) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".writing-")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	defer tmp.Close()
	if _, err := tmp.WriteString(text); err != nil {
		return err
	}
	if err := tmp.Chmod(0o644); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}

func imagesCommand() *cobra.Command {
	var versions []string
	cmd := &cobra.Command{
		Use:   "images",
		Short: "Print the images of upstream's own tests that serve --conformance serves",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := releases(versions, []string{"amd64"})
			if err != nil {
				return err
			}
			cache, err := components.CacheDir()
			if err != nil {
				return err
			}
			for _, release := range list {
				images := &image.Builder{Cache: cache, Log: os.Stderr}
				made, _, err := images.ListTestImages(cmd.Context(), release[0])
				if err != nil {
					return err
				}
				for _, reference := range made {
					fmt.Fprintln(cmd.OutOrStdout(), reference)
				}
			}
			return nil
		},
	}
	versionFlag(cmd, &versions)
	return cmd
}

func pathCommand() *cobra.Command {
	var versions []string
	cmd := &cobra.Command{
		Use:   "path BINARY",
		Short: "Print the path of a built binary",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, v := range versions {
				path, err := components.Path(v, args[0])
				if err != nil {
					return err
				}
				fmt.Fprintln(cmd.OutOrStdout(), path)
			}
			return nil
		},
	}
	versionFlag(cmd, &versions)
	return cmd
}

func versionFlag(cmd *cobra.Command, versions *[]string) {
	cmd.Flags().StringSliceVar(versions, "version", []string{"v1.29.15"}, "Kubernetes `version` (v1.29.15) or minor (v1.29); may be repeated")
}

func conformanceFlag(cmd *cobra.Command, conformance *bool) {
	cmd.Flags().BoolVar(conformance, "conformance", false, "also upstream's own tests of clusters, and their images")
}

func addOnsFlag(cmd *cobra.Command, addOns *bool) {
	cmd.Flags().BoolVar(addOns, "add-ons", false, "also the optional add-ons of the catalog and kube-router, and their images")
}

func archFlag(cmd *cobra.Command, arches *[]string) {
	cmd.Flags().StringSliceVar(arches, "arch", []string{"amd64"}, "CPU `architectures` of the components: amd64, arm64, which is cross-compiled, or both")
}

// releases parses the values of --version and --arch. For each version, it returns the release for
// each architecture.
func releases(versions, arches []string) (list [][]components.Release, err error) {
	for _, v := range versions {
		var release []components.Release
		for _, arch := range arches {
			r, err := components.Find(v)
			if err == nil {
				r, err = r.For(arch)
			}
			if err != nil {
				return nil, fault.Wrap(err, fault.Usage, "")
			}
			release = append(release, r)
		}
		list = append(list, release)
	}
	return list, nil
}

// recipes lists the components of a release, with the components of upstream's tests if conformance
// is set, and with AddOnRecipes if addOns is set.
func recipes(r components.Release, conformance, addOns bool) []components.Recipe {
	list := r.Recipes()
	if addOns {
		list = append(list, r.AddOnRecipes()...)
	}
	if conformance {
		list = append(list, r.ConformanceRecipes()...)
	}
	return list
}

func selectRecipes(versions, arches, only []string, conformance, addOns bool) ([]components.Recipe, error) {
	list, err := releases(versions, arches)
	if err != nil {
		return nil, err
	}
	var selected []components.Recipe
	for _, r := range slices.Concat(list...) {
		if len(only) == 0 {
			selected = append(selected, recipes(r, conformance, addOns)...)
			continue
		}
		for _, name := range only {
			recipe, err := r.Recipe(name)
			if err != nil {
				return nil, fault.Wrap(err, fault.Usage, "")
			}
			selected = append(selected, recipe)
		}
	}
	return selected, nil
}
