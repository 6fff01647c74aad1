package manifests_test

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"sigs.k8s.io/yaml"

	"airlift/builder/manifests"
)

const aHash = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// oneText returns a ConfigMap with one text.
func oneText(t *testing.T, key, text string) string {
	t.Helper()
	return object(t, map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a"}, "data": map[string]any{key: text}})
}

func object(t *testing.T, content map[string]any) string {
	t.Helper()
	text, err := yaml.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// resource returns a custom resource with this spec.
func resource(spec string) string {
	return "apiVersion: example.com/v1\nkind: Thing\nmetadata: {name: a}\nspec: " + spec + "\n"
}

// workload returns a Deployment whose container has these fields.
func workload(fields string) string {
	return "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: {template: {spec: {containers: [{name: a, image: own:v1, " + fields + "}]}}}\n"
}

// references returns what Maybe finds, sorted.
func references(t *testing.T, text string) (found []string) {
	t.Helper()
	for _, i := range manifests.Maybe(decode(t, text)) {
		found = append(found, i.Reference)
	}
	slices.Sort(found)
	return found
}

// These are the files in which users keep images: as they are in a ConfigMap.
func TestImagesInTexts(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"INI section", "[section]\nimage = \"quay.io/team/app:v1.2\"\n", "quay.io/team/app:v1.2"},
		{"INI comment and section", "; comment\n[section]\nimage = quay.io/team/app:v1.2\n", "quay.io/team/app:v1.2"},
		{"INI short name", "[kubernetes]\nworker_image = busybox:1.36\n", "docker.io/library/busybox:1.36"},
		{"INI name only", "[kubernetes]\nworker_image = busybox\n", "docker.io/library/busybox:latest"},
		{"TOML array of tables", "[[plugins]]\nimage = \"team/app:v1\"\n", "docker.io/team/app:v1"},
		{"GitLab runner", "concurrent = 10\n[[runners]]\n  executor = \"kubernetes\"\n  [runners.kubernetes]\n    image = \"alpine:3.20\"\n    helper_image = \"gitlab-runner-helper:x86_64-v17.5.0\"\n    [[runners.kubernetes.services]]\n      name = \"postgres:16.4\"\n",
			"docker.io/library/alpine:3.20 docker.io/library/gitlab-runner-helper:x86_64-v17.5.0 docker.io/library/postgres:16.4"},
		{"TOML list", "[runners.kubernetes]\nallowed_images = [\n  \"alpine:3.20\",\n  \"team/ruby:3\",\n]\n", "docker.io/library/alpine:3.20 docker.io/team/ruby:3"},
		{"TOML inline table", "[a]\nsidecar = { image = \"alpine:3.20\", cpu = 1 }\n", "docker.io/library/alpine:3.20"},
		{"containerd", "version = 3\n[plugins.'io.containerd.cri.v1.images'.pinned_images]\n  sandbox_image = 'registry.example.com/pause:3.10'\n", "registry.example.com/pause:3.10"},
		{"Airflow", "[kubernetes_executor]\nworker_container_repository = apache/airflow\nworker_container_tag = 2.10.0\nnamespace = airflow\n", "docker.io/apache/airflow:2.10.0"},
		{"Spark", "spark.kubernetes.container.image=apache/spark:3.5.1\nspark.kubernetes.driver.container.image apache/spark-driver:3.5.1\nspark.executor.instances=2\n",
			"docker.io/apache/spark-driver:3.5.1 docker.io/apache/spark:3.5.1"},
		{"Flink", "kubernetes.container.image.ref: flink:1.19-scala_2.12\n", "docker.io/library/flink:1.19-scala_2.12"},
		{"Java properties in parts", "# an example\napp.image.registry=quay.io\napp.image.repository=team/app\napp.image.tag=1.2.3\n", "quay.io/team/app:1.2.3"},
		{"Java property with a colon", "app.image:quay.io/team/app:1.2.3\n", "quay.io/team/app:1.2.3"},
		{"environment file", "export TOOL_IMAGE=\"busybox\"\nRUNNER_IMAGE='alpine:3'\n", "docker.io/library/alpine:3 docker.io/library/busybox:latest"},
		{"environment file in parts", "IMAGE_REGISTRY=quay.io\nIMAGE_NAME=team/app\nIMAGE_TAG=v2\n", "quay.io/team/app:v2"},
		{"shell default", "#!/bin/sh\nimage=${IMAGE:-busybox:1.36}\nother=${OTHER_IMAGE:=alpine:3.20}\n", "docker.io/library/alpine:3.20 docker.io/library/busybox:1.36"},
		{"shell flag", "set -e\nkubectl run tool --image busybox --restart Never\n", "docker.io/library/busybox:latest"},
		{"shell flag with =", "set -e\nkubectl run tool --image=busybox -- sleep 1\n", "docker.io/library/busybox:latest"},
		{"shell list", "IMAGES=\"busybox:1.36 alpine:3.20\"\nfor i in $IMAGES; do echo $i; done\n", "docker.io/library/alpine:3.20 docker.io/library/busybox:1.36"},
		{"docker run", "set -e\ndocker run --rm -p 8080:80 nginx:1.27.1 sleep 1\n", "docker.io/library/nginx:1.27.1"},
		{"kubectl set image", "kubectl -n a set image deployment/a c=nginx:1.27.1\n", "docker.io/library/nginx:1.27.1"},
		{"skopeo", "skopeo copy docker://alpine:3.20 dir:/tmp/x\n", "docker.io/library/alpine:3.20"},
		{"JSON in a shell script", "kubectl patch x -p '{\"spec\":{\"image\":\"busybox:1.36\"}}'\necho \"{\\\"image\\\": \\\"alpine:3.20\\\"}\"\n", "docker.io/library/alpine:3.20 docker.io/library/busybox:1.36"},
		{"Dockerfile", "FROM golang:1.22 AS build\nRUN make\nFROM alpine:3.20\nCOPY --from=build /a /a\n", "docker.io/library/alpine:3.20 docker.io/library/golang:1.22"},
		{"Dockerfile with a platform", "FROM --platform=linux/amd64 golang:1.22 AS build\nCOPY --from=alpine:3.20 /a /a\n", "docker.io/library/alpine:3.20 docker.io/library/golang:1.22"},
		{"shell loop", "for i in busybox:1.36 alpine:3.20; do docker pull $i; done\n", "docker.io/library/alpine:3.20 docker.io/library/busybox:1.36"},
		{"shell array", "images=(busybox:1.36 team/x:v1)\n", "docker.io/library/busybox:1.36 docker.io/team/x:v1"},
		{"lines in quotes", "IMAGES=\"\nbusybox:1.36\nalpine:3.20\n\"\n", "docker.io/library/alpine:3.20 docker.io/library/busybox:1.36"},
		{"helm --set", "helm upgrade a b --set image.repository=team/app --set image.tag=v1\n", "docker.io/team/app:v1"},
		{"TOML section of an image", "[image]\nname = \"busybox\"\ntag = \"1.36\"\n", "docker.io/library/busybox:1.36"},
		{"quadlet", "[Container]\nImage=busybox:1.36\nExec=sleep 1\n", "docker.io/library/busybox:1.36"},
		{"template of variables", "{{ if x }}\n- name: TOOL_IMAGE\n  value: busybox:1.36\n{{ end }}\n", "docker.io/library/busybox:1.36"},
		{"template of a list", "{{ if x }}\nimages:\n  - busybox:1.36\n  - alpine:3.20\n{{ end }}\n", "docker.io/library/alpine:3.20 docker.io/library/busybox:1.36"},
		{"Terraform", "variable \"image\" {\n  default = \"busybox:1.36\"\n}\n", "docker.io/library/busybox:1.36"},
		{"XML property", "<a>\n<property name=\"image\" value=\"busybox\"/>\n</a>\n", "docker.io/library/busybox:latest"},
		{"spark-submit", "spark-submit --conf spark.kubernetes.container.image=apache/spark:3.5 x.jar\n", "docker.io/apache/spark:3.5"},
		{"Jenkins XML", "<?xml version='1.1' encoding='UTF-8'?>\n<hudson>\n <clouds><template><image>maven:3.9-eclipse-temurin-17</image><image>jenkins/inbound-agent</image></template></clouds>\n <version>2.462.1</version>\n</hudson>\n",
			"docker.io/jenkins/inbound-agent:latest docker.io/library/maven:3.9-eclipse-temurin-17"},
		{"Jenkins variable", "<a>\n<envVar>\n<key>TOOL_IMAGE</key>\n<value>busybox:1.36</value></envVar>\n<key>OTHER</key><value>kafka:9092</value>\n</a>\n", "docker.io/library/busybox:1.36"},
		{"Jenkins strings", "<a>\n<string>TOOL_IMAGE</string>\n<string>busybox:1.36</string>\n</a>\n", "docker.io/library/busybox:1.36"},
		{"transport in a text", "set -e\nsource=docker://busybox:1.36\n", "docker.io/library/busybox:1.36"},
		{"XML CDATA", "<a><image><![CDATA[busybox:1.36]]></image></a>\n", "docker.io/library/busybox:1.36"},
		{"list with semicolons", "set -e\nimages=a/b:1;a/c:2\n", "docker.io/a/b:1 docker.io/a/c:2"},
		{"list with bars", "set -e\nimages=a/b:1|a/c:2|busybox:1.36\n", "docker.io/a/b:1 docker.io/a/c:2 docker.io/library/busybox:1.36"},
		{"names in a flag", "set -e\ntool --images=sidecar=busybox:1.36,other=alpine:3.20 --port=http:80 --peer=kafka:v1\n", "docker.io/library/alpine:3.20 docker.io/library/busybox:1.36"},
		{"pinned name", "set -e\nx=busybox@" + aHash + "\n", "docker.io/library/busybox@" + aHash},
		{"block comments", "/*\n * image = busybox:9\n */\nimage = busybox:1.36; /* image = busybox:8 */\n<!--\nimage=busybox:7 -->\n", "docker.io/library/busybox:1.36"},
		{"no block comments", "cp /etc/* /tmp\nimage=busybox:1.36\nls /*.conf */x\n/* no end\nother_image=alpine:3.20\n", "docker.io/library/alpine:3.20 docker.io/library/busybox:1.36"},
		{"XML attribute", "<pod>\n  <container name=\"a\" image=\"busybox\"/>\n</pod>\n", "docker.io/library/busybox:latest"},
		{"Jenkins as code", "jenkins:\n  clouds:\n  - kubernetes:\n      templates:\n      - containers:\n        - {name: jnlp, image: \"jenkins/inbound-agent:3261\"}\n        yaml: |\n          spec:\n            containers:\n            - image: maven:3.9\n",
			"docker.io/jenkins/inbound-agent:3261 docker.io/library/maven:3.9"},
		{"Jenkins groovy", "pipeline {\n  agent { docker { image 'maven:3.9' } }\n  steps { script { docker.image('node:20.1').inside { sh 'x' } } }\n}\n", "docker.io/library/maven:3.9 docker.io/library/node:20.1"},
		{"Jenkins groovy pod", "podTemplate(containers: [\n  containerTemplate(name: 'go', image: 'golang:1.22', command: 'sleep'),\n  containerTemplate(name: 'x', image: 'team/x')\n]) { node(POD_LABEL) {} }\n", "docker.io/library/golang:1.22 docker.io/team/x:latest"},
		{"HCL", "job \"a\" {\n  task \"b\" {\n    config {\n      image = \"redis:7\"\n    }\n  }\n}\n", "docker.io/library/redis:7"},
		{"HCL in parts", "app {\n  repository = \"team/app\"\n  tag        = \"1.2.3\"\n}\n", "docker.io/team/app:1.2.3"},
		{"YAML", "image: busybox\n", "docker.io/library/busybox:latest"},
		{"YAML list", "images:\n- busybox:1.36\n- alpine:3.20\n", "docker.io/library/alpine:3.20 docker.io/library/busybox:1.36"},
		{"YAML documents", "a: 1\n---\nimage: busybox:1.36\n---\n[section]\nimage = alpine:3.20\n", "docker.io/library/alpine:3.20 docker.io/library/busybox:1.36"},
		{"YAML with carriage returns", "a: 1\r\nimage: busybox:1.36\r\n", "docker.io/library/busybox:1.36"},
		{"YAML with a repeated key", "image: busybox:1.36\nimage: alpine:3.20\n", "docker.io/library/alpine:3.20 docker.io/library/busybox:1.36"},
		{"YAML in YAML in YAML", "a: |\n  b: |\n    c: |\n      image: busybox:1.36\n", "docker.io/library/busybox:1.36"},
		{"template of YAML", "{{- if .x }}\nimage: \"busybox:1.36\"\nsidecarImage: team/x\n{{- end }}\n", "docker.io/library/busybox:1.36 docker.io/team/x:latest"},
		{"template of a YAML list", "{{ range .x }}\nimages:\n  - busybox:1.36\n{{ end }}\n", "docker.io/library/busybox:1.36"},
		{"template of YAML in parts", "{{ if x }}\nimage:\n  repository: team/app\n  tag: v2\n{{ end }}\n", "docker.io/team/app:v2"},
		{"JSON documents", "{\"a\": 1}\n{\"image\": \"busybox:1.36\"}\n", "docker.io/library/busybox:1.36"},
		{"JSON with comments", "{\n  // a comment\n  \"image\": \"busybox:1.36\",\n}\n", "docker.io/library/busybox:1.36"},
		{"JSON in YAML", "template: '{\"containers\":[{\"image\":\"busybox\"}]}'\n", "docker.io/library/busybox:latest"},
		{"text before YAML", "\"quoted\"\nimage: busybox:1.36\n", "docker.io/library/busybox:1.36"},
		{"Fluent Bit", "[SERVICE]\n    Flush 1\n[FILTER]\n    Image ghcr.io/team/app:v1\n    Helper_Image busybox:1.36\n", "docker.io/library/busybox:1.36 ghcr.io/team/app:v1"},
		{"Python", "import x\nx.run(image=\"busybox:1.36\", image_pull_policy=\"Always\")\nIMAGES = ('alpine:3.20', 'team/x:v1')\n", "docker.io/library/alpine:3.20 docker.io/library/busybox:1.36 docker.io/team/x:v1"},
		{"Python arguments", "import x\nsubprocess.run([\"kubectl\", \"run\", \"--image\", \"busybox\", \"x\"])\n", "docker.io/library/busybox:latest"},
		{"Lua", "local c = {\n  [\"image\"] = \"busybox:1.36\",\n}\n", "docker.io/library/busybox:1.36"},
		{"GitLab CI", "job:\n  image: {name: \"busybox:1.36\", entrypoint: [\"\"]}\n  services: [\"postgres:16.4\"]\n", "docker.io/library/busybox:1.36 docker.io/library/postgres:16.4"},
		{"Kustomize images", "images:\n- {name: app, newName: quay.io/team/app, newTag: v3}\n- {name: team/other, newTag: v4}\n", "docker.io/team/other:v4 quay.io/team/app:v3"},
		{"XML on one line", "<image>busybox:1.36</image>", "docker.io/library/busybox:1.36"},
		{"property on one line", "app.image:quay.io/team/app:1.2.3", "quay.io/team/app:1.2.3"},
		{"call on one line", "image(busybox:1.36)", "docker.io/library/busybox:1.36"},
		{"number of a build as tag", "a = harbor.example.net/team/app:42\nb = harbor.example.net:5000/app:7\n", "harbor.example.net/team/app:42 harbor.example.net:5000/app:7"},
		{"user data in base64", "userData: " + base64.StdEncoding.EncodeToString([]byte("#cloud-config\nruncmd: [docker run busybox:1.36]\n")) + "\n", "docker.io/library/busybox:1.36"},
		{"base64 of base64", base64.StdEncoding.EncodeToString([]byte("image: busybox:1.36\n")) + "\n", "docker.io/library/busybox:1.36"},
		{"Secret in a ConfigMap", "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\ndata: {a: " + base64.StdEncoding.EncodeToString([]byte("[a]\nimage = busybox:1.36\n")) + "}\n", "docker.io/library/busybox:1.36"},
	} {
		want := strings.Fields(c.want)
		if got := references(t, oneText(t, "key", c.text)); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", c.name, got, want)
		}
		secret := object(t, map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "a"},
			"data": map[string]any{"key": base64.StdEncoding.EncodeToString([]byte(c.text))}})
		if got := references(t, secret); !slices.Equal(got, want) {
			t.Errorf("%s in a Secret: %q, want %q", c.name, got, want)
		}
	}
}

