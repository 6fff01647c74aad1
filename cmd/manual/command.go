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
	var file, query string
	cmd := &cobra.Command{
		Use:   "docs [PAGE]",
		Short: "Print a page of the manual",
		Long: `Print a page of the manual, which is in this file. Without a page, list the pages.
With --search, print the headings below which the words occur, the best first.

On a terminal, the command in PAGER shows the page, or else less or more.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("search") { // its words need no quotes
				return nil
			}
			return cobra.MaximumNArgs(1)(cmd, args)
		},
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
			case cmd.Flags().Changed("search"):
				return find(cmd.OutOrStdout(), cmd.CommandPath(), strings.Join(append([]string{query}, args...), " "))
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
	cmd.Flags().StringVar(&query, "search", "", "print the headings below which these words occur")
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
				fmt.Fprintf(table, "  %s\t%s\n", p.Name(), p.plainTitle())
			}
			pages = pages[len(group.Pages):]
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "\nTo read one: %s PAGE. To search: %s --search WORDS. For a browser: %s --html FILE\n", command, command, command)
	return err
}

// shown is how many results a search prints.
const shown = 8

// find prints what a search finds.
func find(out io.Writer, command, query string) error {
	results, err := Search(query)
	if err != nil {
		return err
	}
	if len(results) == 0 {
		hint := "list the pages: " + command
		if near := known(query); near != "" {
			hint = "did you mean " + near + "?"
		}
		return fault.New(fault.Failure, "the manual has nothing about %q", query).Hint(hint)
	}
	width := min(terminalWidth(out), 120)
	for _, r := range results[:min(shown, len(results))] {
		title := r.Heading
		if r.Heading == r.Page.plainTitle() {
			title = r.Page.Short
		}
		fmt.Fprintf(out, "%s: %s\n", r.Page.Name(), title)
		if r.Line != "" {
			fmt.Fprintf(out, "    %s\n", cut(r.Line, width-4))
		}
	}
	_, err = fmt.Fprintf(out, "\nTo read one: %s %s\n", command, results[0].Page.Name())
	return err
}

// cut shortens a line to a width.
func cut(line string, width int) string {
	if r := []rune(line); len(r) > width {
		return string(r[:width-1]) + "…"
	}
	return line
}

// terminalWidth returns the columns of the terminal that out is, or a number for other outputs.
func terminalWidth(out io.Writer) int {
	if f, ok := out.(interface{ Fd() uintptr }); ok {
		if columns, _, err := term.GetSize(int(f.Fd())); err == nil && columns > 20 {
			return columns
		}
	}
	return 120
}

// show prints a text, on a terminal with a pager and not wider than it.
func show(ctx context.Context, out io.Writer, text string) error {
	if f, ok := out.(interface{ Fd() uintptr }); ok && term.IsTerminal(int(f.Fd())) {
		text = fit(text, terminalWidth(out))
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
