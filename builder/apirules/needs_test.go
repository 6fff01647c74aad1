package apirules_test

import (
	"slices"
	"strings"
	"testing"

	"airlift/builder/apirules"
)

const thing = "apiVersion: example.com/v1\nkind: Thing\nmetadata: {name: t}\n"

// texts returns the problems, those with Maybe after "maybe: ".
func texts(w apirules.World) (list []string) {
	for _, p := range w.Check() {
		text := p.String()
		if p.Maybe {
			text = "maybe: " + text
		}
		list = append(list, text)
	}
	return list
}

func TestNeeds(t *testing.T) {
	late := strings.Replace(configMap, "{name: c}", "{name: c, namespace: late}", 1)
	namespace := "apiVersion: v1\nkind: Namespace\nmetadata: {name: late}\n"
	operator := strings.Replace(strings.Replace(role, `apiGroups: [""]`, `apiGroups: ["", apiextensions.k8s.io]`, 1), "resources: [pods]\n  verbs: [get]", "resources: [namespaces, customresourcedefinitions]\n  verbs: ['*']", 1)
	admin := strings.Replace(binding, "name: r\n", "name: cluster-admin\n", 1)
	served := strings.Replace(definition, "served: true", "served: false", 1)
	cluster := strings.Replace(definition, "scope: Namespaced", "scope: Cluster", 1)
	objects := func(texts ...string) []apirules.Object { return decoded(t, "a.yaml", strings.Join(texts, "---\n"), "") }
	for name, c := range map[string]struct {
		world apirules.World
		want  []string
	}{
		"a later namespace":            {apirules.World{Objects: objects(late, namespace)}, nil},
		"no namespace":                 {apirules.World{Objects: objects(late)}, []string{`a.yaml:3: ConfigMap late/c: metadata.namespace: no manifest creates the namespace "late"`}},
		"the base's namespace":         {apirules.World{Exists: true, Objects: objects(late), Earlier: objects(namespace)}, nil},
		"a manifest's namespace":       {apirules.World{Objects: objects(late), Namespaces: []string{"late"}}, nil},
		"a cluster that exists":        {apirules.World{Exists: true, Objects: objects(late)}, []string{`maybe: a.yaml:3: ConfigMap late/c: metadata.namespace: no manifest creates the namespace "late": the cluster must have it`}},
		"an operator makes namespaces": {apirules.World{Objects: objects(late, operator)}, []string{`maybe: a.yaml:3: ConfigMap late/c: metadata.namespace: no manifest creates the namespace "late": install waits for it, in case something with the permissions of ClusterRole r creates it`}},
		"a later definition":           {apirules.World{Objects: objects(thing, definition)}, nil},
		"the base's definition":        {apirules.World{Exists: true, Objects: objects(thing), Earlier: objects(definition)}, nil},
		"no definition":                {apirules.World{Objects: objects(thing)}, []string{"a.yaml:2: Thing t: kind: no manifest defines the kind Thing of example.com"}},
		"an operator defines kinds":    {apirules.World{Objects: objects(thing, operator)}, []string{"maybe: a.yaml:2: Thing t: kind: no manifest defines the kind Thing of example.com: install waits for it, in case something with the permissions of ClusterRole r creates it"}},
		"an administrator":             {apirules.World{Objects: objects(thing, admin)}, []string{"maybe: a.yaml:2: Thing t: kind: no manifest defines the kind Thing of example.com: install waits for it, in case something with the permissions of ClusterRoleBinding b creates it"}},
		"one warning for a kind":       {apirules.World{Exists: true, Objects: objects(thing, strings.Replace(thing, "name: t", "name: u", 1))}, []string{"maybe: a.yaml:2: Thing t: kind: no manifest defines the kind Thing of example.com: the cluster must have it"}},
		"a version that is not served": {apirules.World{Objects: objects(thing, served)}, []string{"a.yaml:1: Thing t: apiVersion: its CustomResourceDefinition does not serve version v1"}},
		"a cluster-scoped kind":        {apirules.World{Objects: objects(strings.Replace(thing, "name: t", "name: t, namespace: late", 1), cluster)}, nil},
		"an aggregated API":            {apirules.World{Objects: objects("apiVersion: metrics.k8s.io/v1beta1\nkind: NodeMetrics\nmetadata: {name: t}\n", apiService)}, nil},
		"references": {apirules.World{Objects: objects(strings.Replace(pod, "  restartPolicy: Always\n", "  serviceAccountName: sa\n  priorityClassName: high\n", 1), strings.Replace(pod, "emptyDir: {}", "configMap: {name: cm}", 1))}, []string{
			`a.yaml:7: Pod p: spec.serviceAccountName: no manifest has the ServiceAccount "sa": the pods are not created without it`,
			`a.yaml:8: Pod p: spec.priorityClassName: no manifest has the PriorityClass "high": the pods are not created without it`,
			`a.yaml:42: Pod p: spec.volumes[0].configMap.name: no manifest has the ConfigMap "cm": the pods wait for it`}},
		"optional references": {apirules.World{Objects: objects(strings.Replace(pod, "emptyDir: {}", "configMap: {name: cm, optional: true}", 1))}, nil},
		"a newer version": {apirules.World{Version: "v1.38.0", Objects: objects(strings.Replace(pod, "  restartPolicy: Always\n", "  restartPolicy: Maybe\n  newField: 1\n", 1), "apiVersion: apps/v1\nkind: NewKind\nmetadata: {name: n1}\n")}, []string{
			`maybe: a.yaml:8: Pod p: spec.newField: unknown field`, `maybe: a.yaml:7: Pod p: spec.restartPolicy: unsupported value: "Maybe": supported values: "Always", "OnFailure", "Never"`,
			"maybe: a.yaml:24: NewKind n1: kind: Kubernetes v1.38.0 has no kind NewKind in apps/v1"}},
		"a field of a newer version": {apirules.World{Version: "v1.29.15", Objects: objects(strings.Replace(service, "  type: ClusterIP\n", "  trafficDistribution: PreferClose\n", 1))}, []string{
			"a.yaml:5: Service s: spec.trafficDistribution: the field came with v1.30: the API server of v1.29 does not have it"}},
		"a rule of a newer version":  {apirules.World{Version: "v1.29.15", Objects: objects(strings.Replace(statefulSet, "serviceName: s\n", "serviceName: A_b\n", 1))}, nil},
		"parts of kubeadm's objects": {apirules.World{Objects: objects("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: coredns, namespace: kube-system}\nspec: {replicas: 3}\n")}, nil},
		"a headless service":         {apirules.World{Objects: objects(strings.Replace(service, "  type: ClusterIP\n", "  clusterIP: None\n", 1))}, nil},
		"an alpha API": {apirules.World{Objects: objects("apiVersion: certificates.k8s.io/v1beta1\nkind: ClusterTrustBundle\nmetadata: {name: v1}\nspec: {trustBundle: a}\n")}, []string{
			"maybe: a.yaml:2: ClusterTrustBundle v1: kind: an API server of v1.37.1 serves certificates.k8s.io/v1beta1 only if its runtime-config enables it"}},
	} {
		if c.world.Version == "" {
			c.world.Version = newest
		}
		for i, w := range c.want {
			if name == "references" {
				c.want[i] = "maybe: " + w
			}
		}
		if got := texts(c.world); !slices.Equal(got, c.want) {
			t.Errorf("%s:\n got %q\nwant %q", name, got, c.want)
		}
	}
}

