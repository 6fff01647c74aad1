package inventory

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"airlift/installer/cluster"
	"airlift/installer/cluster/wait"
	"airlift/installer/config"
)

// A RemovedAPI is a version of a built-in kind that a minor version of Kubernetes no longer
// serves.
type RemovedAPI struct {
	Group, Version, Kind string
	// Removed is the first minor version without it: 32.
	Removed int
	// Replacement is "GROUP/VERSION, KIND"; empty if there is none.
	Replacement string
}

// UnknownAPIs returns the items of kube-apiserver's runtime-config whose API version this version
// of Kubernetes no longer has. kube-apiserver does not start with such items.
func UnknownAPIs(c *config.Cluster) (names []string) {
	for _, name := range c.ServedAPIs() {
		if slices.ContainsFunc(DroppedAPIs, func(a DroppedAPI) bool {
			return c.Minor() >= a.Removed && a.Resource == "" && (name == a.API || strings.HasPrefix(name, a.API+"/"))
		}) {
			names = append(names, name)
		}
	}
	return names
}

func (a RemovedAPI) groupVersion() string {
	return schema.GroupVersion{Group: a.Group, Version: a.Version}.String()
}

// An APIUse is a use of an API that the new version no longer serves.
type APIUse struct {
	API         string `json:"api"`              // "flowcontrol.apiserver.k8s.io/v1beta3"
	Kind        string `json:"kind"`             // or the resource, if only requests are known
	Object      string `json:"object,omitempty"` // namespace/name, or name; empty for requests
	By          string `json:"by,omitempty"`     // the field manager
	Removed     string `json:"removed"`          // "v1.32"
	Replacement string `json:"replacement,omitempty"`
	// Lost is the resource of an object that the new version cannot read: "workloads".
	Lost string `json:"lost,omitempty"`
}

// A DroppedAPI is an API version that a minor version removes from its code. Objects that are
// stored in it can no longer be read, not even to delete them.
type DroppedAPI struct {
	// Removed is the first minor version without it: 37.
	Removed int
	API     string // "scheduling.k8s.io/v1alpha2"
	// Resource is set if the version stays, without this resource.
	Resource    string
	Replacement string // "GROUP/VERSION"; empty if there is none
}

// DroppedAPIs are the APIs that v1.30 to v1.37 removed, if the release before has no other version
// of their objects. The sources are pkg/apis and api/discovery of these versions: versions of alpha
// APIs, which a cluster serves only if runtime-config enables them.
var DroppedAPIs = []DroppedAPI{
	{Removed: 31, API: "resource.k8s.io/v1alpha2", Replacement: "resource.k8s.io/v1alpha3"},
	{Removed: 32, API: "coordination.k8s.io/v1alpha1", Replacement: "coordination.k8s.io/v1alpha2"},
	{Removed: 32, API: "resource.k8s.io/v1alpha3", Resource: "podschedulingcontexts"},
	{Removed: 34, API: "networking.k8s.io/v1alpha1", Replacement: "networking.k8s.io/v1"},
	{Removed: 35, API: "certificates.k8s.io/v1alpha1", Resource: "podcertificaterequests", Replacement: "certificates.k8s.io/v1beta1"},
	{Removed: 35, API: "storagemigration.k8s.io/v1alpha1", Replacement: "storagemigration.k8s.io/v1beta1"},
	{Removed: 36, API: "autoscaling/v2beta1", Replacement: "autoscaling/v2"},
	{Removed: 36, API: "autoscaling/v2beta2", Replacement: "autoscaling/v2"},
	{Removed: 36, API: "scheduling.k8s.io/v1alpha1", Replacement: "scheduling.k8s.io/v1alpha2"},
	{Removed: 37, API: "scheduling.k8s.io/v1alpha2", Replacement: "scheduling.k8s.io/v1beta1"},
}

// RemovedAPIs lists the versions of built-in kinds that the minor version from serves and the
// minor version to does not, sorted. The source is k8s.io/api: its generated methods
// APILifecycleRemoved and APILifecycleReplacement.
func RemovedAPIs(from, to int) (list []RemovedAPI) {
	for kind := range scheme.Scheme.AllKnownTypes() {
		if strings.HasSuffix(kind.Kind, "List") {
			continue
		}
		object, err := scheme.Scheme.New(kind)
		if err != nil {
			continue
		}
		life, ok := object.(interface{ APILifecycleRemoved() (major, minor int) })
		if !ok || !reflect.ValueOf(object).MethodByName("GetObjectMeta").IsValid() {
			continue
		}
		if major, minor := life.APILifecycleRemoved(); major != 1 || minor <= from || minor > to {
			continue
		} else if a := (RemovedAPI{Group: kind.Group, Version: kind.Version, Kind: kind.Kind, Removed: minor}); true {
			if next, ok := object.(interface {
				APILifecycleReplacement() schema.GroupVersionKind
			}); ok {
				r := next.APILifecycleReplacement()
				a.Replacement = r.GroupVersion().String() + ", " + r.Kind
			}
			list = append(list, a)
		}
	}
	slices.SortFunc(list, func(a, b RemovedAPI) int {
		return cmp.Or(cmp.Compare(a.Removed, b.Removed), strings.Compare(a.groupVersion(), b.groupVersion()), strings.Compare(a.Kind, b.Kind))
	})
	return list
}

