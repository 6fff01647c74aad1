package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"airlift/installer/multihost/facts"
	"airlift/installer/multihost/spec"
)

// usual is how long actions take on hosts with two processor cores, for sites that did not run them yet.
var usual = map[string]time.Duration{
	Init: 30 * time.Second, Join: 25 * time.Second, Unpack: 10 * time.Second, UpgradeApply: 40 * time.Second, Upgrade: 30 * time.Second,
	EndpointApply: 15 * time.Second, Endpoint: 15 * time.Second, Registry: 10 * time.Second, Reconfigure: 15 * time.Second, ReconfigureNode: 10 * time.Second,
	NodeMeta: time.Second, Mirrors: 2 * time.Second, SecretsEnable: 15 * time.Second, SecretsDisable: 15 * time.Second, Remove: 30 * time.Second, RemoveOff: 20 * time.Second,
}

// healthTime is how long a node usually needs to be healthy after a change.
const healthTime = 5 * time.Second

// expect sets how long the plan may take.
func (s *site) expect(p *Plan) {
	p.FromRuns = len(p.Stages) > 0
	for i := range p.Stages {
		st := &p.Stages[i]
		longest := time.Duration(0)
		for n := range st.Actions {
			took, known := s.took(st.Actions[n])
			if st.Owed != nil {
				took, known = healthTime+st.Owed.Soak, true
			}
			st.Actions[n].Seconds = seconds(took)
			longest = max(longest, took)
			p.FromRuns = p.FromRuns && known
		}
		if st.Roll {
			longest += healthTime + OwedBy(s.Spec, nil, GroupsOf(s.Spec, names(st.Actions))).Soak
		}
		if limit := max(st.Limit, 1); st.Owed == nil {
			longest *= time.Duration((len(st.Actions) + limit - 1) / limit)
		}
		st.Seconds = seconds(longest)
	}
	for rest := p.Stages; len(rest) > 0; {
		n := Together(rest)
		p.Seconds += slices.MaxFunc(rest[:n], func(a, b Stage) int { return a.Seconds - b.Seconds }).Seconds
		rest = rest[n:]
	}
}

// Together returns how many of the first stages can run at once: stages in which hosts only join. A worker needs no more than one
// control plane.
func Together(stages []Stage) int {
	changes := func(a Action) bool { return a.Verb != Join }
	n := slices.IndexFunc(stages, func(st Stage) bool { return slices.ContainsFunc(st.Actions, changes) })
	if n < 0 {
		n = len(stages)
	}
	return max(n, 1)
}

// Share returns the part of one action in the time of its stage.
func (st Stage) Share() time.Duration {
	return max(time.Duration(st.Seconds)*time.Second/time.Duration(max(len(st.Actions), 1)), 1)
}

func seconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }

// longestRun limits what a host can claim.
const longestRun = time.Hour

// took returns how long the commands of an action took on the hosts of the site with the same role, and whether they ran there. A
// command that ran again took less, so the longest run of each host counts; of these, the one in the middle.
func (s *site) took(a Action) (took time.Duration, known bool) {
	role := hostOf(s.Spec, a.Host).Role
	if a.Verb == Remove || a.Verb == RemoveOff {
		role = spec.ControlPlane // where the command runs
	}
	for _, args := range a.Commands {
		command := commandOf(args, a.Host)
		var all []time.Duration
		for _, answer := range s.Answers {
			if f := answer.Facts; f == nil || f.Node == nil || f.Node.Role != role {
				continue
			}
			longest := time.Duration(0)
			for _, r := range answer.Facts.Runs {
				if r.Command == command && r.Ended != nil && r.ExitCode != nil && *r.ExitCode == 0 {
					longest = max(longest, min(r.Ended.Sub(r.Began), longestRun))
				}
			}
			if longest > 0 {
				all = append(all, longest)
			}
		}
		if len(all) == 0 {
			return usual[a.Verb], a.Verb == NodeMeta // which no host records
		}
		slices.Sort(all)
		took += all[len(all)/2]
	}
	return took, true
}

// commandOf returns a command as hosts record it: without flags and arguments.
func commandOf(args []string, host string) string {
	if flags := slices.IndexFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "-") }); flags >= 0 {
		args = args[:flags]
	}
	return strings.Join(filter(args, func(arg string) bool { return arg != host }), " ")
}

// mayFail returns which requests may fail while the plan runs.
func (s *site) mayFail(p *Plan) (list []string) {
	if s.cluster == nil {
		return nil
	}
	only := map[string][]string{} // the nodes of workloads
	var serving []string
	for _, st := range p.Stages {
		for _, a := range st.Actions {
			for _, g := range a.Pods {
				if g.Only && !slices.Contains(only[g.Workload], a.Host) {
					only[g.Workload] = append(only[g.Workload], a.Host)
				}
			}
			if s.restartsAPI(a) && !slices.Contains(serving, a.Host) {
				serving = append(serving, a.Host)
			}
		}
	}
	planes := filter(s.cluster.Nodes, func(n facts.ClusterNode) bool { return n.ControlPlane })
	switch {
	case len(serving) > 0 && len(planes) == 1:
		list = append(list, "to the API: "+serving[0]+" is the only control plane, and its API server restarts")
	case len(serving) > 0:
		list = append(list, "to the API: those that are open on "+strings.Join(serving, ", ")+" when its API server restarts; others answer meanwhile")
	}
	for _, name := range sortedKeys(only) {
		list = append(list, fmt.Sprintf("to %s: its only pods move away from %s", name, strings.Join(only[name], ", ")))
	}
	return list
}

// restartsAPI reports whether an action restarts the API server of its host.
func (s *site) restartsAPI(a Action) bool {
	switch a.Verb {
	case UpgradeApply, Upgrade:
		return a.From != "" && hostOf(s.Spec, a.Host).Role == spec.ControlPlane
	case EndpointApply, Endpoint:
		return hostOf(s.Spec, a.Host).Role == spec.ControlPlane
	case Remove, RemoveOff:
		return s.nodes[a.Host].ControlPlane && a.Effect == Drain
	case Reconfigure, ReconfigureNode, SecretsEnable, SecretsDisable:
		return slices.ContainsFunc(a.Changes, func(c string) bool {
			return strings.HasPrefix(c, "restarts ") && (strings.Contains(c, "kube-apiserver") || strings.Contains(c, "etcd"))
		})
	}
	return false
}
