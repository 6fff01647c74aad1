// Package sbom lists the software in a bundle, from the file alone: binaries with their
// Go modules, images with their layers and packages, and the site's own content. It
// writes the list as SPDX or CycloneDX. The same file gives the same bytes. It also lists the
// programs of a release of Airlift.
package sbom
