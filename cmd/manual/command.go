package manual

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"airlift/internal/childprocess"
	"airlift/internal/fault"
)

// Command returns the command docs. write writes a file that the user named.
func Command(write func(path string, data []byte) error) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "docs [PAGE]",
		Short: "Print a page of the manual",
		Long: `Print a page of the manual, which is in this file. Without a page, list the pages.

On a terminal, the command in PAGER shows the page, or else less or more.`,
		Args: cobra.MaximumNArgs(1),
		ValidArgsFunction: func(*cobra.Command, []string, string) (names []string, _ cobra.ShellCompDirective) {
			for _, p := range Pages() {
				names = append(names, p.Name()+"\t"+p.Title)
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case file != "" && len(args) > 0:
				return fault.New(fault.Usage, "--html and a page exclude each other").Hint("remove the page: --html writes all of them")
			case file != "":
				return writeHTML(cmd.OutOrStdout(), file, write)
			case len(args) == 0:
				return list(cmd.OutOrStdout(), cmd.CommandPath())
			}
			p, err := Find(args[0])
			if err != nil {
				return err
			}
			return show(cmd.Context(), cmd.OutOrStdout(), p.Text())
		},
	}
	cmd.Flags().StringVar(&file, "html", "", "write all pages as one HTML page to this file (- is the standard output)")
	return cmd
}

func writeHTML(out io.Writer, file string, write func(string, []byte) error) error {
	var page bytes.Buffer
	if err := HTML(&page); err != nil {
		return err
	}
	if file == "-" {
		_, err := out.Write(page.Bytes())
		return err
	}
	if err := write(file, page.Bytes()); err != nil {
		return fault.Wrap(fmt.Errorf("writing %s: %w", file, err), fault.Usage, "choose a file in an existing directory")
	}
	_, err := fmt.Fprintf(out, "wrote %s: open it in a browser; it needs no network\n", file)
	return err
}

func list(out io.Writer, command string) error {
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	pages := Pages()
	for _, book := range Books {
		for _, group := range book.Groups {
			fmt.Fprintf(table, "%s: %s\n", book.Title, group.Title)
			for _, p := range pages[:len(group.Pages)] {
				fmt.Fprintf(table, "  %s\t%s\n", p.Name(), strings.ReplaceAll(p.Title, "`", ""))
			}
			pages = pages[len(group.Pages):]
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "\nTo read one: %s PAGE. For a browser: %s --html FILE\n", command, command)
	return err
}

// show prints a text, on a terminal with a pager.
func show(ctx context.Context, out io.Writer, text string) error {
	if f, ok := out.(interface{ Fd() uintptr }); ok && term.IsTerminal(int(f.Fd())) {
		if pager := findPager(); pager != nil {
			c := childprocess.Command(ctx, pager[0], pager[1:]...)
			c.Stdin, c.Stdout, c.Stderr = strings.NewReader(text), os.Stdout, os.Stderr
			return c.Run()
		}
	}
	_, err := io.WriteString(out, text)
	return err
}

// findPager returns the command that shows a text on the terminal, nil if the host has none.
func findPager() []string {
	for _, candidate := range []string{os.Getenv("PAGER"), "less", "more"} {
		words := strings.Fields(candidate)
		if len(words) == 0 {
			continue
		}
		if _, err := exec.LookPath(words[0]); err == nil {
			return words
		}
	}
	return nil
}
