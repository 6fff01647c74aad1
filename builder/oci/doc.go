// Package oci reads the parts of an image: indexes, manifests, configs and layers. It does
// not know where they come from.
package oci
