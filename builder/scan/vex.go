package scan

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"airlift/builder/sbom"
	"airlift/internal/fault"
)

// A Statement is what a VEX document states about a vulnerability: https://github.com/openvex/spec
type Statement struct {
	Status        string    `json:"status"`
	Justification string    `json:"justification,omitempty"`
	Impact        string    `json:"impact,omitempty"` // in the author's words
	Action        string    `json:"action,omitempty"` // what to do
	Author        string    `json:"author"`
	Document      string    `json:"document"` // its file
	Time          time.Time `json:"time"`

	ids      []string // of the vulnerability
	products []product
	used     bool
}

type product struct {
	identifiers   []string
	subcomponents []product
}

// The statuses of OpenVEX, and two of a finding without a statement.
const (
	NotAffected        = "not_affected"
	Fixed              = "fixed"
	Affected           = "affected"
	UnderInvestigation = "under_investigation"
	Open               = "open"
	// Unimportant is Debian's word for a defect without effect on security.
	Unimportant = "unimportant"
)

var justifications = []string{"component_not_present", "vulnerable_code_not_present", "vulnerable_code_not_in_execute_path",
	"vulnerable_code_cannot_be_controlled_by_adversary", "inline_mitigations_already_exist"}

const (
	maxVEX         = 64 << 20
	openVEXContext = "https://openvex.dev/ns"
)

type component struct {
	ID            string            `json:"@id"`
	Identifiers   map[string]string `json:"identifiers"`
	Subcomponents []component       `json:"subcomponents"`
}

func (c component) product() (p product) {
	if c.ID != "" {
		p.identifiers = append(p.identifiers, c.ID)
	}
	if purl := c.Identifiers["purl"]; purl != "" {
		p.identifiers = append(p.identifiers, purl)
	}
	for _, s := range c.Subcomponents {
		p.subcomponents = append(p.subcomponents, s.product())
	}
	return p
}

// readVEX reads the statements of documents, the oldest first.
func readVEX(paths []string) (list []*Statement, err error) {
	for _, path := range paths {
		statements, err := readDocument(path)
		if err != nil {
			return nil, fault.Wrap(fmt.Errorf("reading the VEX document %q: %w", path, err), fault.Usage, fault.Hint(err))
		}
		list = append(list, statements...)
	}
	slices.SortStableFunc(list, func(a, b *Statement) int { return a.Time.Compare(b.Time) })
	return list, nil
}

func readDocument(path string) (list []*Statement, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxVEX+1))
	if err != nil {
		return nil, err
	}
	if len(content) > maxVEX {
		return nil, fmt.Errorf("it has more than %d bytes", maxVEX)
	}
	var doc struct {
		Context    string `json:"@context"`
		Author     string
		Timestamp  time.Time
		Statements []struct {
			Vulnerability struct {
				ID      string `json:"@id"`
				Name    string
				Aliases []string
			}
			Products      []component
			Status        string
			Justification string
			Impact        string     `json:"impact_statement"`
			Action        string     `json:"action_statement"`
			Timestamp     *time.Time `json:"timestamp"`
		}
	}
	if err := json.Unmarshal(content, &doc); err != nil {
		return nil, err
	}
	if doc.Context != openVEXContext && doc.Context != openVEXContext+"/v0.2.0" {
		return nil, fault.New(fault.Usage, "its @context is %q", doc.Context).Hint("convert it to OpenVEX 0.2.0: " + openVEXContext + "/v0.2.0")
	}
	for n, s := range doc.Statements {
		st := &Statement{Status: s.Status, Justification: s.Justification, Impact: s.Impact, Action: s.Action, Author: doc.Author, Document: path,
			Time: doc.Timestamp, ids: slices.DeleteFunc(append([]string{s.Vulnerability.Name, s.Vulnerability.ID}, s.Vulnerability.Aliases...), func(id string) bool { return id == "" })}
		if s.Timestamp != nil {
			st.Time = *s.Timestamp
		}
		for _, p := range s.Products {
			st.products = append(st.products, p.product())
		}
		if err := st.check(); err != nil {
			return nil, fmt.Errorf("statement %d about %q: %w", n+1, s.Vulnerability.Name, err)
		}
		list = append(list, st)
	}
	return list, nil
}