// A Secret's values are not printed.
func TestValuesOfSecretsAreNotPrinted(t *testing.T) {
	const value = "hunter2hunter2"
	for _, s := range []string{
		"data:\n  key: " + value + "!\n", "data: " + value + "\n", "data: [" + value + "]\n", "stringData:\n  key: [" + value + "]\n",
		"type: kubernetes.io/dockerconfigjson\nstringData:\n  .dockerconfigjson: " + value + "\n", "stringData:\n  a/b: " + value + "\n", "data:\n  key: {a: " + value + "}\n", "immutable: " + value + "\n",
	} {
		got := texts(apirules.World{Version: newest, Objects: decoded(t, "a.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n"+s, "")})
		if len(got) == 0 || strings.Contains(strings.Join(got, "\n"), "hunter2") {
			t.Errorf("%s: %q", s, got)
		}
	}
}

// Each field that names what a pod waits for is found, and where it is.
func TestReferences(t *testing.T) {
	text := `apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  containers:
  - {name: c, image: i, envFrom: [{configMapRef: {name: a}}, {secretRef: {name: b}}], env: [{name: X, valueFrom: {configMapKeyRef: {name: c, key: k}}}, {name: Z, valueFrom: {secretKeyRef: {name: d, key: k, optional: true}}}]}
  volumes:
  - {name: e, secret: {secretName: e}}
  - {name: f, persistentVolumeClaim: {claimName: f}}
  - {name: g, projected: {sources: [{secret: {name: g}}, {configMap: {name: kube-root-ca.crt}}]}}
  - {name: h, cephfs: {monitors: [m], secretRef: {name: h}}}
`
	var got []string
	for _, p := range (apirules.World{Version: newest, Objects: decoded(t, "a.yaml", text, "")}).Check() {
		got = append(got, p.Field)
	}
	want := []string{
		"spec.volumes[0].secret.secretName", "spec.volumes[1].persistentVolumeClaim.claimName", "spec.volumes[2].projected.sources[0].secret.name", "spec.volumes[3].cephfs.secretRef.name",
		"spec.containers[0].env[0].valueFrom.configMapKeyRef.name", "spec.containers[0].envFrom[0].configMapRef.name", "spec.containers[0].envFrom[1].secretRef.name",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
