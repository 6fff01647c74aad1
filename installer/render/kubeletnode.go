package render

import (
	"bytes"
	"errors"
	"regexp"

	"sigs.k8s.io/yaml"

	"airlift/internal/documents"
)

// kubeletVariable is the line of KubeletFlagsFile.
var kubeletVariable = regexp.MustCompile(`(?m)^[ \t]*KUBELET_KUBEADM_ARGS=`)

// IsKubeletFlagsFile reports whether a file sets the kubelet's flags, as KubeletFlagsFile does.
func IsKubeletFlagsFile(file []byte) bool {
	return kubeletVariable.Match(file) && bytes.IndexByte(file, 0) < 0
}

// OverlayKubeletConfig sets the fields of the instance configuration in a kubelet's configuration. nil means that
// the node has none.
func OverlayKubeletConfig(settings, instance []byte) ([]byte, error) {
	if instance == nil {
		return settings, nil
	}
	var doc, over map[string]any
	if err := documents.Unmarshal(settings, &doc); err != nil {
		return nil, err
	}
	if err := documents.Unmarshal(instance, &over); err != nil {
		return nil, err
	}
	if len(over) == 0 {
		return nil, errors.New("it is empty")
	}
	for key, value := range over {
		if key != "apiVersion" && key != "kind" {
			doc[key] = value
		}
	}
	return yaml.Marshal(doc)
}

// pauseFlag is the flag that kubelets from v1.35 on do not know.
var pauseFlag = regexp.MustCompile(` ?--pod-infra-container-image=[^ "]*`)

// KeptKubeletFlags returns the kubelet's flags without flags that this version does not know, or nil if it
// knows all.
func KeptKubeletFlags(flags []byte, minor int) []byte {
	if minor < PauseFlagGoneFrom || !pauseFlag.Match(flags) {
		return nil
	}
	return bytes.ReplaceAll(pauseFlag.ReplaceAll(flags, nil), []byte(`=" `), []byte(`="`))
}
