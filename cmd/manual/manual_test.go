package manual

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"airlift/internal/fault"
)

// Every page of the repository is in the manual, with a title and a text.
func TestPages(t *testing.T) {
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range append(files, "../../README.md", "../../CHANGELOG.md", "../../bundle/FORMAT.md") {
		p, err := Find(strings.TrimPrefix(file, "../../"))
		if err != nil {
			t.Error(err)
			continue
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(data), "# "+p.Title+"\n") || p.Title == "" {
			t.Errorf("%s has the title %q", file, p.Title)
		}
		text := p.Text()
		for _, left := range []string{"<!-- run", "<!-- hosts", "```"} {
			if strings.Contains(text, left) {
				t.Errorf("%s: %q is in the text", file, left)
			}
		}
		// Nothing is lost: each word of the source, outside of links and comments, is in the text.
		for _, word := range regexp.MustCompile(`[A-Za-z]{5,}`).FindAllString(link.ReplaceAllString(comment.ReplaceAllString(fenceLine.ReplaceAllString(folded.ReplaceAllString(string(data), ""), ""), ""), "$1"), -1) {
			if !strings.Contains(text, word) {
				t.Errorf("%s: %q is missing", file, word)
			}
		}
	}
}

var fenceLine = regexp.MustCompile("(?m)^ *```.*$")

func TestUnknownPage(t *testing.T) {
	_, err := Find("backups")
	if fault.ExitCode(err) != fault.Usage || fault.Hint(err) != "did you mean backup?" {
		t.Errorf("%v (hint %q)", err, fault.Hint(err))
	}
}

// TestContents: the list in README is that of the command docs.
func TestContents(t *testing.T) {
	data, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(data), "## Documentation\n\n"+Contents()) {
		t.Errorf("the section Documentation of README.md must be:\n%s", Contents())
	}
	if first := Pages()[1].Name(); first != "multi-host" {
		t.Errorf("after README, the first page is %s", first)
	}
	names := map[string]bool{}
	for _, p := range Pages() {
		if names[p.Name()] {
			t.Errorf("%s is in the contents twice", p.Name())
		}
		names[p.Name()] = true
	}
}

// TestHTML: the page refers to nothing outside, and each of its own links leads somewhere.
func TestHTML(t *testing.T) {
	var page bytes.Buffer
	if err := HTML(&page); err != nil {
		t.Fatal(err)
	}
	ids := map[string]bool{}
	for _, m := range anchor.FindAllStringSubmatch(page.String(), -1) {
		if ids[m[1]] {
			t.Errorf("two elements have the id %q", m[1])
		}
		ids[m[1]] = true
	}
	links := 0
	for _, m := range href.FindAllStringSubmatch(page.String(), -1) {
		if id, ok := strings.CutPrefix(m[1], "#"); ok {
			links++
			if !ids[id] {
				t.Errorf("no element has the id %q", id)
			}
		}
	}
	if links < 100 {
		t.Errorf("only %d links", links)
	}
	for _, needed := range []string{`name="viewport"`, `default-src 'none'`, "prefers-color-scheme:dark", `<span class="k">--`, `<div class="table"><table>`, "On this page"} {
		if !strings.Contains(page.String(), needed) {
			t.Errorf("the page has no %s", needed)
		}
	}
	for _, loads := range []string{"<script ", "<img", " src=", "@import", "url(", "href=\"//"} {
		if strings.Contains(page.String(), loads) {
			t.Errorf("the page has %s", loads)
		}
	}
}

func TestCommand(t *testing.T) {
	run := func(args ...string) (string, map[string]string, error) {
		var out bytes.Buffer
		written := map[string]string{}
		cmd := Command(func(path string, data []byte) error {
			written[path] = string(data)
			return nil
		})
		cmd.SetOut(&out)
		cmd.SetErr(&out)
		cmd.SetArgs(args)
		err := cmd.Execute()
		return out.String(), written, err
	}
	if out, _, err := run(); err != nil || !strings.Contains(out, "backup ") || !strings.Contains(out, "docs PAGE") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, _, err := run("docs/backup.md"); err != nil || !strings.HasPrefix(out, "# How do I back up") {
		t.Errorf("%v\n%.100s", err, out)
	}
	if _, written, err := run("--html", "a.html"); err != nil || !strings.HasPrefix(written["a.html"], "<!DOCTYPE html>") {
		t.Errorf("%v, %d files", err, len(written))
	}
	if out, written, err := run("--html", "-"); err != nil || !strings.HasSuffix(out, "</html>\n") || len(written) > 0 {
		t.Errorf("%v, %d files", err, len(written))
	}
	if out, _, err := run("--search", "restore", "etcd"); err != nil || !strings.HasPrefix(out, "recipes: Restore etcd\n    ") || !strings.Contains(out, "To read one: docs recipes") {
		t.Errorf("%v\n%s", err, out)
	}
	if _, _, err := run("--search", "kubeconfg"); fault.ExitCode(err) != fault.Failure || fault.Hint(err) != "did you mean kubeconfig?" {
		t.Errorf("%v (hint %q)", err, fault.Hint(err))
	}
	if _, _, err := run("--html", "a.html", "backup"); fault.ExitCode(err) != fault.Usage {
		t.Error(err)
	}
}
