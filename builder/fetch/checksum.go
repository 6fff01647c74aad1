package fetch

import (
	"context"
	"fmt"
	"path"
	"regexp"
	"strings"
)

var sha256Hex = regexp.MustCompile(`^[0-9a-fA-F]{64}$`)

// Checksum returns the sha256 that the site publishes at sumURL for the file at
// fileURL, and its source. If the site lists other files but not this one, the error is
// a *MissingError.
func (c *Client) Checksum(ctx context.Context, sumURL, fileURL string) (string, Source, error) {
	text, source, err := c.Text(ctx, sumURL)
	if err != nil {
		return "", source, err
	}
	sum, others := parseChecksum(text, path.Base(fileURL))
	switch {
	case sum != "":
		return sum, source, nil
	case len(others) > 0:
		return "", source, &MissingError{sumURL, fmt.Sprintf("has no checksum for %s, only for %s", path.Base(fileURL), few(others))}
	}
	return "", source, fmt.Errorf("reading %s: found no sha256 checksum", sumURL)
}

// few lists up to five of the names. It quotes them, because a site may send any bytes.
func few(names []string) string {
	var quoted []string
	for _, name := range names[:min(5, len(names))] {
		quoted = append(quoted, fmt.Sprintf("%.100q", name))
	}
	if len(names) > 5 {
		return fmt.Sprintf("%s and %d others", strings.Join(quoted, ", "), len(names)-5)
	}
	return strings.Join(quoted, ", ")
}

// parseChecksum finds the sha256 of a file. Sites use two forms: the bare hex (dl.k8s.io,
// cri-tools), or lines in the format of sha256sum, possibly for several files and with a
// signature. If the file is not listed, it returns the names of the listed files.
func parseChecksum(text, name string) (sum string, others []string) {
	var bare []string
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 || !sha256Hex.MatchString(f[0]) {
			continue
		}
		switch {
		case len(f) == 1:
			bare = append(bare, f[0])
		case len(f) == 2 && path.Base(strings.TrimPrefix(f[1], "*")) == name:
			return strings.ToLower(f[0]), nil
		case len(f) == 2:
			others = append(others, f[1])
		}
	}
	if len(bare) == 1 {
		return strings.ToLower(bare[0]), nil
	}
	return "", others
}
