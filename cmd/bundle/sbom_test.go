package main

import (
	"encoding/json"
	"testing"

	"airlift/fault"
)

func TestSBOM(t *testing.T) {
	out, err := command(t, "sbom", golden, "-o", "cyclonedx-json")
	if err != nil {
		t.Fatal(err)
	}
	var cdx struct {
		BOMFormat  string
		Components []struct{ Purl string }
	}
	if err := json.Unmarshal([]byte(out), &cdx); err != nil || cdx.BOMFormat != "CycloneDX" || len(cdx.Components) < 10 {
		t.Errorf("%v: %+v", err, cdx)
	}
	out, err = command(t, "sbom", golden)
	if err != nil {
		t.Fatal(err)
	}
	var spdx struct{ SPDXVersion, DocumentNamespace string }
	if err := json.Unmarshal([]byte(out), &spdx); err != nil || spdx.SPDXVersion != "SPDX-2.3" {
		t.Errorf("%v: %+v", err, spdx)
	}
	if _, err := command(t, "sbom", golden, "-o", "text"); fault.ExitCode(err) != fault.Usage {
		t.Errorf("unknown format: %v", err)
	}
	t.Setenv("SOURCE_DATE_EPOCH", "yesterday")
	if _, err := command(t, "sbom", golden); fault.ExitCode(err) != fault.Usage {
		t.Errorf("SOURCE_DATE_EPOCH: %v", err)
	}
	t.Setenv("SOURCE_DATE_EPOCH", "")
	if _, err := command(t, "sbom", "sbom_test.go"); fault.ExitCode(err) != fault.Bundle {
		t.Errorf("not a bundle: %v", err)
	}
}
