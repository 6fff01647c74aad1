package conformance

import (
	"fmt"
	"slices"
	"strings"

	"airlift/scripts/live/results"
	"airlift/scripts/oracle/upstream/components"
)

const head = `# Does Kubernetes' own conformance test pass?

` + "`make conformance`" + ` writes this page. It builds ` + "`e2e.test`" + ` and ` + "`ginkgo`" + ` from the module of
Kubernetes, installs a cluster of two isolated Debian hosts, and runs every test with
` + "`[Conformance]`" + ` and without ` + "`[Serial]`" + ` in its name from a third host. Pods run on both nodes: the
run removes the taint of the control plane. The clusters by Airlift have the embedded registry; one
also has [the profile hardened](hardening.md), and one has the add-on [load-balancer](load-balancer.md) with a pool. The same tests also run on a cluster that real kubeadm installs.

This is not a certification. That also needs the serial tests and the images of the Kubernetes
project.

`

const images = `
## Images of the tests

The test rig has no registry to pull from. It builds the images according to their Dockerfiles, from
Debian 12, Go modules and the source of busybox:

| image | different from the image of the Kubernetes project |
|---|---|
| all | the base is Debian 12 (glibc), also if upstream's base is Alpine (musl) |
| agnhost | no registry in ` + "`/var/registry`" + `; all tags have the agnhost of the tested release |
| busybox | busybox 1.37 from its source with the default configuration, for all tags |
| nginx, httpd | Debian's nginx 1.22 and apache2 2.4 with the paths of the real images, for all tags |
| glibc-dns-testing, jessie-dnsutils | Debian 12's dig and host; jessie-dnsutils is Debian 8 |
| kitten, nautilus, nonewprivs, nonroot, sample-apiserver | only the base |

The tests also refer to images of CSI drivers, volume servers and node benchmarks. The rig does not
build them, because the tests of this page do not use them.
`

// A cause explains why a test did not pass on the clusters here, or why it is not run.
type cause struct {
	text   string
	notRun bool
}

const noRegistry = "the pods have imagePullPolicy Always, and without the embedded registry, isolated hosts have no registry"

// causes are by the name of the test.
var causes = map[string]cause{
	// v1.29
	"[sig-api-machinery] Aggregator Should be able to support the 1.17 Sample API Server using the current Aggregator [Conformance]": {
		"the rig does not build the image sample-apiserver:1.17.7", true},
	// v1.35
	"[sig-node] ImageVolume should succeed with pod and pull policy of Always [LinuxOnly] [MinimumKubeletVersion:1.35] [Conformance]": {
		"it pulls its image from the embedded registry, and then expects Alpine Linux in it: the image of the rig has Debian; without the embedded registry, isolated hosts have nothing to pull from", false},
	// v1.37
	"[sig-auth] Projected PodCertificate [FeatureGate:PodCertificateRequest] [FeatureGate:ClusterTrustBundle] [FeatureGate:ClusterTrustBundleProjection] should allow server and client pods to establish an mTLS connection [MinimumKubeletVersion:1.37] [Conformance]": {
		noRegistry, false},
}

// ways are the columns of the page.
var ways = []struct{ by, heading string }{{"airlift", "Airlift"}, {"hardened", "Airlift, hardened"}, {"load-balancer", "Airlift, load balancer"}, {"kubeadm", "kubeadm"}}

// writePage writes the page from the results of all versions in dir.
func writePage(path, dir string) error {
	var b, other strings.Builder
	b.WriteString(head)
	b.WriteString("| version | cluster by | tests | passed | failed | skipped | not run | times of the tests, added |\n|---|---|---|---|---|---|---|---|\n")
	for _, r := range components.Releases() {
		records := map[string]*record{}
		for _, w := range ways {
			rec, err := readRecord(recordFile(dir, r.Kubernetes, w.by))
			if err != nil {
				return err
			}
			records[w.by] = rec
			if len(rec.Tests) > 0 {
				fmt.Fprintf(&b, "| %s | %s | %s |\n", r.Kubernetes, w.heading, rec.summary())
			}
		}
		others(&other, r.Kubernetes, records)
	}
	if other.Len() > 0 {
		b.WriteString("\n## Tests that did not pass at once, or are not run\n\n| version | test | Airlift | Airlift, hardened | Airlift, load balancer | kubeadm | cause |\n|---|---|---|---|---|---|---|\n" + other.String())
	}
	b.WriteString(images)
	return results.Replace(path, []byte(b.String()))
}

// summary counts the results.
func (r *record) summary() string {
	count := map[string]int{}
	var seconds float64
	for _, name := range r.Names {
		count[r.Tests[name].State]++
		seconds += r.Tests[name].Seconds
	}
	return fmt.Sprintf("%d | %d | %d | %d | %d | %.0f min", len(r.Names), count[passed], count[failing], count[skipped], count[""], seconds/60)
}

// others writes the tests of a version that did not pass in their first run, or are never run.
func others(b *strings.Builder, version string, records map[string]*record) {
	var names []string
	for _, rec := range records {
		for _, name := range rec.Names {
			if causes[name].notRun {
				names = append(names, name)
			}
		}
		for name, r := range rec.Tests {
			if r.State != passed || r.Failures > 0 {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		fmt.Fprintf(b, "| %s | %s |", version, cell(name))
		for _, w := range ways {
			if len(records[w.by].Tests) == 0 {
				b.WriteString(" – |")
				continue
			}
			fmt.Fprintf(b, " %s |", records[w.by].Tests[name])
		}
		b.WriteString(strings.TrimRight(" "+cell(causes[name].text), " ") + " |\n")
	}
}

func (r result) String() string {
	switch {
	case r.State == "":
		return "not run"
	case r.Failures == 0:
		return r.State
	case r.State == failing && r.Failures == 1:
		return "failed once"
	case r.State == failing:
		return fmt.Sprintf("failed %d times", r.Failures)
	}
	return fmt.Sprintf("%s, failed before: %d", r.State, r.Failures)
}

// cell makes a text safe for a table.
func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ", "<", "&lt;").Replace(text)
}
