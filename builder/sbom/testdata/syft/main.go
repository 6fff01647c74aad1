// Command syftread prints how syft reads an SBOM: a line for each package, with its type, name,
// version and package URL.
package main

import (
	"bytes"
	"fmt"
	"io"
	"os"

	"github.com/anchore/syft/syft/format/cyclonedxjson"
	"github.com/anchore/syft/syft/format/spdxjson"
	"github.com/anchore/syft/syft/sbom"
)

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	for _, d := range []sbom.FormatDecoder{spdxjson.NewFormatDecoder(), cyclonedxjson.NewFormatDecoder()} {
		if id, _ := d.Identify(bytes.NewReader(b)); id == "" {
			continue
		}
		doc, id, version, err := d.Decode(io.NewSectionReader(bytes.NewReader(b), 0, int64(len(b))))
		if err != nil {
			return err
		}
		fmt.Printf("format %s %s\n", id, version)
		for p := range doc.Artifacts.Packages.Enumerate() {
			fmt.Printf("package\t%s\t%s\t%s\t%s\n", p.Type, p.Name, p.Version, p.PURL)
		}
		for _, r := range doc.Relationships {
			fmt.Printf("relationship\t%s\n", r.Type)
		}
		return nil
	}
	return fmt.Errorf("%s: syft knows no such format", path)
}
