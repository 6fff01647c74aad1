package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"airlift/builder/scan"
	"airlift/bundle"
	"airlift/internal/atomicfile"
	"airlift/internal/fault"
	"airlift/internal/progress"
)

func newScanCmd() *cobra.Command {
	var databases, vex []string
	var page, failOn, base string
	var output *outputFormat
	cmd := &cobra.Command{
		Use:   "scan FILE --db PATH",
		Short: "List the known vulnerabilities of the software in a bundle, without a network",
		Long: `List the known vulnerabilities of the software in a bundle, without a network: of Go modules
and Go itself in all binaries, and of the packages of Debian, Ubuntu, distroless and Alpine in
the images. Each has its severity, the places that have it, and the version that fixes it.

--db is a database in OSV's format that was carried in: a file all.zip, or a directory with
such files or with unpacked records. It can be repeated. A bundle of Kubernetes needs Go,
Debian and Alpine. scan prints the date of the newest record, and warns if it is older than
14 days. A database that is missing is an error.

--vex is a document of OpenVEX 0.2.0, which states for example that a package is not affected,
and why. It can be repeated.

--fail-on ends with exit code 10 if a vulnerability is at least that severe, unless VEX closes
it. One of unknown severity counts as the highest.

--base compares with an older bundle: what FILE fixes, and what is new in it.`,
		Example: `  bundle scan install --db osv
  bundle scan install --db Debian/all.zip --db Go/all.zip --db Alpine/all.zip --fail-on high
  bundle scan install --db osv --base install.old --vex site.vex.json --html report.html`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(databases) == 0 {
				return fault.New(fault.Usage, "--db is required").Hint("carry in the databases of OSV, and give their directory: see 'bundle docs scan'")
			}
			least := scan.Level("")
			if failOn != "" {
				var err error
				if least, err = scan.ParseLevel(failOn); err != nil {
					return err
				}
			}
			if page != "" {
				if err := bundle.KeepBundle(page); err != nil {
					return err
				}
			}
			display := progress.New(cmd.ErrOrStderr())
			defer display.Close()
			file, err := softwareOf(cmd.Context(), display, args[0])
			if err != nil {
				return err
			}
			o := scan.Options{Databases: databases, VEX: vex, Now: time.Now()}
			if base != "" {
				older, err := softwareOf(cmd.Context(), display, base)
				if err != nil {
					return err
				}
				o.Base = &older
			}
			r, err := scan.Scan(cmd.Context(), file, o)
			if err != nil {
				return err
			}
			display.Close()
			for _, w := range r.Warnings {
				fmt.Fprintf(cmd.ErrOrStderr(), "WARNING: %s\n", fault.Printable(w))
			}
			if page != "" {
				if err := atomicfile.Write(page, r.HTML(), 0o644); err != nil {
					return err
				}
			}
			if *output == "json" {
				err = printJSON(cmd.OutOrStdout(), r)
			} else {
				err = r.WriteText(cmd.OutOrStdout())
			}
			if err != nil || failOn == "" {
				return err
			}
			if n := len(r.Worst(least)); n > 0 {
				return fault.New(fault.Vulnerable, "%d vulnerabilities are %s or worse, or of unknown severity", n, least).Hint("build a newer bundle, or close those without effect with --vex")
			}
			return nil
		},
	}
	output = addOutputFlag(cmd)
	cmd.Flags().StringArrayVar(&databases, "db", nil, "database of OSV: a zip file or a directory (can be repeated)")
	cmd.Flags().StringArrayVar(&vex, "vex", nil, "OpenVEX document about the packages (can be repeated)")
	cmd.Flags().StringVar(&page, "html", "", "also write the report to this file, as one HTML page")
	cmd.Flags().StringVar(&failOn, "fail-on", "", `exit code 10 from this severity on: "low", "medium", "high" or "critical"`)
	cmd.Flags().StringVar(&base, "base", "", "older bundle to compare with")
	complete(cmd, "fail-on", scan.Levels())
	return cmd
}

// softwareOf reads the software in a bundle from its contents, which the list in the bundle may not match.
func softwareOf(ctx context.Context, display *progress.Display, path string) (file scan.File, err error) {
	f, err := bundle.OpenWhole(path)
	if err != nil {
		return file, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	c, err := listContents(ctx, display, f)
	return scan.File{Path: path, Contents: c}, err
}
