// Package apirules finds what the API server of a Kubernetes version refuses in objects, and what
// objects need that nothing creates.
//
// Fields and values are compared with the types of k8s.io/api. The rules are Kubernetes' own: the
// strategies and validation functions of k8s.io/kubernetes, with the defaults that the feature gates
// have in the version. What only that code or only that version knows is believed: see the table in
// fields.txt and the text of docs/build.md about it. No function uses the network.
package apirules
