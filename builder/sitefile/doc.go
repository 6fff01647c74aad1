// Package sitefile reads bundle.yaml: the description of a bundle in a file, with the
// manifests, files and systemd units that the site adds.
package sitefile
