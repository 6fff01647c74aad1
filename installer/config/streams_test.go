package config

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"airlift/scripts/fixtures/seed"

	"k8s.io/apimachinery/pkg/runtime/schema"
	kubeadmyaml "k8s.io/apimachinery/pkg/runtime/serializer/yaml"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
)

// kubeadmKindsOf returns the kinds in a file, in the way of SplitConfigDocuments in kubeadm's
// util/marshal.go, v1.37.1. ok is false if kubeadm refuses the file.
func kubeadmKindsOf(data []byte) (kinds map[schema.GroupVersionKind]bool, ok bool) {
	kinds = map[schema.GroupVersionKind]bool{}
	seen := map[string]bool{}
	for reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data))); ; {
		text, err := reader.Read()
		if len(text) == 0 {
			return kinds, true
		}
		if err != nil {
			return nil, false
		}
		gvk, err := kubeadmyaml.DefaultMetaFactory.Interpret(text)
		if utilyaml.IsJSONBuffer(text) && !json.Valid(text) { // the decoder of the document refuses it
			return nil, false
		}
		if err != nil || gvk.Empty() || gvk.Version == "" || gvk.Kind == "" || seen[gvk.Kind] {
			return nil, false
		}
		seen[gvk.Kind] = true
		kinds[*gvk] = true
	}
}

var streamDocuments = []string{
	"apiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\ncertificateKey: marker\n",
	"# comment\napiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nclusterName: marker\n",
	"{\"apiVersion\": \"kubeadm.k8s.io/v1beta4\",\n \"kind\": \"ClusterConfiguration\", \"clusterName\": \"marker\"}\n",
	"apiVersion: kubelet.config.k8s.io/v1beta1\r\nkind: KubeletConfiguration\r\nclusterDomain: marker\r\n",
	"apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nclusterCIDR: marker\n",
	"{\"apiVersion\":\"kubelet.config.k8s.io/v1beta1\",\"kind\":\"KubeletConfiguration\",\"clusterDomain\":\"marker\"}\n",
}

var streamJoints = []string{
	"---\n", "---\n", "---\r\n", "--- # comment\n", "---\n---\n", "",
	"...\n", "...\n---\n", "\n", ",\n", "# comment\n", "--- ", "---", "\r---\r", "\u2028---\u2028", "\ufeff", "---\n\ufeff", "%YAML 1.1\n---\n", "\x00", "{}", "---\nnull\n",
}

// No document vanishes: a file has the kinds that kubeadm finds and all values, or it is refused.
func TestDocumentsAreThoseOfKubeadm(t *testing.T) {
	random := rand.New(rand.NewPCG(seed.Value(t), 0))
	accepted := 0
	for range 5000 {
		var text strings.Builder
		count := 1 + random.IntN(3)
		for n := range count {
			if n > 0 || random.IntN(4) == 0 {
				text.WriteString(streamJoints[random.IntN(len(streamJoints))])
			}
			document := strings.ReplaceAll(streamDocuments[random.IntN(len(streamDocuments))], "marker", fmt.Sprintf("marker%d", n))
			if random.IntN(20) == 0 {
				document = strings.ReplaceAll(document, "\n", "\r")
			}
			text.WriteString(document)
		}
		s := parse("file", []byte(text.String()))
		if len(s.Problems) > 0 {
			continue
		}
		accepted++
		got, values := map[schema.GroupVersionKind]bool{}, ""
		for _, d := range s.docs {
			got[schema.GroupVersionKind{Group: d.group, Version: d.version, Kind: d.kind}] = true
			values += string(d.JSON)
		}
		if want, ok := kubeadmKindsOf([]byte(text.String())); ok && !maps.Equal(got, want) {
			t.Fatalf("%q: got %v, want %v", text.String(), got, want)
		}
		for n := range count {
			if marker := fmt.Sprintf("marker%d", n); !strings.Contains(values, marker) {
				t.Fatalf("%q: %s is lost", text.String(), marker)
			}
		}
	}
	if accepted < 500 {
		t.Errorf("only %d files were read", accepted)
	}
}