func TestImagesInParts(t *testing.T) {
	hash := "docker.io/team/app@" + aHash
	for _, c := range []struct{ text, want string }{
		{"{name: team/app, tag: v1}", "docker.io/team/app:v1"},
		{"{image: {name: busybox, tag: \"1.36\"}}", "docker.io/library/busybox:1.36"},
		{"{registry: quay.io, name: team/app, tag: v1}", "quay.io/team/app:v1"},
		{"{registry: quay.io, name: app, tag: 2}", "quay.io/app:2"},
		{"{imageRepository: team/app, imageTag: v1}", "docker.io/team/app:v1"},
		{"{imageRegistry: quay.io, imageRepository: team/app, imageTag: v1}", "quay.io/team/app:v1"},
		{"{imageName: team/app, imageTag: v1}", "docker.io/team/app:v1"},
		{"{image: team/app, imageTag: v1}", "docker.io/team/app:v1"},
		{"{proxyImage: team/proxy, proxyTag: v1}", "docker.io/team/proxy:v1"},
		{"{proxyImageRepository: team/proxy, proxyImageTag: v1}", "docker.io/team/proxy:v1"},
		{"{image: {repository: team/app, tag: v1, digest: \"" + aHash + "\"}}", hash},
		{"{image: {repository: team/app, digest: \"" + aHash + "\"}}", hash},
		{"{image: {repository: team/app, tag: v1, sha: \"" + strings.TrimPrefix(aHash, "sha256:") + "\"}}", hash},
		{"{image: {repository: team/app, tag: v1, digest: \"\"}}", "docker.io/team/app:v1"},
		{"{image: {repository: team/app, tag: \"v1@" + aHash + "\"}}", hash},
		{"{registry: quay.io, image: \"team/app:v1\"}", "quay.io/team/app:v1"},
		{"{repository: quay.io, name: team/app, tag: v1}", "quay.io/team/app:v1"},
		{"{images: [\"busybox:1.36\", \"alpine:3.20\"]}", "docker.io/library/alpine:3.20 docker.io/library/busybox:1.36"},
		{"{images: \"busybox:1.36,team/app:v1\"}", "docker.io/library/busybox:1.36 docker.io/team/app:v1"},
		{"{params: [{name: BUILDER_IMAGE, value: busybox}, {name: image, default: alpine}]}", "docker.io/library/alpine:latest docker.io/library/busybox:latest"},
		{"{helm: {parameters: [{name: image.repository, value: team/app}, {name: image.tag, value: v1}]}}", "docker.io/team/app:v1"},
		{"{source: {helm: {values: \"image:\\n  repository: team/app\\n  tag: v1\\n\"}}}", "docker.io/team/app:v1"},
		{"{kustomize: {images: [\"app=quay.io/team/app:v1\", \"busybox:1.36\"]}}", "docker.io/library/busybox:1.36 quay.io/team/app:v1"},
		{"{steps: [{image: busybox, script: \"#!/bin/sh\\ncrictl pull alpine:3.20\\n\"}]}", "docker.io/library/alpine:3.20 docker.io/library/busybox:latest"},
		{"{config: \"-Dspark.kubernetes.container.image=apache/spark:3.5.1\"}", "docker.io/apache/spark:3.5.1"},
		{"{config: \"{\\\"image\\\":\\\"busybox\\\"}\"}", "docker.io/library/busybox:latest"},
		{"{image: {repository: \"quay.io/a/b:v1\", digest: \"" + aHash + "\"}}", "quay.io/a/b@" + aHash},
		{"{image: {registry: quay.io, repository: \"a/b:v1\", digest: \"" + aHash + "\"}}", "quay.io/a/b@" + aHash},
		{"{image: quay.io/a/b, sha256: " + strings.TrimPrefix(aHash, "sha256:") + "}", "quay.io/a/b@" + aHash},
		{"{image: \"quay.io/a/b:v1\", sha: 0123456789012345678901234567890123456abc}", "quay.io/a/b:v1"},
		{"{name: tool, version: v1.2.3, sha256: " + strings.TrimPrefix(aHash, "sha256:") + "}", ""},
		{"{registry: quay.io, namespace: a, name: b, tag: v1}", "quay.io/a/b:v1"},
		{"{registry: quay.io, organization: a, name: b, tag: v1}", "quay.io/a/b:v1"},
		{"{registry: quay.io, namespace: kube-system, repository: a/b, tag: v1}", "quay.io/a/b:v1"},
		{"{namespace: kube-system, image: b, tag: v1}", "docker.io/library/b:v1"},
		{"{imageRegistry: quay.io, imageNamespace: a, imageName: b, imageTag: v1}", "quay.io/a/b:v1"},
		{"{registry: quay.io, repository: a, image: b, tag: v1}", "quay.io/a/b:v1"},
		{"{host: quay.io, repository: a/b, tag: v1}", "quay.io/a/b:v1"},
		{"{domain: quay.io, repository: a/b, tag: v1}", "quay.io/a/b:v1"},
		{"{host: app.example.com, image: a/b, tag: v1}", "docker.io/a/b:v1"},
		{"{imagePrefix: quay.io/a/, imageName: b, imageTag: v1}", "quay.io/a/b:v1"},
		{"{imagePrefix: quay.io/a, imageName: b, imageTag: v1}", "quay.io/a/b:v1"},
		{"{hub: quay.io/a, image: b, tag: v1}", "quay.io/a/b:v1"},
		{"{hub: quay.io/a, image: ghcr.io/c/d, tag: v1}", "ghcr.io/c/d:v1"},
		{"{registry: quay.io, path: a/b, tag: v1}", "quay.io/a/b:v1"},
		{"{registry: quay.io, path: /a/b, tag: v1}", ""},
		{"{images: {a: \"busybox:1.36\", b: alpine}}", "docker.io/library/alpine:latest docker.io/library/busybox:1.36"},
		{"{defaultImages: {tool: \"busybox:1.36\", x: \"team/y:1\"}}", "docker.io/library/busybox:1.36 docker.io/team/y:1"},
		{"{images: {registry: quay.io, tag: v1, pullPolicy: Always, enabled: \"true\", kube: v1.2.3}}", ""},
		{"{images: [{name: app, newTag: v3}]}", "docker.io/library/app:v3"},
		{"{image: \"docker://busybox:1.36\"}", "docker.io/library/busybox:1.36"},
		{"{image: \"docker://team/app\", tag: v1}", "docker.io/team/app:v1"},
		{"{source: {registry: {url: \"docker://quay.io/containerdisks/fedora:40\"}}}", "quay.io/containerdisks/fedora:40"},
		{"{x: \"busybox@" + aHash + "\"}", "docker.io/library/busybox@" + aHash},
		{"{tag: \"v1.2@" + aHash + "\"}", ""},
		// The controller adds the name: kubeadm's imageRepository.
		{"{dns: {imageRepository: registry.k8s.io, imageTag: v1.11.1}}", ""},
	} {
		want := strings.Fields(c.want)
		if got := references(t, resource(c.text)); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", c.text, got, want)
		}
	}
}

