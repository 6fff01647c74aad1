package sbom

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	"github.com/spdx/tools-golang/spdx/v2/v2_3"
)

// words are the formats' words for the kinds.
var words = map[Kind]struct {
	spdx      string
	cycloneDX cdx.ComponentType
}{
	Bundle: {"INSTALL", cdx.ComponentTypeApplication}, Release: {"INSTALL", cdx.ComponentTypeApplication},
	Component: {"APPLICATION", cdx.ComponentTypeApplication}, Binary: {"APPLICATION", cdx.ComponentTypeApplication}, Chart: {"APPLICATION", cdx.ComponentTypeApplication},
	Module: {"LIBRARY", cdx.ComponentTypeLibrary}, Deb: {"LIBRARY", cdx.ComponentTypeLibrary}, Apk: {"LIBRARY", cdx.ComponentTypeLibrary}, RPM: {"LIBRARY", cdx.ComponentTypeLibrary},
	Image: {"CONTAINER", cdx.ComponentTypeContainer}, Layer: {"ARCHIVE", cdx.ComponentTypeFile},
	Manifest: {"FILE", cdx.ComponentTypeFile}, File: {"FILE", cdx.ComponentTypeFile},
}

func (c *Contents) spdx(created time.Time) ([]byte, error) {
	name := c.Root.Name + "-" + c.Root.Version
	doc := &v2_3.Document{
		SPDXVersion: v2_3.Version, DataLicense: v2_3.DataLicense, SPDXIdentifier: "DOCUMENT", DocumentName: name,
		CreationInfo: &v2_3.CreationInfo{
			Creators: []common.Creator{{CreatorType: "Tool", Creator: "airlift"}},
			Created:  created.Format(time.RFC3339),
		},
	}
	relate := func(from, kind, to string) {
		doc.Relationships = append(doc.Relationships, &v2_3.Relationship{
			RefA: common.MakeDocElementID("", from), RefB: common.MakeDocElementID("", to), Relationship: kind})
	}
	relate("DOCUMENT", common.TypeRelationshipDescribe, c.Root.ID)
	for _, i := range append([]*Item{c.Root}, c.Items...) {
		doc.Packages = append(doc.Packages, i.spdx())
		for _, id := range i.Contains {
			relate(i.ID, common.TypeRelationshipContains, id)
		}
		for _, id := range i.DependsOn {
			relate(i.ID, common.TypeRelationshipDependsOn, id)
		}
	}
	return unique(func(w *bytes.Buffer, sum []byte) error {
		// Tools without a site use SPDX's own. Nothing is there.
		doc.DocumentNamespace = "https://spdx.org/spdxdocs/" + name + "-" + hex.EncodeToString(sum)
		return spdxjson.Write(doc, w, spdxjson.Indent(" "), spdxjson.EscapeHTML(false))
	})
}

func (i *Item) spdx() *v2_3.Package {
	p := &v2_3.Package{
		PackageName: i.Name, PackageSPDXIdentifier: common.ElementID(i.ID), PackageVersion: i.Version,
		PackageDownloadLocation: cmp.Or(i.URL, "NOASSERTION"), IsFilesAnalyzedTagPresent: true,
		PackageLicenseConcluded: "NOASSERTION", PackageLicenseDeclared: "NOASSERTION", PackageCopyrightText: "NOASSERTION",
		PackageSupplier:       &common.Supplier{Supplier: "NOASSERTION"},
		PrimaryPackagePurpose: words[i.Kind].spdx,
	}
	if i.SHA256 != "" {
		p.PackageChecksums = []common.Checksum{{Algorithm: common.SHA256, Value: i.SHA256}}
	}
	if i.PURL != "" {
		p.PackageExternalReferences = []*v2_3.PackageExternalReference{{
			Category: common.CategoryPackageManager, RefType: common.TypePackageManagerPURL, Locator: i.PURL}}
	}
	if source := i.property("sourcePackage"); source != "" {
		p.PackageSourceInfo = "built from the source package " + source + " " + i.property("sourceVersion")
	}
	var facts []string
	for _, f := range i.Properties {
		if f.Value != "" {
			facts = append(facts, f.Name+": "+f.Value)
		}
	}
	p.PackageComment = strings.Join(facts, "\n")
	return p
}
