package secrets

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"airlift/installer/workflow"
	"airlift/internal/fault"
)

// A Cluster is the cluster that a Run changes, seen from a control plane.
type Cluster interface {
	// Keys returns what the API server of this host has, nil if it does not read File.
	Keys() (*Keys, error)
	// Behind returns the control planes that do not have the keys of this host, with the reason.
	Behind(ctx context.Context) ([]string, error)
	// Walk visits all Secrets in etcd.
	Walk(ctx context.Context, visit func(key string, value []byte)) error
	// Touch lets the API server of this host write Secrets again, NAMESPACE/NAME.
	Touch(ctx context.Context, names []string) error
	// Change gives keys to this host and to the cluster. It returns when the API server of this host uses them. A run that was
	// interrupted is continued with the same keys.
	Change(ctx context.Context, k *Keys) error
	// Resume finishes an interrupted Change, or forgets one that was undone.
	Resume(ctx context.Context) error
}

// Run goes as far as it can to a goal: until all is done, or until other control planes must follow.
func Run(ctx context.Context, c Cluster, g Goal, console *workflow.Console) error {
	if err := c.Resume(ctx); err != nil {
		return err
	}
	for removed := false; ; {
		k, err := c.Keys()
		if err != nil {
			return err
		}
		behind, err := c.Behind(ctx)
		if err != nil {
			return err
		}
		switch {
		case len(behind) > 0 && removed:
			console.Summary(last(behind))
			console.Close()
			return nil
		case len(behind) > 0:
			return follow(g, behind)
		}
		stage, err := k.Next(g)
		if err != nil {
			return err
		}
		done := stage.Next == nil || g == Rotate && removed
		if done || stage.Rewrite {
			scan, err := rewrite(ctx, c, k, console)
			if err != nil {
				return err
			}
			if done {
				console.Summary(summary(k, scan))
				console.Close()
				return nil
			}
		}
		console.Note("%s", stage.Doc)
		if err := c.Change(ctx, stage.Next); err != nil {
			return err
		}
		removed = stage.Rewrite
	}
}

const each = "on each of them, one after the other: ./install reconfigure node; one that is lost: ./install node remove NAME"

// last is the result of the last step. It is no reason to run the command again, which would begin another rotation.
func last(behind []string) string {
	return "All Secrets in etcd are stored as wanted. These control planes still have the former keys:\n  - " + strings.Join(behind, "\n  - ") +
		"\nTo remove them there, " + each + "\n"
}

// follow returns the outcome of a run that waits for other control planes.
func follow(g Goal, behind []string) error {
	return fault.New(fault.Waiting, "the next step needs these control planes:\n  - %s", strings.Join(behind, "\n  - ")).
		Hint(each + "; then here: ./install secrets " + string(g))
}

// rounds is how often rewrite looks for Secrets that are left. The first one suffices, unless an API server still writes with other keys.
const rounds = 5

// rewrite lets all Secrets be written again that other keys have written, and proves it: it reads all values of etcd.
func rewrite(ctx context.Context, c Cluster, k *Keys, console *workflow.Console) (*Scan, error) {
	for round := 0; ; round++ {
		scan := NewScan(k)
		if err := c.Walk(ctx, scan.Add); err != nil {
			return nil, err
		}
		switch {
		case len(scan.Unreadable) > 0:
			return nil, fault.New(fault.Failure, "%s cannot be read, so no key is removed:\n  - %s", workflow.Count(len(scan.Unreadable), "Secret"), some(scan.Unreadable)).
				Hint("restore the key that wrote it: " + File + " of another control plane, or of a backup; or delete these Secrets, and create them again")
		case len(scan.Stale) == 0:
			return scan, nil
		case round == rounds:
			return nil, fault.New(fault.Failure, "%s are written with other keys again and again:\n  - %s", workflow.Count(len(scan.Stale), "Secret"), some(scan.Stale)).
				Hint("find the control plane with another " + File + ", on each of them: ./install secrets status")
		}
		console.Note("%d of %s to write again", len(scan.Stale), workflow.Count(scan.Total, "Secret"))
		for page := range slices.Chunk(scan.Stale, pageSize) {
			if err := c.Touch(ctx, page); err != nil {
				return nil, err
			}
		}
	}
}

// pageSize is how many Secrets one Touch writes. A run that is interrupted goes on with the Secrets that are left.
const pageSize = 500

// some are the first lines of a list.
func some(list []string) string {
	const most = 10
	text := strings.Join(list[:min(most, len(list))], "\n  - ")
	if len(list) > most {
		text += fmt.Sprintf("\n  - and %d more", len(list)-most)
	}
	return text
}

func summary(k *Keys, s *Scan) string {
	if k.Writes() == "" {
		return fmt.Sprintf("Secrets are not encrypted: all %d in etcd were read.\n", s.Total)
	}
	text := fmt.Sprintf("All %d Secrets in etcd are encrypted with secretbox %s, 100 %%.\n", s.Total, k.Active[0].Name)
	if len(k.Retired) > 0 {
		text += "\nFormer keys stay in " + File + " as comments, for snapshots of etcd that were saved without it.\n"
	}
	return text
}
