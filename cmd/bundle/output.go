package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"airlift/internal/fault"
)

// An outputFormat is the value of the flag --output of commands that print a report.
type outputFormat string

// addOutputFlag adds --output. Any value but "text", "json" and "yaml" is a usage error. The command writes JSON, of which YAML is
// another form.
func addOutputFlag(cmd *cobra.Command) *outputFormat {
	o := outputFormat("text")
	cmd.Flags().StringVarP((*string)(&o), "output", "o", "text", `output format: "text", "json" or "yaml"`)
	complete(cmd, "output", []string{"text", "json", "yaml"})
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch o {
		case "text", "json":
			return run(cmd, args)
		case "yaml":
			var document bytes.Buffer
			out := cmd.OutOrStdout()
			cmd.SetOut(&document)
			o = "json"
			result := run(cmd, args)
			if document.Len() == 0 {
				return result
			}
			data, err := yaml.JSONToYAML(document.Bytes())
			if err == nil {
				_, err = out.Write(data)
			}
			return cmp.Or(result, err)
		}
		return fault.New(fault.Usage, "unknown output format %q", string(o)).Hint(fault.Choose(string(o), "the formats are", []string{"text", "json", "yaml"}))
	}
	return &o
}

// printJSON prints a report as indented JSON.
// bindOut adds --out, the name of the file that a command writes; -o is a format everywhere. As with compilers, --output is
// accepted, too.
func bindOut(f *pflag.FlagSet, to *string, value, usage string) {
	f.StringVar(to, "out", value, usage)
	f.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "output" {
			name = "out"
		}
		return pflag.NormalizedName(name)
	})
}

func printJSON(w io.Writer, report any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(report)
}
