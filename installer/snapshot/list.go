package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"filippo.io/age"

	"airlift/installer/backup/elsewhere"
	"airlift/installer/backup/target"
	"airlift/installer/host"
	"airlift/installer/host/ledger"
	"airlift/installer/node"
	"airlift/internal/fault"
	"airlift/internal/space"
)

// A Listed is a backup at a target or in a directory, as its name has it.
type Listed struct {
	Name          string    `json:"name"`
	Time          time.Time `json:"time"`
	Size          int64     `json:"size"`
	Node          string    `json:"node"`
	CA            string    `json:"ca"` // the first digits of the hash of the CA
	EtcdClusterID string    `json:"etcdClusterID"`
	Revision      int64     `json:"revision"`
}

// A Listing has the backups at a place, the newest first.
type Listing struct {
	Place   string   `json:"place"`
	Backups []Listed `json:"backups"`
}

// List lists the backups that timers have written to a directory, or that were sent to a target.
func List(ctx context.Context, place, config string) (*Listing, error) {
	l := &Listing{Place: place, Backups: []Listed{}}
	var items []elsewhere.Item
	if !target.IsURL(place) {
		files, err := os.ReadDir(place)
		if err != nil {
			return nil, fault.New(fault.Usage, "listing backups: %w", err).Hint("name a directory with backups, or the URL of a target")
		}
		for _, f := range files {
			if info, err := f.Info(); err == nil && info.Mode().IsRegular() {
				items = append(items, elsewhere.Item{Name: f.Name(), Size: info.Size()})
			}
		}
	} else if err := reach(ctx, place, config, func(s *elsewhere.Store, _ string) (err error) {
		l.Place = s.Address.String()
		items, err = s.List(ctx)
		return err
	}); err != nil {
		return nil, err
	}
	l.Backups = listed(items)
	return l, nil
}

// listed returns the backups among files.
func listed(items []elsewhere.Item) []Listed {
	list := []Listed{}
	for _, i := range items {
		n, ok := readName(i.Name)
		at, err := time.Parse(TimeFormat, n.time)
		if ok && err == nil {
			list = append(list, Listed{i.Name, at, i.Size, n.Node, n.CA, n.cluster, n.revision})
		}
	}
	slices.SortFunc(list, func(a, b Listed) int {
		return -strings.Compare(a.Time.Format(TimeFormat)+a.Name, b.Time.Format(TimeFormat)+b.Name)
	})
	return list
}

// Write prints the list for people.
func (l *Listing) Write(out io.Writer) error {
	if len(l.Backups) == 0 {
		_, err := fmt.Fprintf(out, "%s has no backups that 'etcd snapshot' named.\n", l.Place)
		return err
	}
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "TIME\tNODE\tCA\tETCD CLUSTER\tREVISION\tSIZE\tNAME")
	for _, b := range l.Backups {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%d\t%.1f MB\t%s\n", b.Time.Format(time.RFC3339), b.Node, b.CA, b.EtcdClusterID, b.Revision, float64(b.Size)/1e6, b.Name)
	}
	return table.Flush()
}

// reach connects to the target of a URL. name is the backup that the URL names, "" for none.
func reach(ctx context.Context, url, config string, do func(s *elsewhere.Store, name string) error) error {
	a, err := target.ParseURL(url)
	if err != nil {
		return err
	}
	name := path.Base(a.Path)
	if _, ok := readName(name); ok {
		if a.Path = path.Dir(a.Path); a.Path == "." {
			a.Path = ""
		}
	} else {
		name = ""
	}
	c, err := target.Load(config, a)
	if err != nil {
		return err
	}
	s, err := elsewhere.Open(ctx, a, c)
	if err != nil {
		return err
	}
	defer s.Close()
	return do(s, name)
}

// checkName refuses a backup with another name than it was written with: who can write to the target could give an old backup the
// name of a new one.
func (f *File) checkName(l Listed) error {
	m := f.Manifest
	wrote := scheduledName(scheduledPrefix+shortHash(m.CACertHash)+"-", m, true)
	if strings.TrimSuffix(l.Name, ".age") == strings.TrimSuffix(wrote, ".age") {
		return nil
	}
	return fault.New(fault.Bundle, "the backup %s was written as %s: someone has renamed or replaced it", f.Path, wrote).
		Hint("use another backup; or copy this one to this host, and restore the file, if you know why it has another name")
}

// choose returns the backup with a name without a list, or the newest one of the list.
func choose(ctx context.Context, s *elsewhere.Store, name string, hashes []string) (Listed, error) {
	at := s.Address.String()
	if name == "" {
		items, err := s.List(ctx)
		if err != nil {
			return Listed{}, err
		}
		return newest(at, listed(items), hashes)
	}
	item, err := s.Find(ctx, name)
	list := listed([]elsewhere.Item{item})
	if errors.Is(err, elsewhere.ErrMissing) || err == nil && len(list) == 0 {
		return Listed{}, fault.New(fault.Usage, "%s has no backup %s", at, name).Hint("see what is there: ./install etcd list " + at + " --target-config FILE")
	}
	if err != nil {
		return Listed{}, err
	}
	return list[0], nil
}

// OpenElsewhere copies a backup of a target to an unnamed file of this host, and opens it: the one that the URL names, the one of an
// interrupted restore, or the newest one with one of these CA hashes. The caller must close it.
func OpenElsewhere(ctx context.Context, h *host.Host, url, config string, hashes []string, identities []age.Identity) (f *File, err error) {
	err = reach(ctx, url, config, func(s *elsewhere.Store, name string) error {
		at := s.Address.String()
		if name == "" {
			mark, err := node.ReadRestoreMark(h)
			if err != nil {
				return err
			}
			if mark != nil { // others may have sent newer ones since
				if rest, ok := strings.CutPrefix(mark.File, at+"/"); ok && !strings.Contains(rest, "/") {
					name = rest
				}
			}
		}
		one, err := choose(ctx, s, name, hashes)
		if err != nil {
			return err
		}
		if err := space.Check(h.Path(path.Dir(ledger.StateDir)), "the backup", one.Size); err != nil {
			return fault.Wrap(err, fault.Preflight, "free some space in "+path.Dir(ledger.StateDir))
		}
		scratch, err := h.CreateScratch()
		if err != nil {
			return fmt.Errorf("writing to %s: %w", ledger.StateDir, err)
		}
		if err = s.Fetch(ctx, one.Name, one.Size, scratch); err == nil {
			f, err = openAt(ctx, target.Within(at, one.Name), scratch.Name(), identities)
		}
		if err == nil {
			err = f.checkName(one)
		}
		if err != nil {
			scratch.Close()
			return space.Explain(ledger.StateDir, err)
		}
		f.close = scratch.Close
		return nil
	})
	return f, err
}
