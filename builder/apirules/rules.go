package apirules

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/operation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/version"
	request "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/klog/v2"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration"
	aggregation "k8s.io/kube-aggregator/pkg/apis/apiregistration/install"
	apiservices "k8s.io/kube-aggregator/pkg/apis/apiregistration/validation"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/apps"
	appsrules "k8s.io/kubernetes/pkg/apis/apps/validation"
	"k8s.io/kubernetes/pkg/apis/batch"
	batchrules "k8s.io/kubernetes/pkg/apis/batch/validation"
	"k8s.io/kubernetes/pkg/apis/core"
	corerules "k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/apis/discovery"
	discoveryrules "k8s.io/kubernetes/pkg/apis/discovery/validation"
	"k8s.io/kubernetes/pkg/capabilities"
	"k8s.io/kubernetes/pkg/registry/apps/controllerrevision"
	"k8s.io/kubernetes/pkg/registry/apps/daemonset"
	"k8s.io/kubernetes/pkg/registry/apps/deployment"
	"k8s.io/kubernetes/pkg/registry/apps/statefulset"
	"k8s.io/kubernetes/pkg/registry/autoscaling/horizontalpodautoscaler"
	"k8s.io/kubernetes/pkg/registry/batch/cronjob"
	"k8s.io/kubernetes/pkg/registry/coordination/lease"
	"k8s.io/kubernetes/pkg/registry/networking/ingress"
	"k8s.io/kubernetes/pkg/registry/networking/ingressclass"
	"k8s.io/kubernetes/pkg/registry/networking/networkpolicy"
	"k8s.io/kubernetes/pkg/registry/node/runtimeclass"
	"k8s.io/kubernetes/pkg/registry/policy/poddisruptionbudget"
	"k8s.io/kubernetes/pkg/registry/rbac/clusterrole"
	"k8s.io/kubernetes/pkg/registry/rbac/clusterrolebinding"
	"k8s.io/kubernetes/pkg/registry/rbac/role"
	"k8s.io/kubernetes/pkg/registry/rbac/rolebinding"
	"k8s.io/kubernetes/pkg/registry/scheduling/priorityclass"
	"k8s.io/kubernetes/pkg/registry/storage/csidriver"
	"k8s.io/kubernetes/pkg/registry/storage/storageclass"

	// Their init functions add the types, the defaults and the conversions to legacyscheme.
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	_ "k8s.io/kubernetes/pkg/apis/autoscaling/install"
	_ "k8s.io/kubernetes/pkg/apis/batch/install"
	_ "k8s.io/kubernetes/pkg/apis/coordination/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/discovery/install"
	_ "k8s.io/kubernetes/pkg/apis/networking/install"
	_ "k8s.io/kubernetes/pkg/apis/node/install"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	_ "k8s.io/kubernetes/pkg/apis/rbac/install"
	_ "k8s.io/kubernetes/pkg/apis/scheduling/install"
	_ "k8s.io/kubernetes/pkg/apis/storage/install"

	"airlift/builder/manifests"
)

