package cluster

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestUnchangedDefaults accepts only data with the checksum in the annotation.
func TestUnchangedDefaults(t *testing.T) {
	m := &corev1.ConfigMap{Data: map[string]string{"b": "2", "a": "1"}}
	if UnchangedDefaults(nil) || UnchangedDefaults(m) {
		t.Error("without an annotation")
	}
	m.Annotations = map[string]string{componentHash: "sha256:6b51d431df5d7f141cbececcf79edf3dd861c3b4069f0b11661a3eefacbba918"} // of "12"
	if !UnchangedDefaults(m) {
		t.Error("with the right sum")
	}
	m.Data["a"] = "0"
	if UnchangedDefaults(m) {
		t.Error("with another value")
	}
}
