package cluster

import (
	"bytes"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
)

// TestUIDOfSnapshot reads a namespace as the API server stores it.
func TestUIDOfSnapshot(t *testing.T) {
	var stored bytes.Buffer
	namespace := &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "1234"}}
	if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(namespace, &stored); err != nil {
		t.Fatal(err)
	}
	for value, want := range map[string]string{stored.String(): "1234", "k8s:enc:secretbox:v1:key:x": "", "": ""} {
		s := Snapshot{Prefix: "/registry", Values: map[string][]byte{"/registry/namespaces/kube-system": []byte(value)}}
		if got := s.UID(); got != want {
			t.Errorf("%q: %q, want %q", value, got, want)
		}
	}
}
