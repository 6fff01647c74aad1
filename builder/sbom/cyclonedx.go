package sbom

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// cycloneDX returns the list as CycloneDX 1.6. Components are one flat list, because a
// module is part of many binaries. Its dependencies are both what an item contains and what
// it depends on.
func (c *Contents) cycloneDX(created time.Time) ([]byte, error) {
	root := c.Root.cycloneDX()
	tools := []cdx.Component{{Type: cdx.ComponentTypeApplication, Name: "airlift"}}
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Timestamp: created.Format(time.RFC3339), Component: &root, Tools: &cdx.ToolsChoice{Components: &tools}}
	var components []cdx.Component
	var dependencies []cdx.Dependency
	for n, i := range append([]*Item{c.Root}, c.Items...) {
		if n > 0 {
			components = append(components, i.cycloneDX())
		}
		if ids := slices.Concat(i.Contains, i.DependsOn); len(ids) > 0 {
			dependencies = append(dependencies, cdx.Dependency{Ref: i.ID, Dependencies: &ids})
		}
	}
	bom.Components, bom.Dependencies = &components, &dependencies
	return unique(func(w *bytes.Buffer, sum []byte) error {
		sum[6], sum[8] = sum[6]&0x0f|0x80, sum[8]&0x3f|0x80 // RFC 9562, version 8: a UUID of one's own data
		bom.SerialNumber = fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
		return cdx.NewBOMEncoder(w, cdx.BOMFileFormatJSON).SetPretty(true).SetEscapeHTML(false).EncodeVersion(bom, cdx.SpecVersion1_6)
	})
}

func (i *Item) cycloneDX() cdx.Component {
	c := cdx.Component{BOMRef: i.ID, Type: words[i.Kind].cycloneDX, Name: i.Name, Version: i.Version, PackageURL: i.PURL}
	if i.SHA256 != "" {
		c.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: i.SHA256}}
	}
	if i.URL != "" {
		c.ExternalReferences = &[]cdx.ExternalReference{{Type: cdx.ERTypeDistribution, URL: i.URL}}
	}
	properties := []cdx.Property{{Name: "airlift:kind", Value: string(i.Kind)}}
	for _, p := range i.Properties {
		if p.Value != "" {
			properties = append(properties, cdx.Property{Name: "airlift:" + p.Name, Value: p.Value})
		}
	}
	c.Properties = &properties
	return c
}
