package scan

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"airlift/internal/fault"
)

// document is an OpenVEX document with statements.
func document(statements ...fixture) fixture {
	return fixture{"@context": "https://openvex.dev/ns/v0.2.0", "@id": "https://example.com/vex/1", "author": "Site", "timestamp": "2026-11-20T10:00:00Z", "version": 1, "statements": statements}
}

func statement(id, status string, products ...fixture) fixture {
	return fixture{"vulnerability": fixture{"name": id}, "status": status, "products": products, "justification": "vulnerable_code_not_in_execute_path"}
}

func purls(ids ...string) (list []fixture) {
	for _, id := range ids {
		list = append(list, fixture{"@id": id})
	}
	return list
}

// TestVEX: which findings a statement closes follows from its products, as the table has them. The findings are one in the kubelet
// and one in an image.
func TestVEX(t *testing.T) {
	db := writeZip(t, t.TempDir()+"/all.zip", rec("GO-2026-1", "Go", "example.com/lib", "", fixture{"aliases": []string{"CVE-2026-1"}}))
	c := contents([]*Item{module("example.com/lib", "v1.2.3")})
	image := fixture{"@id": "pkg:oci/app@sha256%3Aaa"}
	within := func(p fixture, sub string) fixture {
		return fixture{"@id": p["@id"], "subcomponents": []fixture{{"@id": sub}}}
	}
	for name, test := range map[string]struct {
		statement fixture
		closed    string // of kubelet and image
	}{
		"the package":             {statement("CVE-2026-1", NotAffected, purls("pkg:golang/example.com/lib")...), "kubelet image"},
		"its version":             {statement("GO-2026-1", NotAffected, purls("pkg:golang/example.com/lib@v1.2.3")...), "kubelet image"},
		"its identifiers":         {statement("GO-2026-1", NotAffected, fixture{"@id": "urn:x", "identifiers": fixture{"purl": "pkg:golang/example.com/lib@1.2.3"}}), "kubelet image"},
		"another version":         {statement("CVE-2026-1", NotAffected, purls("pkg:golang/example.com/lib@v1.2.4")...), ""},
		"another package":         {statement("CVE-2026-1", NotAffected, purls("pkg:golang/example.com/library")...), ""},
		"another vulnerability":   {statement("CVE-2026-2", NotAffected, purls("pkg:golang/example.com/lib")...), ""},
		"the image":               {statement("CVE-2026-1", NotAffected, image), "image"},
		"the package in it":       {statement("CVE-2026-1", NotAffected, within(image, "pkg:golang/example.com/lib")), "image"},
		"another one in it":       {statement("CVE-2026-1", NotAffected, within(image, "pkg:golang/example.com/other")), ""},
		"the component":           {statement("CVE-2026-1", NotAffected, purls("pkg:generic/kubelet")...), "kubelet"},
		"the bundle":              {statement("CVE-2026-1", NotAffected, purls("pkg:generic/airlift-kubernetes@v1.37.1")...), "kubelet image"},
		"a qualifier":             {statement("CVE-2026-1", NotAffected, purls("pkg:oci/app?arch=arm64")...), ""},
		"fixed":                   {statement("CVE-2026-1", Fixed, image), "image"},
		"affected":                {statement("CVE-2026-1", Affected, image), ""},
		"under investigation":     {statement("CVE-2026-1", UnderInvestigation, image), ""},
		"by alias":                {fixture{"vulnerability": fixture{"name": "X-1", "aliases": []string{"CVE-2026-1"}}, "status": Fixed, "products": []fixture{image}}, "image"},
		"not a package URL":       {statement("CVE-2026-1", NotAffected, purls("https://example.com/app")...), ""},
		"the image of any digest": {statement("CVE-2026-1", NotAffected, purls("pkg:oci/app")...), "image"},
	} {
		r := scanned(t, c, Options{Databases: []string{db}, VEX: []string{writeFile(t, "vex.json", document(test.statement))}})
		var closed []string
		for _, f := range r.Vulnerabilities[0].Findings {
			if closes(f.Status) {
				closed = append(closed, map[bool]string{true: "kubelet", false: "image"}[strings.HasPrefix(f.Place, "kubelet")])
			}
		}
		if got := strings.Join(closed, " "); got != test.closed {
			t.Errorf("%s: closed %q, want %q", name, got, test.closed)
		}
		if open := len(r.Worst(Low)); (open == 0) != (len(closed) == 2) {
			t.Errorf("%s: %d open", name, open)
		}
		unused := slices.ContainsFunc(r.Warnings, func(w string) bool { return strings.Contains(w, "is about nothing in the bundle") })
		if answered := test.statement["status"] == Affected || test.statement["status"] == UnderInvestigation; unused != (test.closed == "" && !answered) {
			t.Errorf("%s: %q", name, r.Warnings)
		}
	}
}

// TestNewestStatement: the last of two statements holds, in whatever file and order they are.
func TestNewestStatement(t *testing.T) {
	db := writeZip(t, t.TempDir()+"/all.zip", rec("CVE-2026-1", "Go", "a", ""))
	old, is := statement("CVE-2026-1", NotAffected, purls("pkg:golang/a")...), statement("CVE-2026-1", Affected, purls("pkg:golang/a")...)
	is["timestamp"] = "2026-11-21T10:00:00Z"
	a, b := writeFile(t, "a.json", document(old)), writeFile(t, "b.json", document(is))
	for _, paths := range [][]string{{a, b}, {b, a}, {writeFile(t, "c.json", document(is, old))}} {
		r := scanned(t, contents([]*Item{module("a", "v1.0.0")}), Options{Databases: []string{db}, VEX: paths})
		if f := r.Vulnerabilities[0].Findings[0]; f.Status != Affected {
			t.Errorf("%q: %+v", paths, f)
		}
	}
	r := scanned(t, contents([]*Item{module("a", "v1.0.0")}), Options{Databases: []string{db}, VEX: []string{a}})
	var text strings.Builder
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Without effect:", "not_affected: vulnerable_code_not_in_execute_path, by Site", "0 vulnerabilities; 1 without effect"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
}

// TestWrongDocuments: a document that OpenVEX does not allow closes nothing.
func TestWrongDocuments(t *testing.T) {
	db := writeZip(t, t.TempDir()+"/all.zip", rec("CVE-2026-1", "Go", "a", ""))
	reasonless := statement("CVE-2026-1", NotAffected, purls("pkg:golang/a")...)
	delete(reasonless, "justification")
	unknown := statement("CVE-2026-1", NotAffected, purls("pkg:golang/a")...)
	unknown["justification"] = "trust_me"
	other := document()
	other["@context"] = "https://openvex.dev/ns/v9"
	for want, doc := range map[string]any{
		"needs a justification":           document(reasonless),
		`the justification is "trust_me"`: document(unknown),
		"names no product":                document(statement("CVE-2026-1", Fixed)),
		"names no vulnerability":          document(statement("", Fixed, purls("pkg:golang/a")...)),
		`the status is "good"`:            document(statement("CVE-2026-1", "good", purls("pkg:golang/a")...)),
		"its @context is":                 other,
		"invalid character":               []byte("no JSON"),
	} {
		path := writeFile(t, "vex.json", doc)
		_, err := Scan(t.Context(), File{"install", contents([]*Item{module("a", "v1.0.0")})}, Options{Databases: []string{db}, VEX: []string{path}, Now: now})
		if err == nil || !strings.Contains(err.Error(), want) || fault.ExitCode(err) != fault.Usage || !strings.Contains(err.Error(), fmt.Sprintf("%q", path)) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
