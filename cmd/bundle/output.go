package main

import (
	"encoding/json"
	"io"

	"github.com/spf13/cobra"

	"airlift/internal/fault"
)

// An outputFormat is the value of the flag --output of commands that print a report.
type outputFormat string

// addOutputFlag adds --output. Any value but "text" and "json" is a usage error.
func addOutputFlag(cmd *cobra.Command) *outputFormat {
	o := outputFormat("text")
	cmd.Flags().StringVarP((*string)(&o), "output", "o", "text", `output format: "text" or "json"`)
	complete(cmd, "output", []string{"text", "json"})
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if o != "text" && o != "json" {
			return fault.New(fault.Usage, "unknown output format %q", string(o)).Hint("use --output text or --output json")
		}
		return run(cmd, args)
	}
	return &o
}

// printJSON prints a report as indented JSON.
func printJSON(w io.Writer, report any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(report)
}
