package main

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"airlift/internal/fault"
	"airlift/scripts/fixtures/rig"
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

// Stock tar takes the lists out of the file. bundle sbom prints the same bytes, two builds
// have the same, and --check makes them again.
func TestSBOMInTheFile(t *testing.T) {
	rig.Tool(t, "zstd")
	u := siteSites(t)
	s := siteShell(t, u)
	build := []string{"build", "--file", "site/bundle.yaml", "--launcher", "stub", "--installer", "stub"}
	if _, errs, code := s.run(build...); code != 0 {
		t.Fatal(errs)
	}
	out, errs, code := s.run("inspect", "site/site.bundle")
	_, line, ok := strings.Cut(out, "To list the files with tar:\n")
	if code != 0 || !ok {
		t.Fatal(out, errs)
	}
	has(t, "inspect", out, "SBOM", "sbom/bundle.spdx.json")
	for format, entry := range map[string]string{"spdx-json": "sbom/bundle.spdx.json", "cyclonedx-json": "sbom/bundle.cdx.json"} {
		want, errs, code := s.run("sbom", "site/site.bundle", "-o", format)
		if code != 0 || errs != "" || len(want) < 1000 {
			t.Errorf("%s: %d, %q, %d bytes", format, code, errs, len(want))
		}
		tar := exec.Command("bash", "-o", "pipefail", "-c", strings.TrimSpace(strings.Replace(line, " -t", " -xO "+entry, 1)))
		tar.Dir = s.dir
		if got, err := tar.CombinedOutput(); err != nil || string(got) != want {
			t.Errorf("%s: %v, %d bytes, want %d", tar, err, len(got), len(want))
		}
	}
	out, errs, code = s.run("sbom", "site/site.bundle", "--check")
	if has(t, errs, out, "the SBOM in site/site.bundle matches its contents: "); code != 0 {
		t.Error(code)
	}
	if _, errs, code := s.run("sbom", "site/site.bundle", "--check", "-o", "spdx-json"); code != fault.Usage {
		t.Errorf("%d: %s", code, errs)
	}
	// A file of an earlier release has none.
	golden, err := filepath.Abs(golden)
	if err != nil {
		t.Fatal(err)
	}
	if _, errs, code := s.run("sbom", golden, "--check"); code != fault.Bundle || !strings.Contains(errs, "contains no SBOM") {
		t.Errorf("%d: %s", code, errs)
	}
}
