package members

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"airlift/installer/etcd"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/workflow"
)

// A Status is the state of the cluster's etcd.
type Status struct {
	ClusterID string   `json:"clusterID"`
	Members   []Member `json:"members"`
	// LastBackup is the last backup of this host; nil if there is none.
	LastBackup *node.BackupRecord `json:"lastBackup"`
	// Departure is about the target of the timer or of the last backup; nil if there is none.
	Departure *node.Departure `json:"departure,omitempty"`
}

// A Member is the state of a member.
type Member struct {
	ID          string   `json:"id"`
	Name        string   `json:"name"`
	ClientURLs  []string `json:"clientURLs"`
	PeerURL     string   `json:"peerURL"`
	Healthy     bool     `json:"healthy"`
	Error       string   `json:"error,omitempty"`
	Leader      bool     `json:"leader"`
	Learner     bool     `json:"learner"`
	Version     string   `json:"version"`
	DBSize      int64    `json:"dbSize"`
	DBSizeInUse int64    `json:"dbSizeInUse"`
	Revision    int64    `json:"revision"`
	RaftTerm    uint64   `json:"raftTerm"`
	RaftIndex   uint64   `json:"raftIndex"`
	RaftApplied uint64   `json:"raftAppliedIndex"`
	Alarms      []string `json:"alarms"`
}

// ReadStatus reads the state of all members.
func ReadStatus(ctx context.Context, h *host.Host, console *workflow.Console) (*Status, error) {
	m := node.NewMachine(h, console)
	c, _, err := node.LocalEtcdClient(ctx, m)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	members, id, err := c.Status(ctx)
	if err != nil {
		return nil, err
	}
	s := &Status{ClusterID: fmt.Sprintf("%016x", id)}
	if s.LastBackup, err = node.LastBackup(h); err != nil {
		console.Warn("%v", err)
	}
	if s.Departure, err = node.Departed(h, s.LastBackup); err != nil {
		console.Warn("%v", err)
	}
	for _, m := range members {
		one := Member{
			ID: fmt.Sprintf("%016x", m.ID), Name: m.Name, ClientURLs: m.ClientURLs, PeerURL: m.PeerURL, Healthy: m.Err == nil,
			Leader: m.Leader, Learner: m.Learner, Version: m.Version, DBSize: m.DBSize, DBSizeInUse: m.DBInUse,
			Revision: m.Revision, RaftTerm: m.RaftTerm, RaftIndex: m.RaftIndex, RaftApplied: m.RaftApplied, Alarms: append([]string{}, m.Alarms...),
		}
		if m.Err != nil {
			one.Error = m.Err.Error()
		}
		s.Members = append(s.Members, one)
	}
	return s, nil
}

// Write prints the status for people.
func (s *Status) Write(out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "ID\tMEMBER\tROLE\tVERSION\tDB SIZE\tIN USE\tREVISION\tRAFT INDEX\tALARMS\tHEALTH")
	for _, m := range s.Members {
		role := "follower"
		switch {
		case m.Learner:
			role = "learner"
		case m.Leader:
			role = "leader"
		}
		health := "healthy"
		if m.Error != "" {
			health = m.Error
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d\t%s\t%s\n", m.ID, cmp.Or(m.Name, "-"), role, cmp.Or(m.Version, "-"), megabytes(m.DBSize), megabytes(m.DBSizeInUse),
			m.Revision, m.RaftIndex, cmp.Or(strings.Join(m.Alarms, ", "), "-"), health)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	switch b := s.LastBackup; {
	case b == nil:
		fmt.Fprintln(out, "\nLast backup on this host: none")
	case b.Error != "":
		fmt.Fprintf(out, "\nLast backup on this host: %s failed: %s\n", b.Time.Format(time.RFC3339), b.Error)
	default:
		fmt.Fprintf(out, "\nLast backup on this host: %s, %s, %s, %d keys, CA %s\n", b.Time.Format(time.RFC3339), b.Path, megabytes(b.Size), b.Snapshot.Keys, cmp.Or(b.CACertHash, "-"))
	}
	if d := s.Departure; d != nil && d.Target != "" {
		left := "none"
		if d.Left != nil {
			left = d.Left.Format(time.RFC3339) + ", " + d.Name
		}
		fmt.Fprintf(out, "Last backup that left this host for %s: %s; waiting here: %d\n", d.Target, left, d.Waiting)
	}
	if d := s.Departure; d != nil && d.Stranded > 0 {
		fmt.Fprintf(out, "Backups that no timer sends: %d, in %s\n", d.Stranded, host.WaitingBackups)
	}
	return nil
}

func megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }

// Defrag defragments the database of each member, the leader's last, so that at most one
// election follows. It stops if a member is not healthy. The alarm NOSPACE is removed at the end.
func Defrag(ctx context.Context, h *host.Host, console *workflow.Console) error {
	machine := node.NewMachine(h, console)
	c, _, err := node.LocalEtcdClient(ctx, machine)
	if err != nil {
		return err
	}
	defer c.Close()
	turn, err := node.TryTurn(ctx, machine, node.AdminConf, node.ShortPatience)
	if err != nil {
		return err
	}
	defer turn.End()
	members, _, err := c.Status(ctx)
	if err != nil {
		return err
	}
	slices.SortStableFunc(members, func(a, b etcd.Status) int {
		switch {
		case a.Leader == b.Leader:
			return 0
		case a.Leader:
			return 1
		}
		return -1
	})
	if err := c.CheckDefrag(ctx); err != nil {
		return err
	}
	for _, m := range members {
		if err := turn.Confirm(ctx); err != nil {
			return err
		}
		if err := c.Defrag(ctx, m.Member); err != nil {
			return err
		}
		if err := c.WaitDefragmented(ctx); err != nil {
			return fmt.Errorf("after the defragmentation of %s: %w", m.Member, err)
		}
		after, _, err := c.Status(ctx)
		if err != nil {
			return err
		}
		for _, a := range after {
			if a.ID == m.ID {
				fmt.Fprintf(console.Out, "%s: %s, %s before\n", m.Member, megabytes(a.DBSize), megabytes(m.DBSize))
			}
		}
	}
	disarmed, err := c.DisarmNoSpace(ctx)
	if disarmed {
		fmt.Fprintln(console.Out, "the alarm NOSPACE was removed: etcd accepts writes again")
	}
	return err
}