func TestImagesOfContainers(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`args: ["--image", "busybox"]`, "docker.io/library/busybox:latest"},
		{`args: ["--image=busybox"]`, "docker.io/library/busybox:latest"},
		{`args: ["--images=busybox:1.36,alpine:3.20"]`, "docker.io/library/alpine:3.20 docker.io/library/busybox:1.36"},
		{`args: ["--images", "busybox:1.36,alpine:3.20"]`, "docker.io/library/alpine:3.20 docker.io/library/busybox:1.36"},
		{`args: ["--image-repository=team/app", "--image-tag=v1"]`, "docker.io/team/app:v1"},
		{`args: ["--image-repository", "team/app", "--image-tag", "v1"]`, "docker.io/team/app:v1"},
		{`command: [sh, -c, "tool --image busybox; tool --image alpine"]`, "docker.io/library/alpine:latest docker.io/library/busybox:latest"},
		{`command: [sh, -c, "tool --config '{\"image\": \"busybox:1.36\"}'"]`, "docker.io/library/busybox:1.36"},
		{`command: ["crictl", "pull", "busybox:1.36"]`, "docker.io/library/busybox:1.36"},
		{`command: ["/usr/bin/docker", "run", "-p", "8080:80", "alpine:3"]`, "docker.io/library/alpine:3"},
		{`command: [crictl], args: [pull, "busybox:1.36"]`, "docker.io/library/busybox:1.36"},
		{`command: [docker-entrypoint.sh, "redis:7"]`, ""},
		{`args: ["--images=sidecar=busybox:1.36"]`, "docker.io/library/busybox:1.36"},
		{`env: [{name: IMAGES, value: "a/b:1;a/c:2"}]`, "docker.io/a/b:1 docker.io/a/c:2"},
		{`env: [{name: IMAGES, value: "a/b:1|a/c:2"}]`, "docker.io/a/b:1 docker.io/a/c:2"},
		{`env: [{name: IMAGES, value: "busybox:1.36,alpine:3.20"}]`, "docker.io/library/alpine:3.20 docker.io/library/busybox:1.36"},
		{`env: [{name: IMAGES, value: "[\"busybox:1.36\"]"}]`, "docker.io/library/busybox:1.36"},
		{`env: [{name: CONFIG, value: "{\"sidecar\": {\"image\": \"busybox\"}}"}]`, "docker.io/library/busybox:latest"},
		{`env: [{name: CONFIG, value: "[a]\nimage = busybox\n"}]`, "docker.io/library/busybox:latest"},
		{`env: [{name: IMAGE_REPOSITORY, value: team/app}, {name: IMAGE_TAG, value: v1}]`, "docker.io/team/app:v1"},
		{`env: [{name: REGISTRY, value: quay.io}, {name: IMAGE, value: team/app}, {name: TAG, value: v1}]`, "quay.io/team/app:v1"},
		{`env: [{name: JAVA_OPTS, value: "-Xmx1g -Dagent.image=busybox:1.36"}]`, "docker.io/library/busybox:1.36"},
	} {
		want := strings.Fields(c.want)
		if got := references(t, workload(c.text)); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", c.text, got, want)
		}
	}
}

