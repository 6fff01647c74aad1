package run

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"sync"

	"airlift/installer/multihost/plan"
	"airlift/installer/multihost/remote"
	"airlift/internal/fault"
)

// A Finding is what a preflight check of a host found.
type Finding struct {
	Host    string `json:"host"`
	Name    string `json:"name"` // for ignorePreflightErrors
	Message string `json:"message"`
	Fix     string `json:"fix,omitempty"`
	Warning bool   `json:"warning,omitempty"`
	Minor   bool   `json:"minor,omitempty"`
}

// Preflight checks the driver's file, if a host needs the whole one, and runs all checks on the hosts that the plan makes
// nodes. It changes nothing. The findings are in the order of cluster.yaml.
func (s *Site) Preflight(ctx context.Context, p *plan.Plan) ([]Finding, error) {
	if s.needsWhole(p) {
		if err := errors.Join(s.File.Bundle.NeedsWhole(), s.File.Bundle.Check(ctx, nil)); err != nil {
			return nil, err
		}
	}
	verbs := map[string]string{}
	for _, stage := range p.Stages {
		for _, a := range stage.Actions {
			if a.Verb == plan.Init || a.Verb == plan.Join {
				verbs[a.Host] = a.Verb
			}
		}
	}
	var hosts []*Host
	for _, h := range s.hosts {
		if verbs[h.Name] != "" {
			hosts = append(hosts, h)
		}
	}
	var mu sync.Mutex
	found := map[string][]Finding{}
	err := s.Each(ctx, "preflight", hosts, func(ctx context.Context, h *Host) error {
		list, err := h.preflight(ctx, verbs[h.Name])
		mu.Lock()
		defer mu.Unlock()
		found[h.Name] = list
		return err
	})
	var all []Finding
	for _, h := range hosts {
		all = append(all, found[h.Name]...)
	}
	return all, err
}

// needsWhole reports whether the plan copies the whole file to a host.
func (s *Site) needsWhole(p *plan.Plan) bool {
	leader := s.host(p.Leader)
	kept := s.Cluster.EmbeddedRegistry && leader != nil && leader.Facts != nil && leader.Facts.Cluster != nil && leader.Facts.Cluster.Keeps(s.File.Bundle.ID())
	for _, stage := range p.Stages {
		for _, a := range stage.Actions {
			if a.Verb == plan.Init || !kept && slices.Contains([]string{plan.Join, plan.Unpack, plan.Upgrade, plan.UpgradeApply, plan.Registry}, a.Verb) || !kept && a.Images {
				return true
			}
		}
	}
	return false
}

// preflight runs the checks of a host for init or join.
func (h *Host) preflight(ctx context.Context, verb string) ([]Finding, error) {
	args := []string{h.installer, "preflight", verb, "-o", "json"}
	var document io.Reader
	var err error
	if verb == plan.Init {
		document, err = h.initDocuments("")
		args = append(args, plan.InitFlags(h.site.Cluster)...)
	} else {
		document, err = h.joinDocument(nil)
		args = append(args, plan.JoinFlags(h.Host)...)
	}
	if err != nil {
		return nil, err
	}
	out, err := h.answer(ctx, workTime, document, args...)
	if exit := (*remote.ExitError)(nil); err != nil && (!errors.As(err, &exit) || exit.Code != int(fault.Preflight)) {
		return nil, err
	}
	var report struct{ Errors, Warnings []Finding }
	if json.Unmarshal(out, &report) != nil {
		if err == nil {
			err = errors.New("the preflight checks printed no report")
		}
		return nil, err
	}
	for i := range report.Errors {
		report.Errors[i].Host = h.Name
	}
	for i := range report.Warnings {
		report.Warnings[i].Host, report.Warnings[i].Warning = h.Name, true
	}
	return slices.Concat(report.Errors, report.Warnings), nil
}
