package main

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"airlift/builder"
	"airlift/internal/documents/problems"
	"airlift/internal/fault"
)

// validate checks what a build would read, without the network, and builds nothing.
func (b *buildFlags) validate(cmd *cobra.Command, locked bool) error {
	list, err := b.options(cmd)
	if err != nil {
		return err
	}
	found := problems.List{File: cmp.Or(b.file, "the command line")}
	if b.wrong != nil {
		for _, p := range b.wrong.Problems {
			p.File = strings.TrimPrefix(p.File, b.file)
			found.Problems = append(found.Problems, p)
		}
	}
	if err := b.useLock(list, locked); err != nil {
		found.Problems = append(found.Problems, b.located(err)...)
	}
	var last *builder.Validation
	for _, o := range list {
		o.Report = b.reporter
		last = builder.Validate(cmd.Context(), o, b.wrong == nil)
		if err := cmd.Context().Err(); err != nil {
			return err
		}
		for _, err := range last.Errors {
			found.Problems = append(found.Problems, b.located(err)...)
		}
	}
	if err := found.Err(); err != nil {
		return err
	}
	for _, w := range last.Warnings {
		b.reporter.Warning(w)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is valid\n%s\n", found.File, last)
	return err
}

var place = regexp.MustCompile(`^:([0-9]+): `)

// located returns an error of the build at its line in the file. One without a line may follow from what is wrong in the file.
func (b *buildFlags) located(err error) []problems.Problem {
	p := problems.Problem{Line: 1, Text: err.Error(), Hint: fault.Hint(err)}
	rest, ok := strings.CutPrefix(p.Text, b.file)
	if m := place.FindStringSubmatch(rest); ok && m != nil && b.file != "" {
		p.Line, _ = strconv.Atoi(m[1])
		p.Text = rest[len(m[0]):]
	} else if b.wrong != nil {
		return nil
	}
	return []problems.Problem{p}
}
