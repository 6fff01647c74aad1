package config

import (
	"fmt"
	"slices"

	"airlift/internal/documents/problems"
	"airlift/internal/documents/strict"
)

// DecodeClusterConfiguration reads kubeadm's ClusterConfiguration, v1beta3,
// v1beta4 or v1, as in a configuration file or in the ConfigMap kubeadm-config.
// It sets no defaults.
//
// Warnings name fields that this API version or Airlift does not have. They are
// not errors, because a newer tool may have written the ConfigMap.
func DecodeClusterConfiguration(data []byte) (cluster Cluster, warnings []string, err error) {
	s := parse("ClusterConfiguration", data)
	if len(s.docs) == 0 || s.docs[0].group != kubeadmGroup || s.docs[0].kind != "ClusterConfiguration" || !slices.Contains(apiVersions, s.docs[0].version) {
		s.addf(1, "it is not ClusterConfiguration of kubeadm.k8s.io/v1beta3, v1beta4 or v1")
		return Cluster{}, nil, fmt.Errorf("decoding ClusterConfiguration: %w", s.Err())
	}
	s.check(false)
	for _, p := range s.Problems {
		warnings = append(warnings, fmt.Sprintf("line %d: %s", p.Line, p))
	}
	list := &problems.List{File: "ClusterConfiguration"}
	r := &reader{Decoder: strict.Decoder{List: list, Lines: strict.Lines{}, EmptyFields: true, EmptyItems: true}, lenient: true}
	r.Unknown, r.Replace = r.unknown, r.args
	cluster = *r.document(s.docs[0]).Interface().(*Cluster)
	if err := list.Err(); err != nil {
		return Cluster{}, nil, fmt.Errorf("decoding ClusterConfiguration: %w", err)
	}
	return cluster, warnings, nil
}
