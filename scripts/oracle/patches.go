package oracle

// patchFiles are patches of every type for every target of a version's kubeadm, and
// files that it ignores.
func patchFiles(version string) map[string]string {
	files := map[string]string{
		"kube-apiserver.yaml": `
metadata: {annotations: {example.com/owner: platform}}
spec:
  dnsPolicy: ClusterFirstWithHostNet
  containers:
  - name: kube-apiserver
    resources: {requests: {cpu: 500m}, limits: {memory: 4Gi}}
    volumeMounts: [{name: audit, mountPath: /var/log/audit}]
  volumes: [{name: audit, hostPath: {path: /var/log/audit, type: DirectoryOrCreate}}]
---
# Another document of the same file sees the first one's result.
spec:
  containers:
  - name: kube-apiserver
    volumeMounts: [{$patch: delete, mountPath: /etc/ssl/certs}]
  volumes: [{$patch: delete, name: ca-certs}]
`,
		"kube-apiserver1+json.json": `[
 {"op": "test", "path": "/metadata/annotations/example.com~1owner", "value": "platform"},
 {"op": "add", "path": "/spec/containers/0/command/-", "value": "--profiling=false"},
 {"op": "replace", "path": "/spec/containers/0/livenessProbe/timeoutSeconds", "value": 30}]`,
		"kube-apiserver2+merge.yaml":              "spec: {priority: null, terminationGracePeriodSeconds: 45}\n",
		"kube-controller-manager+merge.json":      `{"metadata": {"labels": {"tier": null, "team": "core"}}}`,
		"kube-controller-manager0+strategic.yaml": "spec: {containers: [{name: sidecar, image: registry.example.com/sidecar:1}]}\n",
		"kube-scheduler-b+json.yaml":              "- {op: remove, path: /spec/securityContext}\n",
		"kube-scheduler-a+strategic.yaml":         "spec: {securityContext: {runAsUser: 65534}}\n",
		"etcd.json":                               `{"spec": {"containers": [{"name": "etcd", "env": [{"name": "ETCD_DEBUG", "value": "1"}]}]}}`,
		"etcd+json.yaml":                          "- {op: copy, from: /metadata/namespace, path: /metadata/generateName}\n",
		"kubeletconfiguration.yaml":               "maxPods: 33\nclusterDNS: [192.0.2.53]\nevictionHard: {memory.available: 3%}\n",
		"kubeletconfiguration0+merge.yaml":        "authentication: {anonymous: {enabled: true}, webhook: null}\n",
		"kubeletconfiguration1+json.yaml":         "- {op: add, path: /featureGates, value: {}}\n- {op: add, path: /clusterDNS/0, value: 192.0.2.54}\n",
		"nested/kube-scheduler-c+merge.yaml":      "spec: {preemptionPolicy: Never}\n",
		"kubelet.yaml":                            "notATarget: true\n",
		"README.md":                               "not a patch",
		"etcd0.yaml":                              "",
	}
	if version == Newest {
		files["corednsdeployment.yaml"] = "spec: {replicas: 3, template: {spec: {nodeSelector: {infra: dns}, tolerations: [{key: infra, operator: Exists}]}}}\n"
		files["corednsdeployment1+json.yaml"] = "- {op: replace, path: /spec/template/spec/containers/0/resources/limits/memory, value: 200Mi}\n"
		files["corednsdeployment2+merge.yaml"] = "spec: {strategy: {rollingUpdate: {maxSurge: 1}}}\n"
		files["kubeproxydaemonset+strategic.yaml"] = "spec: {template: {spec: {containers: [{name: kube-proxy, resources: {requests: {cpu: 50m}}}]}}}\n"
		files["kubeproxydaemonset+json.yaml"] = "- {op: add, path: /spec/template/spec/dnsPolicy, value: Default}\n"
	}
	return files
}