// APIUses finds objects that were written with an API that is removed between two minor
// versions, and requests to such APIs since the API server started. Custom resources are not
// examined: their versions do not depend on Kubernetes'.
func APIUses(ctx context.Context, c *cluster.Client, from, to int) (uses []APIUse, err error) {
	for _, a := range RemovedAPIs(from, to) {
		found, err := objectsOf(ctx, c, a)
		if err != nil {
			return nil, err
		}
		uses = append(uses, found...)
	}
	for _, a := range DroppedAPIs {
		if a.Removed <= from || a.Removed > to {
			continue
		}
		found, err := lostObjects(ctx, c, a)
		if err != nil {
			return nil, err
		}
		uses = append(uses, found...)
	}
	rest := c.API.Discovery().RESTClient()
	if rest == nil { // in tests
		return uses, nil
	}
	var metrics []byte
	err = wait.Retry(ctx, func() (err error) {
		metrics, err = rest.Get().AbsPath("/metrics").DoRaw(ctx)
		return err
	})
	if apierrors.IsForbidden(err) {
		return uses, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the API server's metrics: %w", err)
	}
	for _, u := range requestedAPIs(metrics, from, to) {
		if !slices.ContainsFunc(uses, func(o APIUse) bool { return o.API == u.API }) {
			uses = append(uses, u)
		}
	}
	return uses, nil
}

// objectsOf lists the objects of a kind that were last written with an API version that is
// removed later.
func objectsOf(ctx context.Context, c *cluster.Client, a RemovedAPI) (uses []APIUse, err error) {
	err = eachObject(ctx, c, a.groupVersion(), func(r metav1.APIResource) bool { return r.Kind == a.Kind }, func(r metav1.APIResource, o *unstructured.Unstructured) {
		if by, ok := writtenWith(o, a.groupVersion()); ok {
			uses = append(uses, APIUse{API: a.groupVersion(), Kind: a.Kind, Object: nameOf(o), By: by, Removed: minorName(a.Removed), Replacement: a.Replacement})
		}
	})
	return uses, err
}

// lostObjects lists the objects that a later version cannot read.
func lostObjects(ctx context.Context, c *cluster.Client, a DroppedAPI) (uses []APIUse, err error) {
	err = eachObject(ctx, c, a.API, func(r metav1.APIResource) bool { return a.Resource == "" || r.Name == a.Resource }, func(r metav1.APIResource, o *unstructured.Unstructured) {
		uses = append(uses, APIUse{API: a.API, Kind: r.Kind, Object: nameOf(o), Removed: minorName(a.Removed), Replacement: a.Replacement, Lost: r.Name})
	})
	return uses, err
}

func nameOf(o *unstructured.Unstructured) string {
	return strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/")
}

// eachObject visits the objects of some resources of an API version, if it is served.
func eachObject(ctx context.Context, c *cluster.Client, groupVersion string, wanted func(metav1.APIResource) bool, visit func(metav1.APIResource, *unstructured.Unstructured)) error {
	gv, err := schema.ParseGroupVersion(groupVersion)
	if err != nil {
		return err
	}
	var served *metav1.APIResourceList
	err = wait.Retry(ctx, func() (err error) {
		served, err = c.API.Discovery().ServerResourcesForGroupVersion(groupVersion)
		return err
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("listing the resources of %s: %w", groupVersion, err)
	}
	for _, r := range served.APIResources {
		if !wanted(r) || strings.Contains(r.Name, "/") || !slices.Contains(r.Verbs, "list") {
			continue
		}
		var list *unstructured.UnstructuredList
		err := wait.Retry(ctx, func() (err error) {
			list, err = c.Dynamic.Resource(gv.WithResource(r.Name)).List(ctx, metav1.ListOptions{})
			return err
		})
		if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("listing the %s of %s: %w", r.Name, groupVersion, err)
		}
		for _, o := range list.Items {
			visit(r, &o)
		}
	}
	return nil
}

// ownManagers are field managers of Kubernetes' components, which change with the upgrade.
var ownManagers = regexp.MustCompile(`^(kube-apiserver|kube-controller-manager|kube-scheduler|kubelet|api-priority-and-fairness-.*)$`)

// writtenWith reports whether a user's client wrote an object with an API version, and which.
func writtenWith(o *unstructured.Unstructured, groupVersion string) (by string, ok bool) {
	var applied metav1.TypeMeta
	if last := o.GetAnnotations()["kubectl.kubernetes.io/last-applied-configuration"]; json.Unmarshal([]byte(last), &applied) == nil && applied.APIVersion == groupVersion {
		return "kubectl apply", true
	}
	for _, m := range o.GetManagedFields() {
		if m.APIVersion == groupVersion && m.Subresource == "" && !ownManagers.MatchString(m.Manager) {
			return m.Manager, true
		}
	}
	return "", false
}

var metricLabel = regexp.MustCompile(`([a-z_]+)="([^"]*)"`)

// requestedAPIs reads the metric apiserver_requested_deprecated_apis.
func requestedAPIs(metrics []byte, from, to int) (uses []APIUse) {
	for lines := bufio.NewScanner(bytes.NewReader(metrics)); lines.Scan(); {
		line, ok := strings.CutPrefix(lines.Text(), "apiserver_requested_deprecated_apis{")
		if !ok {
			continue
		}
		labels := map[string]string{}
		for _, m := range metricLabel.FindAllStringSubmatch(line, -1) {
			labels[m[1]] = m[2]
		}
		var minor int
		if _, err := fmt.Sscanf(labels["removed_release"], "1.%d", &minor); err != nil || minor <= from || minor > to {
			continue
		}
		api := schema.GroupVersion{Group: labels["group"], Version: labels["version"]}.String()
		uses = append(uses, APIUse{API: api, Kind: labels["resource"], Removed: minorName(minor)})
	}
	return uses
}

func minorName(minor int) string { return fmt.Sprintf("v1.%d", minor) }
