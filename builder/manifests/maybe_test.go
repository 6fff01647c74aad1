package manifests_test

import (
	"encoding/base64"
	"testing"

	"github.com/google/go-cmp/cmp"

	"airlift/builder/manifests"
)

func maybes(t *testing.T, text string) (lines []string) {
	t.Helper()
	for _, i := range manifests.Maybe(decode(t, text)) {
		lines = append(lines, i.Field+" "+i.Reference)
	}
	return lines
}

func TestMaybe(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"operator", `
apiVersion: apps/v1
kind: Deployment
metadata: {name: op}
spec:
  template:
    spec:
      containers:
      - name: op
        image: quay.io/team/op:v1
        args:
        - --prometheus-config-reloader=quay.io/team/reloader:v0.9
        - --acme-http01-solver-image=team/solver:v1
        - --helper-image
        - busybox:1.36
        - --self=quay.io/team/op:v1
        - --leader-elect
        - --metrics-bind-address=0.0.0.0:8080
        - --kubelet-service=kube-system/kubelet
        - --tcp-services-configmap=ingress/tcp:8080
        - --endpoint=https://quay.io/team/x:v1
        - --config=/etc/config:v1
        env:
        - {name: RELATED_IMAGE_DB, value: "registry.example.com:5000/db@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}
        - {name: SIDECAR_IMAGE, value: "sidecar"}
        - {name: IMAGE_PULL_POLICY, value: "ifnotpresent"}
        - {name: SERVER, value: "db.example.com:5432/name"}
        - {name: LIST, value: "quay.io/a/b:v1,quay.io/a/c:v1"}
`, []string{
			"spec.template.spec.containers[0].args[0] quay.io/team/reloader:v0.9",
			"spec.template.spec.containers[0].args[1] docker.io/team/solver:v1",
			"spec.template.spec.containers[0].args[3] docker.io/library/busybox:1.36",
			"spec.template.spec.containers[0].env[0].value registry.example.com:5000/db@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
			"spec.template.spec.containers[0].env[1].value docker.io/library/sidecar:latest",
			"spec.template.spec.containers[0].env[4].value quay.io/a/b:v1",
			"spec.template.spec.containers[0].env[4].value quay.io/a/c:v1",
		}},
		{"custom resource", `
apiVersion: example.com/v1
kind: Cache
metadata: {name: a, annotations: {note: "see example.com/docs"}}
spec:
  image: redis
  exporter: {image: {repository: oliver/exporter, tag: v1.62.0, pullPolicy: Always}}
  agent: {registry: quay.io, repository: team/agent, tag: 2}
  prometheus: {image: quay.io/prometheus/prometheus, version: v3.1.0}
  driver: {repository: nvcr.io/nvidia, image: driver, version: "580.1"}
  toolkit: {repository: nvcr.io/nvidia/k8s, image: toolkit, version: "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}
  chart: {repository: "https://charts.example.com", version: 1.0.0}
  source: {repository: "https://git.example.com/team", image: memcached, version: 1.0.0}
  unversioned: {repository: quay.io/team/tools, image: tool}
  path: /a/b:v1
  host: example.com/path
  api: monitoring.coreos.com/v1
  time: "10:30"
`, []string{
			"spec.agent.repository quay.io/team/agent:2",
			"spec.driver.image nvcr.io/nvidia/driver:580.1",
			"spec.exporter.image.repository docker.io/oliver/exporter:v1.62.0",
			"spec.image docker.io/library/redis:latest",
			"spec.prometheus.image quay.io/prometheus/prometheus:v3.1.0",
			"spec.source.image docker.io/library/memcached:latest",
			"spec.toolkit.image nvcr.io/nvidia/k8s/toolkit@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
			"spec.unversioned.image quay.io/team/tools/tool:latest",
		}},
		{"config map with a pod", `
apiVersion: v1
kind: ConfigMap
metadata: {name: a}
data:
  helperPod.yaml: |
    apiVersion: v1
    kind: Pod
    metadata: {name: helper}
    spec: {containers: [{name: a, image: busybox}]}
  template: |
    {{- if .x }}
        image: team/app:v1
        - image: "{{ .Image }}"
    {{- end }}
  script: |
    docker run --rm quay.io/team/tool:v7 https://quay.io/team/no:v1 ./a/b:v1
  sidecar.json: '{"image": "team/json:v3"}'
  scan.repository: mirror.gcr.io/team/scan
  scan.tag: "1.0"
  nginx.conf: "proxy_pass http://app.example.com/path:8080;"
`, []string{
			`data["scan.repository"] mirror.gcr.io/team/scan:1.0`,
			`data["helperPod.yaml"].spec.containers[0].image docker.io/library/busybox:latest`,
			"data.script quay.io/team/tool:v7",
			`data["sidecar.json"].image docker.io/team/json:v3`,
			"data.template docker.io/team/app:v1",
		}},
		{"istio", `
apiVersion: v1
kind: ConfigMap
metadata: {name: a}
data:
  values: '{"global": {"hub": "docker.io/istio", "tag": "1.27.0", "proxy": {"image": "proxyv2"}}}'
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: gateway}
spec: {template: {metadata: {annotations: {inject.istio.io/templates: gateway}}, spec: {containers: [{name: istio-proxy, image: auto}]}}}
`, []string{"data.values.global.proxy.image docker.io/istio/proxyv2:1.27.0", "spec.template.spec.containers[0].image "}},
		{"secret", `
apiVersion: v1
kind: Secret
metadata: {name: a}
data: {x: "` + base64.StdEncoding.EncodeToString([]byte("image: quay.io/team/x:v1\n")) + `", y: "AAEC"}
stringData: {z: "quay.io/team/z:v1"}
`, []string{"data.x.image quay.io/team/x:v1", "stringData.z quay.io/team/z:v1"}},
		{"definition", `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: a.example.com}
spec: {versions: [{schema: {openAPIV3Schema: {properties: {image: {description: "such as quay.io/team/no:v1", default: "quay.io/team/yes:v1"}}}}}]}
`, []string{"spec.versions[0].schema.openAPIV3Schema.properties.image.default quay.io/team/yes:v1"}},
	} {
		if diff := cmp.Diff(c.want, maybes(t, c.text)); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}
