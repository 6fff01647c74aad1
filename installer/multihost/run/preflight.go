package run

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"

	"airlift/installer/multihost/plan"
	"airlift/installer/multihost/remote"
	"airlift/internal/fault"
)

// A Finding is what a preflight check of a host found.
type Finding struct {
	Host    string `json:"host"`
	Name    string `json:"name"` // for ignorePreflightErrors; "" cannot be ignored
	Message string `json:"message"`
	Fix     string `json:"fix,omitempty"`
	Warning bool   `json:"warning,omitempty"`
	Minor   bool   `json:"minor,omitempty"`
}

// Preflight checks the driver's file, if a host needs the whole one, and runs all checks on the hosts that the plan makes
// nodes. It changes nothing. The findings are in the order of cluster.yaml.
func (s *Site) Preflight(ctx context.Context, p *plan.Plan) ([]Finding, error) {
	r := &Run{Site: s, Plan: p}
	if slices.ContainsFunc(actions(p), r.needsWhole) {
		if err := errors.Join(s.File.Bundle.NeedsWhole(), s.File.Bundle.Check(ctx, nil)); err != nil {
			return nil, err
		}
	}
	verbs := map[string]string{}
	for _, a := range actions(p) {
		if a.Verb == plan.Init || a.Verb == plan.Join {
			verbs[a.Host] = a.Verb
		}
	}
	hosts := s.filter(func(h *Host) bool { return verbs[h.Name] != "" })
	found, _ := Ask(ctx, s, "preflight", hosts, func(ctx context.Context, h *Host) ([]Finding, error) {
		list, err := h.preflight(ctx, verbs[h.Name])
		if err != nil { // does not hide the findings of others
			list = []Finding{{Host: h.Name, Message: "its checks failed: " + plan.Reason(h.Name, err), Fix: fault.Hint(err)}}
		}
		return list, err
	})
	var all []Finding
	for _, h := range hosts {
		all = append(all, found[h.Name]...)
	}
	return all, context.Cause(ctx)
}

// preflight runs the checks of a host for init or join.
func (h *Host) preflight(ctx context.Context, verb string) ([]Finding, error) {
	args := []string{h.installer, "preflight", verb, "-o", "json"}
	var document io.Reader
	var err error
	if verb == plan.Init {
		document, err = plan.InitDocuments(h.site.Cluster, h.Host, plan.Token{TTL: initTokenTTL})
		args = append(args, plan.InitFlags(h.site.Cluster)...)
	} else {
		document, err = plan.JoinDocument(h.site.Cluster, h.Host, nil)
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
