package apirules_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"airlift/builder/apirules"
	"airlift/builder/manifests"
)

// decoded returns the objects of a text, with the namespace of their manifest.
func decoded(t testing.TB, file, text, namespace string) (list []apirules.Object) {
	t.Helper()
	objects, err := manifests.Decode(file, []byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for _, o := range objects {
		list = append(list, apirules.Object{Object: o, Default: namespace})
	}
	return list
}

// A mistake is an object that the API server refuses. The line of the mistake ends with #!.
type mistake struct{ name, text, want string }

const newest = "v1.37.1"

// pod, deployment, service and job are objects without a mistake, in which one line is replaced.
const (
	pod = `apiVersion: v1
kind: Pod
metadata:
  name: p
  labels: {app: p}
spec:
  restartPolicy: Always
  containers:
  - name: c
    image: quay.io/team/a:1
    ports:
    - {containerPort: 80, name: http}
    env:
    - {name: A, value: "1"}
    resources: {limits: {memory: 1Gi}}
    volumeMounts:
    - {name: v, mountPath: /v}
    livenessProbe: {httpGet: {path: /, port: 80}}
  volumes:
  - {name: v, emptyDir: {}}
`
	deployment = `apiVersion: apps/v1
kind: Deployment
metadata:
  name: d
spec:
  replicas: 1
  selector:
    matchLabels: {app: a}
  strategy: {type: RollingUpdate}
  template:
    metadata:
      labels: {app: a}
    spec:
      containers:
      - {name: c, image: "quay.io/team/a:1"}
`
	service = `apiVersion: v1
kind: Service
metadata: {name: s}
spec:
  type: ClusterIP
  selector: {app: a}
  ports:
  - {name: http, port: 80, targetPort: http}
`
	job = `apiVersion: batch/v1
kind: Job
metadata: {name: j}
spec:
  backoffLimit: 1
  template:
    spec:
      restartPolicy: Never
      containers: [{name: c, image: "quay.io/team/a:1"}]
`
	cronJob = `apiVersion: batch/v1
kind: CronJob
metadata: {name: c}
spec:
  schedule: "0 3 * * *"
  concurrencyPolicy: Allow
  jobTemplate:
    spec:
      template:
        spec:
          restartPolicy: Never
          containers: [{name: c, image: "quay.io/team/a:1"}]
`
	ingress = `apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: i}
spec:
  rules:
  - host: a.example.com
    http:
      paths:
      - path: /
        pathType: Prefix
        backend: {service: {name: s, port: {number: 80}}}
`
	policy = `apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: np}
spec:
  podSelector: {}
  policyTypes: [Ingress]
  ingress:
  - from:
    - ipBlock: {cidr: 10.0.0.0/8}
    ports:
    - {port: 80, protocol: TCP}
`
	statefulSet = `apiVersion: apps/v1
kind: StatefulSet
metadata: {name: s}
spec:
  serviceName: s
  selector: {matchLabels: {app: a}}
  template:
    metadata: {labels: {app: a}}
    spec:
      containers: [{name: c, image: "quay.io/team/a:1"}]
  volumeClaimTemplates:
  - metadata: {name: data}
    spec:
      accessModes: [ReadWriteOnce]
      resources: {requests: {storage: 1Gi}}
`
	claim = `apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: c}
spec:
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 1Gi}}
`
	role = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: r}
rules:
- apiGroups: [""]
  resources: [pods]
  verbs: [get]
`
	binding = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: b}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: r
subjects:
- {kind: ServiceAccount, name: default, namespace: default}
`
	budget = `apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: b}
spec:
  minAvailable: 1
  selector: {matchLabels: {app: a}}
`
	scaler = `apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: h}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: d}
  minReplicas: 1
  maxReplicas: 3
  metrics:
  - type: Resource
    resource: {name: cpu, target: {type: Utilization, averageUtilization: 80}}
`
	volume = `apiVersion: v1
kind: PersistentVolume
metadata: {name: v}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  hostPath: {path: /data}
`
	configMap = `apiVersion: v1
kind: ConfigMap
metadata: {name: c}
data:
  key: value
`
	secret = `apiVersion: v1
kind: Secret
metadata: {name: s}
type: Opaque
data:
  key: dmFsdWU=
`
	class = `apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: c}
provisioner: example.com/p
reclaimPolicy: Delete
volumeBindingMode: Immediate
`
	definition = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Thing, plural: things, singular: thing, listKind: ThingList}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object}}