// strategies are the API server's own, for kinds whose package links little else.
var strategies = map[schema.GroupKind]rest.RESTCreateStrategy{
	{Group: "apps", Kind: "ControllerRevision"}:                      controllerrevision.Strategy,
	{Group: "apps", Kind: "DaemonSet"}:                               daemonset.Strategy,
	{Group: "apps", Kind: "Deployment"}:                              deployment.Strategy,
	{Group: "apps", Kind: "StatefulSet"}:                             statefulset.Strategy,
	{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"}:          horizontalpodautoscaler.Strategy,
	{Group: "batch", Kind: "CronJob"}:                                cronjob.Strategy,
	{Group: "coordination.k8s.io", Kind: "Lease"}:                    lease.Strategy,
	{Group: "networking.k8s.io", Kind: "Ingress"}:                    ingress.Strategy,
	{Group: "networking.k8s.io", Kind: "IngressClass"}:               ingressclass.Strategy,
	{Group: "networking.k8s.io", Kind: "NetworkPolicy"}:              networkpolicy.Strategy,
	{Group: "node.k8s.io", Kind: "RuntimeClass"}:                     runtimeclass.Strategy,
	{Group: "policy", Kind: "PodDisruptionBudget"}:                   poddisruptionbudget.Strategy,
	{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole"}:        clusterrole.Strategy,
	{Group: "rbac.authorization.k8s.io", Kind: "ClusterRoleBinding"}: clusterrolebinding.Strategy,
	{Group: "rbac.authorization.k8s.io", Kind: "Role"}:               role.Strategy,
	{Group: "rbac.authorization.k8s.io", Kind: "RoleBinding"}:        rolebinding.Strategy,
	{Group: "scheduling.k8s.io", Kind: "PriorityClass"}:              priorityclass.Strategy,
	{Group: "storage.k8s.io", Kind: "CSIDriver"}:                     csidriver.Strategy,
	{Group: "storage.k8s.io", Kind: "StorageClass"}:                  storageclass.Strategy,
}

// handWritten returns the errors of kinds whose strategies would link a client, a storage and more.
func handWritten(object runtime.Object) field.ErrorList {
	switch o := object.(type) {
	case *core.Pod:
		podutil.DropDisabledPodFields(o, nil)
		options := podutil.GetValidationOptionsFromPodSpecAndMeta(&o.Spec, nil, &o.ObjectMeta, nil)
		options.ResourceIsPod = true
		return corerules.ValidatePodCreate(o, options)
	case *core.PodTemplate:
		podutil.DropDisabledTemplateFields(&o.Template, nil)
		return corerules.ValidatePodTemplate(o, podutil.GetValidationOptionsFromPodTemplate(&o.Template, nil))
	case *core.ReplicationController:
		podutil.DropDisabledTemplateFields(o.Spec.Template, nil)
		return corerules.ValidateReplicationController(o, podutil.GetValidationOptionsFromPodTemplate(o.Spec.Template, nil))
	case *apps.ReplicaSet:
		podutil.DropDisabledTemplateFields(&o.Spec.Template, nil)
		return appsrules.ValidateReplicaSet(o, podutil.GetValidationOptionsFromPodTemplate(&o.Spec.Template, nil))
	case *batch.Job:
		return jobRules(o)
	case *core.ConfigMap:
		return corerules.ValidateConfigMap(o)
	case *core.Secret:
		return corerules.ValidateSecret(o)
	case *core.Service:
		return serviceRules(o)
	case *core.ServiceAccount:
		return corerules.ValidateServiceAccount(o)
	case *core.Namespace:
		return corerules.ValidateNamespace(o)
	case *core.Endpoints:
		return corerules.ValidateEndpointsCreate(o)
	case *core.LimitRange:
		return corerules.ValidateLimitRange(o)
	case *core.ResourceQuota:
		return corerules.ValidateResourceQuota(o)
	case *core.PersistentVolume:
		return corerules.ValidatePersistentVolume(o, corerules.ValidationOptionsForPersistentVolume(o, nil))
	case *core.PersistentVolumeClaim:
		return corerules.ValidatePersistentVolumeClaim(o, corerules.ValidationOptionsForPersistentVolumeClaim(o, nil))
	case *discovery.EndpointSlice:
		return discoveryrules.ValidateEndpointSliceCreate(o)
	case *apiregistration.APIService:
		return apiservices.ValidateAPIService(context.Background(), o)
	}
	return nil
}

// jobRules returns the errors of a Job. The API server adds the selector and its labels before.
func jobRules(o *batch.Job) field.ErrorList {
	podutil.DropDisabledTemplateFields(&o.Spec.Template, nil)
	options := batchrules.JobValidationOptions{PodValidationOptions: podutil.GetValidationOptionsFromPodTemplate(&o.Spec.Template, nil), RequirePrefixedLabels: true}
	if o.Spec.ManualSelector == nil || !*o.Spec.ManualSelector {
		if o.Spec.Template.Labels == nil {
			o.Spec.Template.Labels = map[string]string{}
		}
		labels := map[string]string{batch.LegacyJobNameLabel: o.Name, batch.JobNameLabel: o.Name, batch.LegacyControllerUidLabel: string(o.UID), batch.ControllerUidLabel: string(o.UID)}
		for key, value := range labels {
			if _, ok := o.Spec.Template.Labels[key]; !ok {
				o.Spec.Template.Labels[key] = value
			}
		}
		if o.Spec.Selector == nil {
			o.Spec.Selector = &metav1.LabelSelector{}
		}
		if o.Spec.Selector.MatchLabels == nil {
			o.Spec.Selector.MatchLabels = map[string]string{}
		}
		if _, ok := o.Spec.Selector.MatchLabels[batch.ControllerUidLabel]; !ok {
			o.Spec.Selector.MatchLabels[batch.ControllerUidLabel] = string(o.UID)
		}
	}
	return batchrules.ValidateJobCreate(o, options)
}

// serviceRules returns the errors of a Service. The API server copies the address to the list before.
func serviceRules(o *core.Service) field.ErrorList {
	if len(o.Spec.ClusterIPs) > 0 || o.Spec.ClusterIP == "" {
		return corerules.ValidateServiceCreate(o)
	}
	o.Spec.ClusterIPs = []string{o.Spec.ClusterIP}
	errs := corerules.ValidateServiceCreate(o)
	for _, e := range errs {
		e.Field = strings.TrimSuffix(strings.Replace(e.Field, "spec.clusterIPs", "spec.clusterIP", 1), "[0]")
	}
	return errs
}

// gates guards the feature gates, which the rules read and which are of the whole process.
var gates sync.Mutex

// emulate gives all feature gates the defaults that they have in 1.minor. The method without a logger
// writes to stderr.
func emulate(minor int) {
	if g, ok := utilfeature.DefaultMutableFeatureGate.(interface {
		SetEmulationVersionWithLogger(klog.Logger, *version.Version) error
	}); ok {
		_ = g.SetEmulationVersionWithLogger(logr.Discard(), version.MajorMinor(1, uint(minor)))
	}
}

// prepare sets what the API server has: the types of APIServices, and --allow-privileged, which kubeadm sets.
var prepare = sync.OnceFunc(func() {
	aggregation.Install(legacyscheme.Scheme)
	capabilities.Setup(true, 0)
})

// rules returns the problems that Kubernetes' own rules find in an object, after its defaults were set.
func (c *checker) rules(o Object, object runtime.Object) (problems []manifests.Problem) {
	gvk := o.GroupVersionKind()
	if gvk.Group == extensions {
		return definitionProblems(o, object)
	}
	prepare()
	if !legacyscheme.Scheme.Recognizes(gvk) {
		return nil
	}
	defer func() {
		if r := recover(); r != nil {
			p := o.problem("", fmt.Sprintf("the rules for a %s cannot be checked: %v", o.Kind, r), "")
			p.Maybe = true
			problems = []manifests.Problem{p}
		}
	}()
	gates.Lock()
	defer gates.Unlock()
	emulate(min(c.minor, newest))
	legacyscheme.Scheme.Default(object)
	internal, err := legacyscheme.Scheme.ConvertToVersion(object, schema.GroupVersion{Group: gvk.Group, Version: runtime.APIVersionInternal})
	if err != nil {
		return []manifests.Problem{o.problem("", err.Error(), "")}
	}
	accessor, err := meta.Accessor(internal)
	if err != nil {
		return nil
	}
	namespaced, _ := c.isNamespaced(gvk)
	accessor.SetNamespace(placeOf(o, namespaced))
	rest.FillObjectMetaSystemFields(accessor)
	ctx := request.WithNamespace(klog.NewContext(context.Background(), logr.Discard()), accessor.GetNamespace())
	ctx = request.WithRequestInfo(ctx, &request.RequestInfo{APIGroup: gvk.Group, APIVersion: gvk.Version, Verb: "create"})
	if s, ok := strategies[gvk.GroupKind()]; ok {
		s.PrepareForCreate(ctx, internal)
		return c.believed(o, rest.ValidateCreate(ctx, internal, s))
	}
	errs := handWritten(internal)
	errs = rest.ValidateDeclarativelyWithMigrationChecks(ctx, legacyscheme.Scheme, internal, nil, errs, operation.Create, rest.DeclarativeValidationConfig{})
	return c.believed(o, errs)
}

// believed leaves out what only newer versions refuse.
func (c *checker) believed(o Object, errs field.ErrorList) []manifests.Problem {
	var kept field.ErrorList
	for _, e := range errs {
		since, ok := refusedSince[o.Kind+" "+e.Field]
		if !ok || c.minor >= since {
			kept = append(kept, e)
		}
	}
	return ruleProblems(o, kept)
}

// refusedSince are the fields whose rules became stricter, and in which minor version.
var refusedSince = map[string]int{"StatefulSet spec.serviceName": 35}

// longest is the longest text of an error with the value.
const longest = 300

// ruleProblems describes the errors of Kubernetes' rules.
func ruleProblems(o Object, errs field.ErrorList) (problems []manifests.Problem) {
	seen := map[string]bool{}
	for _, e := range errs {
		if e.Type == field.ErrorTypeInternal {
			continue // a fault of the rules
		}
		why := e.ErrorBody()
		switch reflect.ValueOf(e.BadValue).Kind() {
		case reflect.Struct, reflect.Map, reflect.Slice, reflect.Pointer: // its text has the names of Go's fields
			why = strings.TrimSuffix(e.Type.String()+": "+e.Detail, ": ")
		}
		if len(why) > longest {
			why = e.Type.String() + ": " + e.Detail
		}
		why = strings.ToLower(why[:1]) + why[1:]
		at := e.Field
		if at == "[]" || at == "<nil>" { // the whole object
			at = ""
		}
		if !seen[at+why] {
			seen[at+why] = true
			problems = append(problems, o.problem(at, why, ""))
		}
	}
	return problems
}
