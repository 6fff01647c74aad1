package builder

import (
	"strings"

	"airlift/bundle/builder/apirules"
	"airlift/bundle/builder/manifests"
	"airlift/images/release"
	"airlift/internal/fault"
)

// checkAccepted refuses objects that the API server of the bundle's version would refuse, and objects
// that need a namespace or a kind which nothing creates. install applies them in an order in which each
// finds what it needs.
func (r *siteReader) checkAccepted() error {
	w := apirules.World{Version: r.from.version, Exists: r.additional(), Objects: r.accepted, Earlier: r.earlier, Namespaces: r.namespaces}
	if r.CNI == release.Flannel {
		w.Namespaces = append(w.Namespaces, flannelNamespace)
	}
	var lines []string
	for _, p := range w.Check() {
		if p.Maybe {
			r.objects.warn(p)
			continue
		}
		lines = append(lines, listed(p))
	}
	if len(lines) == 0 {
		return nil
	}
	return fault.New(fault.Usage, "an API server of Kubernetes %s would refuse objects of the manifests:%s", r.from.version, strings.Join(lines, "")).
		Hint("correct the manifests; for another version of Kubernetes, use --version")
}

// flannelNamespace is the namespace of the pod network.
const flannelNamespace = "kube-flannel"

// accept keeps the objects of a manifest for checkAccepted.
func (r *siteReader) accept(namespace string, list []*manifests.Object) {
	for _, o := range list {
		r.accepted = append(r.accepted, apirules.Object{Object: o, Default: namespace})
	}
	r.namespaces = append(r.namespaces, namespace)
}

// addBase keeps what the base has.
func (r *siteReader) addBase(b base, list []apirules.Object) {
	r.earlier = list
	for _, o := range list {
		r.namespaces = append(r.namespaces, o.Default)
		r.objects.scopes.Add([]*manifests.Object{o.Object})
		r.from.apis = append(r.from.apis, apisOf([]*manifests.Object{o.Object})...)
	}
	if b.manifest != nil && b.manifest.CNI == release.Flannel {
		r.namespaces = append(r.namespaces, flannelNamespace)
	}
}