`
	apiService = `apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1beta1.metrics.k8s.io}
spec:
  group: metrics.k8s.io
  version: v1beta1
  groupPriorityMinimum: 100
  versionPriority: 100
  service: {name: s, namespace: default}
  insecureSkipTLSVerify: true
`
)

// with replaces a line of an object, and marks it unless the new text has a mark.
func with(text, line, by string) string {
	if strings.Count(text, line+"\n") != 1 {
		panic(fmt.Sprintf("%q is not one line of\n%s", line, text))
	}
	if !strings.Contains(by, "#!") {
		by += " #!"
	}
	return strings.Replace(text, line+"\n", by+"\n", 1)
}

var mistakes = []mistake{
	{"an API that was removed", "apiVersion: policy/v1beta1\nkind: PodDisruptionBudget #!\nmetadata: {name: p}\nspec: {}\n", "policy/v1beta1, kind PodDisruptionBudget was removed in v1.25"},
	{"an older API that was removed", "apiVersion: extensions/v1beta1\nkind: Ingress #!\nmetadata: {name: p}\n", "was removed in v1.22"},
	{"an API that is no longer linked", "apiVersion: autoscaling/v2beta2\nkind: HorizontalPodAutoscaler #!\nmetadata: {name: p}\n", "was removed in v1.26"},
	{"an old version of CustomResourceDefinition", "apiVersion: apiextensions.k8s.io/v1beta1\nkind: CustomResourceDefinition #!\nmetadata: {name: p}\n", "has no kind CustomResourceDefinition in apiextensions.k8s.io/v1beta1"},
	{"a misspelled kind", "apiVersion: apps/v1\nkind: Deploymentt #!\nmetadata: {name: d}\n", "has no kind Deploymentt in apps/v1"},
	{"a kind of another group", "apiVersion: v1\nkind: Deployment #!\nmetadata: {name: d}\n", "has no kind Deployment in v1"},
	{"a misspelled group", "apiVersion: app/v1\nkind: Deployment #!\nmetadata: {name: d}\n", "has no kind Deployment in app/v1"},
	{"a version that does not exist", "apiVersion: apps/v2\nkind: Deployment #!\nmetadata: {name: d}\n", "has no kind Deployment in apps/v2"},
	{"a request", "apiVersion: authentication.k8s.io/v1\nkind: TokenReview #!\nmetadata: {name: d}\nspec: {}\n", "cannot be applied"},
	{"a number in quotes", with(pod, "    - {containerPort: 80, name: http}", `    - {containerPort: "80", name: http}`), `spec.containers[0].ports[0].containerPort: "80" is not a number`},
	{"a number for a text", with(pod, `    - {name: A, value: "1"}`, `    - {name: A, value: 1}`), "env[0].value: 1 is not a string"},
	{"a list for an object", with(pod, "  labels: {app: p}", "  labels: [app]"), "metadata.labels: a list is not an object"},
	{"a text for a list", with(policy, "  policyTypes: [Ingress]", "  policyTypes: Ingress"), `"Ingress" is not a list`},
	{"a number with a fraction", with(deployment, "  replicas: 1", "  replicas: 1.5"), "replicas: 1.5 is not a number of 32 bits"},
	{"a number that is too large", with(deployment, "  replicas: 1", "  replicas: 99999999999"), "replicas: 99999999999 is not a number of 32 bits"},
	{"a truth value in quotes", with(secret, "type: Opaque", `immutable: "true"`), "immutable: a string is not true or false"},
	{"an unknown field", with(pod, "  restartPolicy: Always", "  restartPolice: Always"), "spec.restartPolice: unknown field"},
	{"an unknown field in a list", with(service, "  - {name: http, port: 80, targetPort: http}", "  - {name: http, port: 80, target: http}"), "spec.ports[0].target: unknown field"},
	{"an unknown field of a definition", with(definition, "  scope: Namespaced", "  scopes: Namespaced"), "spec.scopes: unknown field"},
	{"an unknown field of the metadata", with(pod, "  labels: {app: p}", "  label: {app: p}"), "metadata.label: unknown field"},
	{"a field in another case", with(pod, "  restartPolicy: Always", "  restartpolicy: Always"), "spec.restartpolicy: unknown field"},
	{"a name that is none", with(pod, "  name: p", "  name: Bad_Name"), "a lowercase RFC 1123 subdomain"},
	{"a name that is too long", with(configMap, "metadata: {name: c}", "metadata: {name: "+strings.Repeat("a", 254)+"}"), "must be no more than 253"},
	{"a service's name", with(service, "metadata: {name: s}", "metadata: {name: a.b}"), "metadata.name: invalid value"},
	{"a label that is none", with(pod, "  labels: {app: p}", "  labels: {app: -p}"), "metadata.labels: invalid value"},
	{"a key of a label", with(pod, "  labels: {app: p}", "  labels: {a/b/c: p}"), "metadata.labels: invalid value"},
	{"a key of an annotation", with(pod, "  labels: {app: p}", "  annotations: {-a: p}"), "metadata.annotations: invalid value"},
	{"annotations that are too large", with(pod, "  labels: {app: p}", "  annotations: {a: "+strings.Repeat("x", 262145)+"}"), "metadata.annotations: too long"},
	{"a namespace that is none", with(configMap, "metadata: {name: c}", "metadata: {name: c, namespace: Bad_One}"), "metadata.namespace"},
	{"a selector that does not match", with(deployment, "      labels: {app: a}", "      labels: {app: b}"), "`selector` does not match template `labels`"},
	{"no selector", strings.Replace(deployment, "  selector:\n    matchLabels: {app: a}\n", "", 1), "spec.selector: required value"},
	{"an operator that does not exist", with(deployment, "    matchLabels: {app: a}", "    matchExpressions: [{key: app, operator: Is, values: [a]}]"), "operator"},
	{"a strategy that does not exist", with(deployment, "  strategy: {type: RollingUpdate}", "  strategy: {type: Rolling}"), "spec.strategy: unsupported value"},
	{"a negative number of pods", with(deployment, "  replicas: 1", "  replicas: -1"), "must be greater than or equal to 0"},
	{"a restart policy of a Deployment", with(deployment, "      containers:", "      restartPolicy: Never #!\n      containers:"), "spec.template.spec.restartPolicy: unsupported value"},
	{"a restart policy of a Job", with(job, "      restartPolicy: Never", "      restartPolicy: Always"), "spec.template.spec.restartPolicy: required value"},
	{"no restart policy of a Job", strings.Replace(job, "      restartPolicy: Never\n", "", 1), "spec.template.spec.restartPolicy: required value"},
	{"a restart policy that does not exist", with(pod, "  restartPolicy: Always", "  restartPolicy: Sometimes"), "spec.restartPolicy: unsupported value"},
	{"a pull policy that does not exist", with(pod, "    image: quay.io/team/a:1", "    image: quay.io/team/a:1\n    imagePullPolicy: Sometimes"), "imagePullPolicy: unsupported value"},
	{"a volume that is not defined", with(pod, "    - {name: v, mountPath: /v}", "    - {name: w, mountPath: /v}"), `volumeMounts[0].name: not found: "w"`},
	{"a mount without a path", with(pod, "    - {name: v, mountPath: /v}", "    - {name: v}"), "mountPath: required value"},
	{"two mounts of a path", with(pod, "    - {name: v, mountPath: /v}", "    - {name: v, mountPath: /v}\n    - {name: v, mountPath: /v}"), "volumeMounts"},
	{"two volumes with a name", with(pod, "  - {name: v, emptyDir: {}}", "  - {name: v, emptyDir: {}}\n  - {name: v, emptyDir: {}}"), "spec.volumes"},
	{"a volume with two sources", with(pod, "  - {name: v, emptyDir: {}}", "  - {name: v, emptyDir: {}, hostPath: {path: /v}}"), "may not specify more than 1 volume type"},
	{"two containers with a name", with(deployment, `      - {name: c, image: "quay.io/team/a:1"}`, "      - {name: c, image: \"quay.io/team/a:1\"}\n      - {name: c, image: \"quay.io/team/a:1\"}"), "spec.template.spec.containers"},
	{"no containers", strings.Replace(deployment, `      - {name: c, image: "quay.io/team/a:1"}`, "        []", 1), "spec.template.spec.containers: required value"},
	{"a container without a name", with(deployment, `      - {name: c, image: "quay.io/team/a:1"}`, `      - {image: "quay.io/team/a:1"}`), "containers"},
	{"a container with a bad name", with(deployment, `      - {name: c, image: "quay.io/team/a:1"}`, `      - {name: A_b, image: "quay.io/team/a:1"}`), "containers[0].name: invalid value"},
	{"two variables with a name", with(pod, "    env:", "    env: #!\n    - {name: A}"), "spec.containers[0].env"},
	{"a variable with two values", with(pod, `    - {name: A, value: "1"}`, `    - {name: A, value: "1", valueFrom: {fieldRef: {fieldPath: metadata.name}}}`), "may not be specified when"},
	{"a field of the pod that does not exist", with(pod, `    - {name: A, value: "1"}`, `    - {name: A, valueFrom: {fieldRef: {fieldPath: metadata.nome}}}`), "fieldPath"},
	{"a port out of range", with(pod, "    - {containerPort: 80, name: http}", "    - {containerPort: 70000, name: http}"), "must be between 1 and 65535"},
	{"a port with a bad name", with(pod, "    - {containerPort: 80, name: http}", "    - {containerPort: 80, name: HTTP_port}"), "ports[0].name: invalid value"},
	{"two ports with a name", with(pod, "    - {containerPort: 80, name: http}", "    - {containerPort: 80, name: http}\n    - {containerPort: 81, name: http}"), "ports[1].name: duplicate value"},
	{"a port twice", with(pod, "    ports:", "    ports: #!\n    - {containerPort: 80}"), "spec.containers[0].ports"},
	{"a protocol that does not exist", with(service, "  - {name: http, port: 80, targetPort: http}", "  - {name: http, port: 80, protocol: HTTP}"), "protocol: unsupported value"},
	{"a service without a port", strings.Replace(service, "  - {name: http, port: 80, targetPort: http}", "    []", 1), "spec.ports: required value"},
	{"two ports of a service without names", with(service, "  - {name: http, port: 80, targetPort: http}", "  - {port: 80}\n  - {port: 81}"), "name: required value"},
	{"a port of a service out of range", with(service, "  - {name: http, port: 80, targetPort: http}", "  - {name: http, port: 0}"), "must be between 1 and 65535"},
	{"a type of a service", with(service, "  type: ClusterIP", "  type: Cluster"), "spec.type: unsupported value"},
	{"an address of a service", with(service, "  type: ClusterIP", "  clusterIP: 10.96.0.300"), "must be a valid IP address"},
	{"an external name", strings.Replace(with(service, "spec:", "spec:"), "ClusterIP", "ExternalName", 1), "spec.externalName"},
	{"a bad quantity", with(pod, "    resources: {limits: {memory: 1Gi}}", "    resources: {limits: {memory: 1GB}}"), "resources.limits[memory]"},
	{"a quantity of a volume", with(claim, "  resources: {requests: {storage: 1Gi}}", "  resources: {requests: {storage: 1 Gi}}"), "resources.requests[storage]"},
	{"a request above the limit", with(pod, "    resources: {limits: {memory: 1Gi}}", "    resources: {limits: {memory: 1Gi}, requests: {memory: 2Gi}}"), "must be less than or equal to memory limit"},
	{"a resource that does not exist", with(pod, "    resources: {limits: {memory: 1Gi}}", "    resources: {limits: {mem: 1Gi}}"), "must be a standard resource"},
	{"a negative quantity", with(pod, "    resources: {limits: {memory: 1Gi}}", "    resources: {limits: {memory: -1Gi}}"), "must be greater than or equal to 0"},
	{"a probe without a handler", with(pod, "    livenessProbe: {httpGet: {path: /, port: 80}}", "    livenessProbe: {periodSeconds: 3}"), "must specify a handler type"},
	{"a probe with two handlers", with(pod, "    livenessProbe: {httpGet: {path: /, port: 80}}", "    livenessProbe: {httpGet: {path: /, port: 80}, tcpSocket: {port: 80}}"), "may not specify more than 1 handler type"},
	{"a probe with a bad port", with(pod, "    livenessProbe: {httpGet: {path: /, port: 80}}", "    livenessProbe: {httpGet: {path: /, port: 0}}"), "must be between 1 and 65535"},
	{"a probe that needs two successes", with(pod, "    livenessProbe: {httpGet: {path: /, port: 80}}", "    livenessProbe: {successThreshold: 2, httpGet: {path: /, port: 80}}"), "must be 1"},
	{"a schedule", with(cronJob, `  schedule: "0 3 * * *"`, `  schedule: "0 25 * * *"`), "spec.schedule: invalid value"},
	{"a concurrency policy", with(cronJob, "  concurrencyPolicy: Allow", "  concurrencyPolicy: Some"), "spec.concurrencyPolicy: unsupported value"},
	{"a time zone", with(cronJob, "  concurrencyPolicy: Allow", "  timeZone: Europe/Nowhere"), "spec.timeZone"},
	{"a network that is none", with(policy, "    - ipBlock: {cidr: 10.0.0.0/8}", "    - ipBlock: {cidr: 10.0.0.0/33}"), "ipBlock.cidr: invalid value"},
	{"an exception outside of the network", with(policy, "    - ipBlock: {cidr: 10.0.0.0/8}", "    - ipBlock: {cidr: 10.0.0.0/8, except: [192.168.0.0/16]}"), "must be a strict subset"},
	{"a type of a policy", with(policy, "  policyTypes: [Ingress]", "  policyTypes: [Ingres]"), "policyTypes[0]: unsupported value"},
	{"a path that is not absolute", with(ingress, "      - path: /", "      - path: a"), "must be an absolute path"},
	{"a type of a path", with(ingress, "        pathType: Prefix", "        pathType: Pref"), "pathType: unsupported value"},
	{"no type of a path", strings.Replace(with(ingress, "      - path: /", "      - path: /"), "        pathType: Prefix\n", "", 1), "pathType: required value"},
	{"a host that is none", with(ingress, "  - host: a.example.com", "  - host: a_b.example.com"), "host: invalid value"},
	{"an old backend", with(ingress, "        backend: {service: {name: s, port: {number: 80}}}", "        backend: {serviceName: s, servicePort: 80}"), "serviceName: unknown field"},
	{"an access mode", with(claim, "  accessModes: [ReadWriteOnce]", "  accessModes: [RWO]"), "accessModes: unsupported value"},
	{"a claim without a size", with(claim, "  resources: {requests: {storage: 1Gi}}", "  resources: {}"), "storage"},
	{"a volume without a size", with(strings.Replace(volume, "  capacity: {storage: 1Gi}\n", "", 1), "spec:", "spec:"), "spec.capacity: required value"},
	{"a reclaim policy", with(volume, "  persistentVolumeReclaimPolicy: Retain", "  persistentVolumeReclaimPolicy: Keep"), "unsupported value"},
	{"a class without a provisioner", strings.Replace(class, "provisioner: example.com/p\n", "", 1), "provisioner: required value"},
	{"a binding mode", with(class, "volumeBindingMode: Immediate", "volumeBindingMode: Later"), "volumeBindingMode: unsupported value"},
	{"a rule without verbs", strings.Replace(with(role, `- apiGroups: [""]`, `- apiGroups: [""]`), "  verbs: [get]\n", "", 1), "verbs"},
	{"a rule without a group", with(role, `- apiGroups: [""]`, "- resourceNames: [a]"), "apiGroups"},
	{"a subject without a namespace", with(binding, "- {kind: ServiceAccount, name: default, namespace: default}", "- {kind: ServiceAccount, name: default}"), "subjects[0].namespace: required value"},
	{"a role of another kind", with(binding, "  kind: ClusterRole", "  kind: Role"), "roleRef.kind: unsupported value"},
	{"both limits of a budget", with(budget, "spec:", "spec: #!\n  maxUnavailable: 1"), "cannot be both set"},
	{"a percentage that is none", with(budget, "  minAvailable: 1", "  minAvailable: 1%%"), "minAvailable"},
	{"a scaler with a maximum below its minimum", with(scaler, "  maxReplicas: 3", "  maxReplicas: 0"), "maxReplicas"},
	{"a metric of an unknown type", with(scaler, "  - type: Resource", "  - type: Resources"), "metrics[0]"},
	{"a ConfigMap above 1 MiB", with(configMap, "apiVersion: v1", "apiVersion: v1") + "  large: " + strings.Repeat("x", 1<<20) + "\n", "1048576"},
	{"a key of a ConfigMap", with(configMap, "  key: value", "  a/b: value"), "data[a/b]: invalid value"},
	{"a number in a ConfigMap", with(configMap, "  key: value", "  key: 7"), "data[key]: 7 is not a string"},
	{"a Secret above 1 MiB", with(secret, "data:", "stringData:\n  large: "+strings.Repeat("x", 1<<20)+"\ndata:"), "1048576"},
	{"a Secret that is not base64", with(secret, "  key: dmFsdWU=", "  key: value!"), "data[key]: the value is not base64"},
	{"a Secret of TLS without a key", strings.Replace(with(secret, "data:", "data:"), "type: Opaque", "type: kubernetes.io/tls", 1), "data[tls.crt]: required value"},
	{"a size of a claim", with(statefulSet, "      resources: {requests: {storage: 1Gi}}", "      resources: {requests: {storage: -1Gi}}"), "storage"},
	{"a name of a definition", with(definition, "metadata: {name: things.example.com}", "metadata: {name: thing.example.com}"), `"things.example.com"`},
	{"a definition without a stored version", strings.Replace(with(definition, "  versions:", "  versions:"), "    storage: true", "    storage: false", 1), "exactly one version"},
	{"a definition without a schema", strings.Replace(with(definition, "  - name: v1", "  - name: v1"), "    schema: {openAPIV3Schema: {type: object}}\n", "", 1), "schemas are required"},
	{"a name of an APIService", with(apiService, "metadata: {name: v1beta1.metrics.k8s.io}", "metadata: {name: v1.metrics.k8s.io}"), "metadata.name"},
	{"a quota of an unknown resource", "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: q}\nspec:\n  hard: {cpus: 1} #!\n", "must be a standard resource"},
	{"a limit of an unknown type", "apiVersion: v1\nkind: LimitRange\nmetadata: {name: q}\nspec:\n  limits:\n  - {type: Pods_, max: {cpu: 1}} #!\n", "spec.limits[0].type"},
	{"a priority of the system", "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: high}\nvalue: 2000000000 #!\n", "value"},
	{"a handler without a name", "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: kata}\nhandler: Kata_1 #!\n", "handler: invalid value"},
	{"a toleration", with(pod, "  restartPolicy: Always", "  tolerations: [{key: a, operator: Existss}]"), "tolerations[0].operator"},
	{"a host's port with its network", with(pod, "    - {containerPort: 80, name: http}", "    - {containerPort: 80, hostPort: 90000}"), "hostPort"},
	{"a security context", with(pod, "    image: quay.io/team/a:1", "    image: quay.io/team/a:1\n    securityContext: {privileged: true, allowPrivilegeEscalation: false}"), "allowPrivilegeEscalation"},
	{"an affinity", with(pod, "  restartPolicy: Always", "  affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{labelSelector: {}}]}}"), "topologyKey"},
	{"a DNS policy", with(pod, "  restartPolicy: Always", "  dnsPolicy: Cluster"), "spec.dnsPolicy: unsupported value"},
	{"a host alias", with(pod, "  restartPolicy: Always", "  hostAliases: [{ip: 10.0.0, hostnames: [a]}]"), "hostAliases[0].ip"},
	{"a namespace that nobody creates", with(configMap, "metadata: {name: c}", "metadata: {name: c, namespace: late}"), `no manifest creates the namespace "late"`},
	{"a kind that nobody defines", "apiVersion: x.example/v1\nkind: Thing #!\nmetadata: {name: t}\n", "no manifest defines the kind Thing of x.example"},
}

// marked returns the first line that ends with #!, or 0 if there is none.
func marked(text string) int {
	for i, line := range strings.Split(text, "\n") {
		if strings.HasSuffix(line, " #!") {
			return i + 1
		}
	}
	return 0
}

func errorsOf(problems []manifests.Problem) (list []string) {
	for _, p := range problems {
		if !p.Maybe {
			list = append(list, p.String())
		}
	}
	return list
}

func TestMistakesAreErrorsWithTheirLine(t *testing.T) {
	for _, m := range mistakes {
		found := errorsOf(apirules.World{Version: newest, Objects: decoded(t, "app.yaml", m.text, "")}.Check())
		place := "app.yaml:"
		if line := marked(m.text); line > 0 {
			place = fmt.Sprintf("app.yaml:%d:", line)
		}
		if !slices.ContainsFunc(found, func(s string) bool { return strings.HasPrefix(s, place) && strings.Contains(s, m.want) }) {
			for i := range found {
				found[i] = found[i][:min(len(found[i]), 400)]
			}
			t.Errorf("%s: want %s … %s, got\n  %s", m.name, place, m.want, strings.Join(found, "\n  "))
		}
	}
	t.Logf("%d mistakes", len(mistakes))
}

func TestObjectsWithoutMistakesAreAccepted(t *testing.T) {
	for _, text := range []string{pod, deployment, service, job, cronJob, ingress, policy, statefulSet, claim, role, binding, budget, scaler, volume, configMap, secret, class, definition, apiService} {
		for minor := 29; minor <= 38; minor++ {
			w := apirules.World{Version: fmt.Sprintf("v1.%d.1", minor), Objects: decoded(t, "app.yaml", text, "")}
			if found := errorsOf(w.Check()); len(found) > 0 {
				t.Errorf("v1.%d: %q\n%s", minor, found, text)
			}
		}
	}
}
