package docs

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// TestLinks follows every relative link and anchor of all Markdown files.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	checked := 0
	for _, page := range markdown(t) {
		text, _ := withoutFences(read(t, page))
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			checked++
			to := page
			if target != "" {
				to = path.Join(path.Dir(page), target)
			}
			if _, err := os.Stat(filepath.Join(root, to)); err != nil {
				t.Errorf("%s: (%s): %v", page, m[1], err)
			} else if anchor != "" && !anchors(read(t, to))[anchor] {
				t.Errorf("%s: (%s): %s has no such heading", page, m[1], to)
			}
		}
	}
	if checked < 30 {
		t.Errorf("only %d links found", checked)
	}
}

// TestEveryPageIsReachable wants each page of docs to be linked from README, and
// its commands to be among those that are run.
func TestEveryPageIsReachable(t *testing.T) {
	readme := read(t, "README.md")
	for _, page := range markdown(t) {
		if dir, _ := path.Split(page); dir != "docs/" && page != "CONTRIBUTING.md" {
			continue
		}
		if !strings.Contains(readme, "]("+page+")") {
			t.Errorf("README.md has no link to %s", page)
		}
		if !strings.Contains(strings.Join(Pages, " "), page) {
			t.Errorf("the commands of %s are not run: add it to Pages", page)
		}
	}
}

// TestReadmeFitsOneScreen: what is longer belongs to a page of docs.
func TestReadmeFitsOneScreen(t *testing.T) {
	if lines := strings.Count(read(t, "README.md"), "\n"); lines > 120 {
		t.Errorf("README.md has %d lines", lines)
	}
}

// TestBlocks wants every command to be run somewhere, or to have a reason why not,
// and every target of make to exist.
func TestBlocks(t *testing.T) {
	pages, err := Read(root)
	if err != nil {
		t.Fatal(err)
	}
	makefile := read(t, "Makefile")
	target := regexp.MustCompile(`(?m)^make ([a-z0-9]+)`)
	run, not := 0, 0
	for _, p := range pages {
		for _, b := range p.Blocks {
			switch {
			case len(b.On) > 0:
				run++
			case b.NotBy != "":
				not++
				t.Logf("NOT RUN: %s:%d: %s", p.Path, b.Line, b.NotBy)
			}
			for _, m := range target.FindAllStringSubmatch(b.Text, -1) {
				if !strings.Contains(makefile, "\n"+m[1]+":") {
					t.Errorf("%s:%d: make has no target %s", p.Path, b.Line, m[1])
				}
			}
		}
	}
	t.Logf("%d blocks are run, %d are not", run, not)
	if run < 30 {
		t.Errorf("only %d blocks are run", run)
	}
}

// TestReadmeTasksAreRun wants each command of README's table of tasks to be run on
// some page, with the same flags at least.
func TestReadmeTasksAreRun(t *testing.T) {
	pages, err := Read(root)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, p := range pages {
		for _, b := range p.Blocks {
			if len(b.On) > 0 && b.File == "" {
				lines = append(lines, strings.Split(b.Text, "\n")...)
			}
		}
	}
	tasks := regexp.MustCompile("(?m)^\\|.*`(\\./install [^`]+)`.*\\|$").FindAllStringSubmatch(read(t, "README.md"), -1)
	if len(tasks) < 5 {
		t.Fatalf("README.md has %d tasks", len(tasks))
	}
	for _, task := range tasks {
		words := strings.Fields(task[1])
		if !slices.ContainsFunc(lines, func(line string) bool {
			has := strings.Fields(line)
			return !slices.ContainsFunc(words, func(w string) bool { return !slices.Contains(has, w) })
		}) {
			t.Errorf("no block runs %q", task[1])
		}
	}
}

// TestUnmarkedCommandsAreRefused: a command must not escape the tests.
func TestUnmarkedCommandsAreRefused(t *testing.T) {
	for name, text := range map[string]string{
		"no comment":    "\n```sh\n./install init\n```\n",
		"no language":   "<!-- run: host1 -->\n```\n./install init\n```\n",
		"no reason":     "<!-- not run: -->\n```sh\n./install init\n```\n",
		"unknown place": "<!-- run: laptop -->\n```sh\n./install init\n```\n",
		"indented":      "    ./install init\n",
		"yaml":          "```yaml\na: b\n```\n",
		"no end":        "<!-- run: host1 -->\n```sh\n./install init\n",
	} {
		if _, err := parse("page.md", text); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func markdown(t *testing.T) (pages []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); d.IsDir() && (name == "out" || name == "bin" || name == "testdata" || strings.HasPrefix(name, ".") && name != "..") {
			return fs.SkipDir
		}
		if strings.HasSuffix(file, ".md") {
			page, err := filepath.Rel(root, file)
			if err != nil {
				return err
			}
			pages = append(pages, filepath.ToSlash(page))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return pages
}

func read(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// withoutFences returns what is outside of fenced blocks, and the headings.
func withoutFences(text string) (prose string, headings []string) {
	fenced := false
	var b strings.Builder
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
		} else if !fenced {
			b.WriteString(line)
			if strings.HasPrefix(line, "#") {
				headings = append(headings, strings.TrimSpace(strings.TrimLeft(line, "#")))
			}
		}
	}
	return b.String(), headings
}

// anchors are those that GitHub makes of the headings.
func anchors(text string) map[string]bool {
	known := map[string]bool{}
	_, headings := withoutFences(text)
	for _, h := range headings {
		h = regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(h), "")
		known[strings.ReplaceAll(h, " ", "-")] = true
	}
	return known
}

// TestCallsInTexts: the calls that a text of the source names, up to their end.
func TestCallsInTexts(t *testing.T) {
	for text, want := range map[string]string{
		"on its host: ./install reset, or here: ./install status. Then": "install reset;install status",
		"repair it (bundle repair X --from COPY), or 'bundle verify X'": "bundle repair X --from COPY;bundle verify X",
		"a bundle file; \"bundle split\" writes parts; /install x":      "bundle split",
		"run `./install init phase runtime` first":                      "install init phase runtime",
	} {
		var got []string
		for _, c := range callsIn("", text) {
			got = append(got, strings.Join(append([]string{c.Name}, c.Args...), " "))
		}
		if is := strings.Join(got, ";"); is != want {
			t.Errorf("%q: %s, want %s", text, is, want)
		}
	}
	h := Hint{Text: "add --key K; or kubectl get --all x; see X --help, or (--force=false)"}
	if got := strings.Join(h.Flags(), " "); got != "key force" {
		t.Errorf("flags: %s", got)
	}
}
