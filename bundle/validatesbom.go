package bundle

import (
	"fmt"
	"regexp"
	"strings"
)

var sbomFormat = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// maxSBOM is the maximum size of an SBOM in bytes. Readers may hold it in memory. A bundle of
// Kubernetes has less than 1 MB in each format.
const maxSBOM = 256 << 20

// checkSBOMs checks the lists of the software.
func (v validator) checkSBOMs(list []SBOM) error {
	last := ""
	for _, s := range list {
		e, ok := v.entries[s.Entry]
		switch {
		case !sbomFormat.MatchString(s.Format):
			return fmt.Errorf("sbom format %q does not match %s", s.Format, sbomFormat)
		case s.Format <= last:
			return fmt.Errorf("sbom %q is listed twice or out of order", s.Format)
		case !ok || !strings.HasPrefix(s.Entry, SBOMDir):
			return fmt.Errorf("sbom %q: entry %q does not exist in %s", s.Format, s.Entry, SBOMDir)
		case v.used[s.Entry]:
			return fmt.Errorf("sbom %q: entry %q belongs to two formats", s.Format, s.Entry)
		case e.Size > maxSBOM:
			return fmt.Errorf("sbom %q: %d bytes are more than the %d allowed", s.Format, e.Size, maxSBOM)
		}
		v.used[s.Entry] = true
		last = s.Format
	}
	return nil
}
