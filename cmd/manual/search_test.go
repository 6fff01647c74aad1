package manual

import (
	"slices"
	"strings"
	"testing"
)

// questions are what operators ask, in their words, and the section that answers.
var questions = []struct{ words, section string }{
	{"SAN", "recipes--change-the-sans-of-the-api-server"},
	{"replace", "recipes--replace-a-dead-control-plane"},
	{"kubeconfig", "recipes--a-kubeconfig-on-my-laptop"},
	{"scan", "recipes--scan-what-is-in-the-file"},
	{"maintenance", "recipes--maintenance-of-a-node"},
	{"disk", "recipes--how-much-disk-a-host-needs"},
	{"add worker", "recipes--add-a-worker"},
	{"renew certificates", "recipes--renew-certificates"},
	{"restore etcd", "recipes--restore-etcd"},
	{"upgrade", "recipes--upgrade"},
	{"how do I uninstall it", "recipes--uninstall"},
	{"add application", "recipes--add-an-application"},
	{"exit code", "install--exit-codes"},
	{"token expired", "troubleshooting--join-the-token-is-unknown-or-has-expired"},
	{"install deb packages offline", "packages--get-the-packages"},
	{"firewall ports", "install--3-check-the-hosts"},
	{"remove an application", "applications--remove-an-application"},
	{"undo apply", "applications--undo-an-apply"},
	{"write a seed drive", "seed--write-the-drive"},
}

// TestQuestions: each question finds its answer among the first three results. The HTML page has the same results
// (TestBrowser).
func TestQuestions(t *testing.T) {
	for _, q := range questions {
		results, err := Search(q.words)
		if err != nil {
			t.Fatal(err)
		}
		var found []string
		for _, r := range results[:min(5, len(results))] {
			found = append(found, r.Anchor)
		}
		if i := slices.Index(found, q.section); i < 0 || i > 2 {
			t.Errorf("%q: %s is not among the first three:\n\t%s", q.words, q.section, strings.Join(found, "\n\t"))
		}
	}
}

func TestWords(t *testing.T) {
	for text, want := range map[string]string{
		"How do I change the certSANs?": "change cert san",
		"nodes, node; pass":             "node pass",
		"v1.37.1 --data-dir":            "v1 37 1 data dir",
	} {
		if got := strings.Join(wanted(text), " "); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestNothingFound: a search for what the manual does not have finds nothing, and a typo its word.
func TestNothingFound(t *testing.T) {
	for query, want := range map[string]string{"maintenence": "maintenance", "kubeconfg": "kubeconfig", "the of": "", "qqqqqqqqqqqq": ""} {
		results, err := Search(query)
		if err != nil {
			t.Fatal(err)
		}
		if len(results) > 0 || known(query) != want {
			t.Errorf("%q: %d results, %q", query, len(results), known(query))
		}
	}
}
