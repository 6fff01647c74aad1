package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"airlift/installer/cluster"
)

// objects are what the rules of the cluster judge. There are no contents of Secrets among them.
type objects struct {
	clusterRoles []rbacv1.ClusterRole
	roles        []rbacv1.Role
	bindings     []binding
	accounts     []corev1.ServiceAccount
	namespaces   []corev1.Namespace
	pods         []corev1.Pod
	services     []corev1.Service
	nodes        []corev1.Node
	policies     []networkingv1.NetworkPolicy
	daemonSets   []appsv1.DaemonSet
	mutating     []admissionv1.MutatingWebhookConfiguration
	validating   []admissionv1.ValidatingWebhookConfiguration
	csiDrivers   []string
	tokens       []string // Secrets with a token of a ServiceAccount, which does not expire: namespace/name
	proxy        string   // kube-proxy's configuration; "" if the cluster has none
	// seccompDefault are the values of the kubelets that answered, by node.
	seccompDefault map[string]bool
}

// A binding is a RoleBinding or a ClusterRoleBinding.
type binding struct {
	namespace, name string // the namespace is "" for all
	standard        bool   // created by the API server itself
	role            rbacv1.RoleRef
	subjects        []rbacv1.Subject
}

func (b binding) String() string {
	if b.namespace == "" {
		return "clusterrolebinding " + b.name
	}
	return "rolebinding -n " + b.namespace + " " + b.name
}

// readObjects lists what the rules need.
func readObjects(ctx context.Context, client *cluster.Client) (*objects, error) {
	o := &objects{seccompDefault: map[string]bool{}}
	api, all := client.API, metav1.ListOptions{}
	standard := func(m metav1.ObjectMeta) bool { return m.Labels["kubernetes.io/bootstrapping"] == "rbac-defaults" }
	reads := []func() error{
		func() error {
			l, err := api.RbacV1().ClusterRoles().List(ctx, all)
			return take(l, err, func() { o.clusterRoles = l.Items })
		},
		func() error {
			l, err := api.RbacV1().Roles("").List(ctx, all)
			return take(l, err, func() { o.roles = l.Items })
		},
		func() error {
			clusters, err := api.RbacV1().ClusterRoleBindings().List(ctx, all)
			if err != nil {
				return err
			}
			for _, b := range clusters.Items {
				o.bindings = append(o.bindings, binding{"", b.Name, standard(b.ObjectMeta), b.RoleRef, b.Subjects})
			}
			namespaced, err := api.RbacV1().RoleBindings("").List(ctx, all)
			if err != nil {
				return err
			}
			for _, b := range namespaced.Items {
				o.bindings = append(o.bindings, binding{b.Namespace, b.Name, standard(b.ObjectMeta), b.RoleRef, b.Subjects})
			}
			return nil
		},
		func() error {
			l, err := api.CoreV1().ServiceAccounts("").List(ctx, all)
			return take(l, err, func() { o.accounts = l.Items })
		},
		func() error {
			l, err := api.CoreV1().Namespaces().List(ctx, all)
			return take(l, err, func() { o.namespaces = l.Items })
		},
		func() error {
			l, err := api.CoreV1().Pods("").List(ctx, all)
			return take(l, err, func() { o.pods = l.Items })
		},
		func() error {
			l, err := api.CoreV1().Services("").List(ctx, all)
			return take(l, err, func() { o.services = l.Items })
		},
		func() error {
			l, err := api.CoreV1().Nodes().List(ctx, all)
			return take(l, err, func() { o.nodes = l.Items })
		},
		func() error {
			l, err := api.NetworkingV1().NetworkPolicies("").List(ctx, all)
			return take(l, err, func() { o.policies = l.Items })
		},
		func() error {
			l, err := api.AppsV1().DaemonSets("").List(ctx, all)
			return take(l, err, func() { o.daemonSets = l.Items })
		},
		func() error {
			l, err := api.AdmissionregistrationV1().MutatingWebhookConfigurations().List(ctx, all)
			return take(l, err, func() { o.mutating = l.Items })
		},
		func() error {
			l, err := api.AdmissionregistrationV1().ValidatingWebhookConfigurations().List(ctx, all)
			return take(l, err, func() { o.validating = l.Items })
		},
		func() error {
			l, err := api.StorageV1().CSIDrivers().List(ctx, all)
			return take(l, err, func() {
				for _, d := range l.Items {
					o.csiDrivers = append(o.csiDrivers, d.Name)
				}
			})
		},
		func() (err error) { o.tokens, err = tokenSecrets(ctx, client); return err },
		func() error {
			m, err := api.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, "kube-proxy", metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return take(m, err, func() { o.proxy = m.Data["config.conf"] })
		},
	}
	errs := make([]error, len(reads))
	var wg sync.WaitGroup
	for i, read := range reads {
		wg.Go(func() { errs[i] = read() })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	o.askKubelets(ctx, client)
	return o, nil
}

func take(_ any, err error, use func()) error {
	if err == nil {
		use()
	}
	return err
}

// tokenSecrets returns the names of Secrets with tokens of ServiceAccounts. The API server is asked for names only.
func tokenSecrets(ctx context.Context, client *cluster.Client) (names []string, err error) {
	data, err := client.API.CoreV1().RESTClient().Get().AbsPath("/api/v1/secrets").Param("fieldSelector", "type="+string(corev1.SecretTypeServiceAccountToken)).
		SetHeader("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1").DoRaw(ctx)
	var found metav1.PartialObjectMetadataList
	if err == nil {
		err = json.Unmarshal(data, &found)
	}
	if err == nil && found.Kind != "PartialObjectMetadataList" {
		err = fmt.Errorf("listing the names of Secrets: the API server returned a %s", found.Kind)
	}
	for _, s := range found.Items {
		names = append(names, s.Namespace+"/"+s.Name)
	}
	return names, err
}

// mostKubelets is how many kubelets are asked at once.
const mostKubelets = 8

// askKubelets asks the kubelets of all nodes for their default of seccomp. One that does not answer is not known.
func (o *objects) askKubelets(ctx context.Context, client *cluster.Client) {
	slots := make(chan struct{}, mostKubelets)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, n := range o.nodes {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if found, err := configz(ctx, client, n.Name); err == nil {
				mu.Lock()
				defer mu.Unlock()
				o.seccompDefault[n.Name] = found.SeccompDefault != nil && *found.SeccompDefault
			}
		})
	}
	wg.Wait()
}
