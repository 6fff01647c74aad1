package audit

import (
	"slices"
	"strings"
)

// An auditPolicy is the part of audit.k8s.io/v1 that decides about a level. The first rule that matches counts.
type auditPolicy struct {
	Kind  string `json:"kind"`
	Rules []struct {
		Level      string   `json:"level"`
		Users      []string `json:"users"`
		UserGroups []string `json:"userGroups"`
		Verbs      []string `json:"verbs"`
		Namespaces []string `json:"namespaces"`
		Resources  []struct {
			Group         string   `json:"group"`
			Resources     []string `json:"resources"`
			ResourceNames []string `json:"resourceNames"`
		} `json:"resources"`
		NonResourceURLs []string `json:"nonResourceURLs"`
	} `json:"rules"`
}

// A request is one of a person, who is in no special group.
type request struct{ verb, group, resource string }

// level is the level of a request in a namespace of users: None if no rule matches.
func (p *auditPolicy) level(r request) string {
	main, sub, isSub := strings.Cut(r.resource, "/")
	for _, rule := range p.Rules {
		matches := len(rule.Users) == 0 && (len(rule.UserGroups) == 0 || slices.Contains(rule.UserGroups, "system:authenticated")) &&
			(len(rule.Verbs) == 0 || slices.Contains(rule.Verbs, r.verb) || slices.Contains(rule.Verbs, "*")) && len(rule.Namespaces) == 0 && !(len(rule.NonResourceURLs) > 0 && len(rule.Resources) == 0)
		if matches && len(rule.Resources) > 0 {
			matches = false
			for _, of := range rule.Resources {
				if of.Group != r.group || len(of.ResourceNames) > 0 {
					continue
				}
				matches = matches || len(of.Resources) == 0 || slices.ContainsFunc(of.Resources, func(name string) bool {
					return name == "*" || name == r.resource || isSub && (name == main+"/*" || name == "*/"+sub)
				})
			}
		}
		if matches {
			return rule.Level
		}
	}
	return "None"
}

// recorded are requests that a policy must record, and whether their bodies have secrets: then only Metadata is right.
var recorded = []struct {
	request
	secret bool
}{
	{request{"get", "", "secrets"}, true}, {request{"list", "", "secrets"}, true}, {request{"create", "", "secrets"}, true}, {request{"update", "", "secrets"}, true}, {request{"patch", "", "secrets"}, true}, {request{"delete", "", "secrets"}, true},
	{request{"update", "", "configmaps"}, true}, {request{"create", "authentication.k8s.io", "tokenreviews"}, true},
	{request{"create", "", "serviceaccounts/token"}, true},
	{request{"create", "", "pods"}, false}, {request{"patch", "", "pods"}, false}, {request{"delete", "", "pods"}, false},
	{request{"create", "apps", "deployments"}, false}, {request{"patch", "apps", "deployments"}, false}, {request{"delete", "apps", "deployments"}, false},
	{request{"create", "", "pods/exec"}, false}, {request{"create", "", "pods/portforward"}, false}, {request{"get", "", "pods/proxy"}, false}, {request{"get", "", "services/proxy"}, false},
	{request{"create", "certificates.k8s.io", "certificatesigningrequests"}, false}, {request{"update", "certificates.k8s.io", "certificatesigningrequests/approval"}, false},
}

// gaps are what a policy does not record, or records with bodies that have secrets.
func (p *auditPolicy) gaps() (list []string) {
	for _, want := range recorded {
		name := want.verb + " " + want.resource
		switch level := p.level(want.request); {
		case level == "None" || level == "":
			list = append(list, name+" is not recorded")
		case want.secret && level != "Metadata":
			list = append(list, name+" is recorded with its content ("+level+")")
		}
	}
	return list
}

// readAuditPolicy reads the policy of the API server; the finding is for one that cannot be judged.
func (f *facts) readAuditPolicy() (*auditPolicy, finding) {
	out := flags(apiServer, func(_ *facts, v []value) bool { return v[0].text != "" }, nil, "audit-policy-file")(f)
	if out.verdict != Passed {
		return nil, out
	}
	p := &auditPolicy{}
	if err := f.document(apiServer, "audit-policy-file", p); err != nil {
		return nil, finding{verdict: Judge, found: out.found, reason: err.Error()}
	}
	return p, out
}

func hasAuditPolicy(f *facts) finding {
	p, out := f.readAuditPolicy()
	if p == nil {
		return out
	}
	if !slices.ContainsFunc(recorded, func(r struct {
		request
		secret bool
	}) bool {
		return p.level(r.request) != "None"
	}) {
		return finding{verdict: Failed, found: out.found + ", and the policy records nothing that matters"}
	}
	return out
}

func coveringAuditPolicy(f *facts) finding {
	p, out := f.readAuditPolicy()
	if p == nil {
		return out
	}
	if gaps := p.gaps(); len(gaps) > 0 {
		return finding{verdict: Failed, found: shown(gaps)}
	}
	return finding{verdict: Passed, found: "Secrets, ConfigMaps and tokens without content; pods, deployments, exec, proxies, signing requests"}
}
