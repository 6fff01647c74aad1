package secrets

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"airlift/installer/workflow"
)

// A Status shows how Secrets are stored, and which keys the control planes have. It has no key, only names.
type Status struct {
	// Writes is how the API server of this host stores Secrets: "secretbox airlift-1-7f00aa12", or "not encrypted".
	Writes string `json:"writes"`
	// Reads are the names of all keys with which it decrypts.
	Reads []string `json:"reads"`
	// Retired are the names of former keys that its file keeps.
	Retired []string `json:"retired,omitempty"`
	// File is the sha256 of its file.
	File string `json:"file,omitempty"`
	// Servers are the API servers of the cluster.
	Servers []Server `json:"servers"`
	// Behind are the control planes that do not have the keys of this host.
	Behind []string `json:"behind,omitempty"`
	// Secrets is how many Secrets etcd has, and Stored how many of them each key has encrypted.
	Secrets int            `json:"secrets"`
	Stored  map[string]int `json:"stored"`
	// Stale are the Secrets that are stored in another way than Writes, and Unreadable the Secrets that cannot be read, with the reason.
	Stale      []string `json:"stale,omitempty"`
	Unreadable []string `json:"unreadable,omitempty"`
}

// Status reads the values in etcd, and asks each API server.
func (c *ControlPlane) Status(ctx context.Context) (*Status, error) {
	k, err := c.Keys()
	if err != nil {
		return nil, err
	}
	s := &Status{Writes: Plain, Reads: []string{}}
	if k != nil {
		if k.Writes() != "" {
			s.Writes = "secretbox " + k.Active[0].Name
		}
		s.Reads, s.Retired = append(s.Reads, names(k.Active)...), names(k.Retired)
		data, err := c.read()
		if err != nil {
			return nil, err
		}
		s.File = sha256Of(data)
	}
	if s.Servers, err = c.servers(ctx); err != nil {
		return nil, err
	}
	if s.Behind, err = c.Behind(ctx); err != nil {
		return nil, err
	}
	scan := NewScan(k)
	if err := c.Walk(ctx, scan.Add); err != nil {
		return nil, err
	}
	s.Secrets, s.Stored, s.Stale, s.Unreadable = scan.Total, scan.By, scan.Stale, scan.Unreadable
	return s, nil
}

func names(list []Key) (names []string) {
	for _, k := range list {
		names = append(names, k.Name)
	}
	return names
}

// Write prints the status for people.
func (s *Status) Write(out io.Writer) error {
	fmt.Fprintf(out, "This API server writes Secrets: %s\n", s.Writes)
	if len(s.Reads) > 1 {
		fmt.Fprintf(out, "It also reads: %s\n", some(s.Reads[1:]))
	}
	fmt.Fprintln(out)
	t := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "API SERVER\tKEYS OF THIS HOST")
	for _, one := range s.Servers {
		state := "not reported by this version"
		switch {
		case one.Error != "":
			state = one.Error
		case one.File != "" && one.File == s.File:
			state = "yes"
		case one.File != "":
			state = "no"
		}
		fmt.Fprintf(t, "%s\t%s\n", one.Address, state)
	}
	_ = t.Flush() // a lost output cancels the command
	if len(s.Behind) > 0 {
		fmt.Fprintf(out, "\nWithout the keys of this host:\n  - %s\n", some(s.Behind))
	}
	fmt.Fprintf(out, "\n%s in etcd:\n", workflow.Count(s.Secrets, "Secret"))
	scan := Scan{By: s.Stored}
	for _, label := range scan.Labels() {
		fmt.Fprintf(out, "  %6d  %s\n", s.Stored[label], label)
	}
	if len(s.Stale) == 0 {
		fmt.Fprintln(out, "  100 % are stored as this API server writes them")
	} else {
		fmt.Fprintf(out, "\n%s stored in another way:\n  - %s\n", workflow.Count(len(s.Stale), "Secret"), some(s.Stale))
	}
	if len(s.Unreadable) > 0 {
		fmt.Fprintf(out, "\n%s cannot be read:\n  - %s\n", workflow.Count(len(s.Unreadable), "Secret"), some(s.Unreadable))
	}
	return nil
}