// check refuses a statement that OpenVEX does not allow: it would close a vulnerability without a reason.
func (s *Statement) check() error {
	switch {
	case len(s.ids) == 0:
		return fmt.Errorf("it names no vulnerability")
	case len(s.products) == 0 || slices.ContainsFunc(s.products, func(p product) bool { return len(p.identifiers) == 0 }):
		return fmt.Errorf("it names no product by @id or purl")
	case !slices.Contains([]string{NotAffected, Fixed, Affected, UnderInvestigation}, s.Status):
		return fmt.Errorf("the status is %q", s.Status)
	case s.Justification != "" && !slices.Contains(justifications, s.Justification):
		return fmt.Errorf("the justification is %q, and must be one of %s", s.Justification, strings.Join(justifications, ", "))
	case s.Status == NotAffected && s.Justification == "" && s.Impact == "":
		return fmt.Errorf("the status not_affected needs a justification or an impact_statement")
	}
	return nil
}

// about reports whether a statement is about the package at the end of a chain. A product is the package or something that
// contains it: a binary, an image, the bundle. Its subcomponents must be in the chain, too.
func (s *Statement) about(chain []*sbom.Item) bool {
	return slices.ContainsFunc(s.products, func(p product) bool {
		if !slices.ContainsFunc(chain, p.is) {
			return false
		}
		return len(p.subcomponents) == 0 || slices.ContainsFunc(p.subcomponents, func(sub product) bool { return slices.ContainsFunc(chain, sub.is) })
	})
}

func (p product) is(i *sbom.Item) bool {
	return i.PURL != "" && slices.ContainsFunc(p.identifiers, func(id string) bool { return matches(id, i.PURL) })
}

// matches reports whether a package URL names a package: a URL without a version is for all versions, and a qualifier that it
// does not have may be anything.
func matches(pattern, purl string) bool {
	a, ok := splitPURL(pattern)
	b, ok2 := splitPURL(purl)
	if !ok || !ok2 || a.name != b.name || a.version != "" && a.version != b.version {
		return false
	}
	for key := range a.qualifiers {
		if a.qualifiers.Get(key) != b.qualifiers.Get(key) {
			return false
		}
	}
	return true
}

type splitted struct {
	name, version string // name with type and namespace
	qualifiers    url.Values
}

func splitPURL(purl string) (s splitted, ok bool) {
	rest, ok := strings.CutPrefix(purl, "pkg:")
	if !ok {
		return s, false
	}
	rest, _, _ = strings.Cut(rest, "#")
	rest, query, _ := strings.Cut(rest, "?")
	var err, err2 error
	s.qualifiers, err = url.ParseQuery(query)
	name := rest
	if n := strings.LastIndexByte(rest, '@'); n > strings.LastIndexByte(rest, '/') {
		name = rest[:n]
		s.version, err2 = url.PathUnescape(rest[n+1:])
	}
	s.name, ok = strings.Trim(name, "/"), err == nil && err2 == nil
	if unescaped, err := url.PathUnescape(s.name); err == nil {
		s.name = unescaped
	}
	if kind, _, _ := strings.Cut(s.name, "/"); kind == "golang" {
		s.name, s.version = strings.ToLower(s.name), strings.TrimPrefix(s.version, "v")
	}
	return s, ok && s.name != ""
}

// closes reports whether a status means that nothing has to be done.
func closes(status string) bool {
	return slices.Contains([]string{NotAffected, Fixed, Unimportant}, status)
}

// text describes a statement for people.
func (s *Statement) text() string {
	return strings.Join(slices.DeleteFunc([]string{s.Justification, s.Impact, s.Action, "by " + cmp.Or(s.Author, "nobody")}, func(t string) bool { return t == "" }), ", ")
}
