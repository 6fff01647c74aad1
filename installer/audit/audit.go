// Package audit judges a node and its cluster by the CIS Kubernetes Benchmark. It only reads, and needs no network but the
// API server.
//
// The checks are data: checks.go has the checks of nodes, policies.go the checks of the cluster. A check is judged by effective values:
// a flag that a manifest does not have has the default of its version, and the kubelet itself is asked for its configuration.
package audit

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"airlift/installer/cluster"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/redact"
)

// Benchmark is the document that numbers the checks. Version 1.12 has the same checks with the same numbers.
const Benchmark = "CIS Kubernetes Benchmark 2.0.1"

// A Verdict is the result of a check.
type Verdict string

// The verdicts.
const (
	Failed        Verdict = "failed"
	Judge         Verdict = "to be judged" // by a person
	ByDesign      Verdict = "by design"    // the value differs, for a reason
	NotApplicable Verdict = "not applicable"
	Passed        Verdict = "passed"
)

// Verdicts are in the order in which people read them.
var Verdicts = []Verdict{Failed, Judge, ByDesign, NotApplicable, Passed}

// A Place is where a check is judged.
type Place string

// The places.
const (
	ControlPlane Place = "control plane"
	Etcd         Place = "etcd"
	Node         Place = "node" // each node, control planes included
	Cluster      Place = "cluster"
)

// A Check is one row of the benchmark.
type Check struct {
	ID    string
	Place Place
	// Automated is set if the benchmark judges it by a rule. Most others have a rule here, too.
	Automated bool
	Title     string
	Want      string
	STIG      []string // ids of DISA's STIG V2R6
	// Since is the first minor version of Kubernetes that it holds for.
	Since int
	judge rule
	fix   string // a command; $FILES are the files that do not have the wanted value
}

// A Result is a check with its verdict. Its JSON is documented in docs/audit.md: fields are only added.
type Result struct {
	ID        string  `json:"id"`
	Verdict   Verdict `json:"verdict"`
	Title     string  `json:"title"`
	Place     Place   `json:"place"`
	Automated bool    `json:"automated"`
	Found     string  `json:"found"`            // the evidence
	Want      string  `json:"want"`             // the value that passes
	Reason    string  `json:"reason,omitempty"` // why it is by design, not applicable, or left to a person
	Fix       string  `json:"fix,omitempty"`    // what to type
	// STIG are the ids of DISA's STIG V2R6 with the same subject.
	STIG []string `json:"stig"`
}

// A Report is the audit of a host.
type Report struct {
	Benchmark  string          `json:"benchmark"`
	Time       time.Time       `json:"time"`
	Host       string          `json:"host"`
	Role       string          `json:"role"`
	Kubernetes string          `json:"kubernetes"`
	Counts     map[Verdict]int `json:"counts"`
	Results    []Result        `json:"results"`
	// Left is why checks are not in Results: they are judged on another host.
	Left string `json:"left,omitempty"`
	// Unread is what could not be read, with the reason. Checks that need it are to be judged.
	Unread []string `json:"unread"`
}

// A Reader audits a host.
type Reader struct {
	Host *host.Host
	// Kubeconfig is an administrator's kubeconfig; "" means the one on a control plane.
	Kubeconfig string

	owners func(name string) (uid, gid uint32, err error)         // of a file; nil means the file system's
	dial   func(context.Context, string) (*cluster.Client, error) // nil means connect
}

// Read judges all checks of this host. The error is the context's, or that this host is not a node.
func (r *Reader) Read(ctx context.Context) (*Report, error) {
	f, err := r.gather(ctx)
	if err != nil {
		return nil, err
	}
	report := &Report{
		Benchmark: Benchmark, Time: time.Now().UTC().Truncate(time.Second), Host: f.name, Role: f.role, Kubernetes: f.version(),
		Results: []Result{}, Unread: append([]string{}, f.unread...),
	}
	left := 0
	for _, c := range Checks() {
		if f.role == node.Worker && c.Place != Node && !(c.Place == Cluster && f.objects != nil) {
			left++
			continue
		}
		report.Results = append(report.Results, f.result(c))
	}
	if left > 0 {
		report.Left = strconv.Itoa(left) + " checks are not judged on this host, which is a worker: they are judged on a control plane"
	}
	report.count()
	return report, ctx.Err()
}

func (r *Report) count() {
	r.Counts = map[Verdict]int{}
	for _, v := range Verdicts {
		r.Counts[v] = 0
	}
	for _, one := range r.Results {
		r.Counts[one.Verdict]++
	}
}

// Passed reports whether no check failed, and everything could be read.
func (r *Report) Passed() bool { return r.Counts[Failed] == 0 && len(r.Unread) == 0 }

// result judges a check.
func (f *facts) result(c Check) Result {
	out := Result{ID: c.ID, Title: c.Title, Place: c.Place, Automated: c.Automated, Want: c.Want, STIG: c.STIG}
	if out.STIG == nil {
		out.STIG = []string{}
	}
	found := f.judge(c)
	out.Verdict, out.Reason, out.Found = found.verdict, redact.Line(found.reason), redact.Line(found.found)
	if out.Verdict != Failed && out.Verdict != Judge {
		return out
	}
	fix := cmp.Or(found.fix, c.fix)
	if len(found.files) > 0 {
		fix = strings.ReplaceAll(fix, "$FILES", strings.Join(found.files, " "))
	}
	if !strings.Contains(fix, "$FILES") {
		out.Fix = redact.Line(fix)
	}
	return out
}

func (f *facts) judge(c Check) finding {
	switch minor := f.minor(); {
	case minor != 0 && minor < c.Since:
		return finding{verdict: NotApplicable, reason: "Kubernetes v1." + strconv.Itoa(minor) + " does not have it"}
	case (c.Place == Etcd || slices.Contains(ofEtcd, c.ID)) && f.pods[node.EtcdPod] == nil:
		return finding{verdict: NotApplicable, reason: "no such file: this host has no static pod of etcd; an external etcd is judged on its own hosts"}
	case c.Place == Cluster && f.objects == nil:
		return finding{verdict: Judge, reason: "the API server could not be read"}
	}
	return c.judge(f)
}

// ofEtcd are the checks of section 1 about files of etcd.
var ofEtcd = []string{"1.1.7", "1.1.8", "1.1.11", "1.1.12"}

// Compare orders the numbers of checks: 1.2.9 precedes 1.2.10.
func Compare(a, b string) int { return slices.Compare(numbers(a), numbers(b)) }

func numbers(id string) (list []int) {
	for part := range strings.SplitSeq(id, ".") {
		n, _ := strconv.Atoi(part) // of a constant
		list = append(list, n)
	}
	return list
}