// PowerShell writes files in UTF-16, and kubectl stores them as binary data.
func TestImageInUTF16(t *testing.T) {
	for _, order := range []binary.AppendByteOrder{binary.LittleEndian, binary.BigEndian} {
		var content []byte
		for _, unit := range utf16.Encode([]rune("\ufeff[a]\r\nimage = busybox\r\n")) {
			content = order.AppendUint16(content, unit)
		}
		text := object(t, map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a"},
			"binaryData": map[string]any{"key": base64.StdEncoding.EncodeToString(content)}})
		if got := references(t, text); !slices.Equal(got, []string{"docker.io/library/busybox:latest"}) {
			t.Errorf("%v: %q", order, got)
		}
	}
}

// Schemas of operators have the parts of an image as defaults of several fields.
func TestImageInPartsOfADefinition(t *testing.T) {
	text := "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: a.example.com}\n" +
		"spec: {versions: [{schema: {openAPIV3Schema: {properties: {image: {properties: {repository: {default: team/app}, tag: {default: v1}}}}}}}]}\n"
	if got := references(t, text); !slices.Equal(got, []string{"docker.io/team/app:v1"}) {
		t.Errorf("%q", got)
	}
}

func TestImagesInAnnotations(t *testing.T) {
	for text, want := range map[string]string{
		`{sidecar.example.com/image: busybox}`:                                   "docker.io/library/busybox:latest",
		`{sidecar.example.com/config: '{"image": "busybox"}'}`:                   "docker.io/library/busybox:latest",
		`{sidecar.example.com/images: 'busybox:1.36, alpine:3.20'}`:              "docker.io/library/alpine:3.20 docker.io/library/busybox:1.36",
		`{sidecar.example.com/config: "[a]\nimage = \"quay.io/team/app:v1\"\n"}`: "quay.io/team/app:v1",
	} {
		got := references(t, "apiVersion: v1\nkind: Service\nmetadata: {name: a, annotations: "+text+"}\n")
		if !slices.Equal(got, strings.Fields(want)) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// Each line is in a text of its own, below a section, and the value of a variable.
func TestTextsWithoutImages(t *testing.T) {
	for line := range strings.Lines(`version = 1.2.3
version: "v1.36.3"
go = "1.22"
image_version = v1.2.3
image.tag=v1.2.3
image.pullPolicy=IfNotPresent
image_pull_policy = "Always"
image_pull_secrets = ["registry-credentials"]
image_gc_high_threshold = 85%
image_registry = registry.example.com:5000
image = true
image_enabled: false
background_image = /var/www/logo.png
logo-image: logo.svg
image = disk.qcow2
url = https://quay.io/team/app:v1
url: http://app.example.com:8080/path:v1
jdbc:postgresql://db.example.com:5432/app
proxy_pass http://app.example.com/path:8080;
time = 10:30:00
at: "2024-01-02T10:30:00Z"
schedule = 10:30
host = db.example.com:5432
hosts = a.example.com:9092,b.example.com:9092
listen 0.0.0.0:8080
server: kafka:9092
address = [::1]:8080
path = /etc/config/app.yaml:/data
file = conf/app.yaml
include conf.d/*.conf
apiVersion: apps/v1
api = monitoring.coreos.com/v1
role = rbac.authorization.k8s.io/v1:Role
user = team/app
key = example.com/name
mail = a@example.com
ratio = 16/9
cidr = 10.0.0.0/8
range: 1.2.3-2.0.0
arn:aws:iam::123456789012:role/name
-----BEGIN CERTIFICATE-----
sum = sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
h1:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=
# image = quay.io/team/comment:v1
; image = quay.io/team/comment:v1
// image = quay.io/team/comment:v1
/* image = busybox:9 */
<!-- image=busybox:9 -->
containerRuntimeVersion = docker://20.10.7
containerID: docker://e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
daemon: docker://localhost:2375
--resources=nvidia.com/gpu:1
panic at github.com/team/app/main.go:123
toleration: node.kubernetes.io/not-ready/a:8080
at 2024.01.02/10:30
aGVsbG8gd29ybGQsIHRoaXMgaXMgdGV4dA==
tag: v1.2@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
<key>PEER</key><value>kafka:9092</value>
--peers=first=kafka:9092
-p 8080:80 -v data:/var/lib/data
name = app
tag = v1.2.3
name: app
The image is not there.
error: no such image: must be pulled
`) {
		line = strings.TrimSuffix(line, "\n")
		texts := map[string]string{
			"alone":   oneText(t, "key", line+"\n"),
			"section": oneText(t, "key", "[section]\n"+line+"\n"),
			"script":  oneText(t, "key", "{{ x }}\n"+line+"\nexit\n"),
			"value":   workload(fmt.Sprintf("env: [{name: A, value: %q}]", line)),
		}
		for name, text := range texts {
			if got := references(t, text); len(got) > 0 {
				t.Errorf("%s: %q is taken for %q", name, line, got)
			}
		}
	}
}

func TestImagesInTextsOfAFile(t *testing.T) {
	text, err := os.ReadFile("testdata/texts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, name := range []string{"fifth", "first", "fourth", "second", "sixth", "third"} {
		want = append(want, "quay.io/team/"+name+":v1.2.3")
	}
	want = slices.Insert(want, 0, "ghcr.io/team/seventh:v1")
	if got := references(t, string(text)); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
