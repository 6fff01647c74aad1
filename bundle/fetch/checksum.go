package fetch

import (
	"context"
	"fmt"
	"path"
	"regexp"
	"strings"
)

var sha256Hex = regexp.MustCompile(`^[0-9a-fA-F]{64}$`)

// Checksum returns the sha256 that a site publishes at sumURL for the file at
// fileURL.
func (c *Client) Checksum(ctx context.Context, sumURL, fileURL string) (string, error) {
	text, err := c.Text(ctx, sumURL)
	if err != nil {
		return "", err
	}
	sum, err := parseChecksum(text, path.Base(fileURL))
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", sumURL, err)
	}
	return sum, nil
}

// parseChecksum finds a file's sha256 in either form that sites use: the bare
// hex of dl.k8s.io and cri-tools, or lines as sha256sum writes them, perhaps
// for several files and with a signature around them.
func parseChecksum(text, name string) (string, error) {
	var bare, named []string
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
			named = append(named, f[1])
		}
	}
	if len(bare) == 1 {
		return strings.ToLower(bare[0]), nil
	}
	if len(named) > 0 {
		return "", fmt.Errorf("no checksum of %s there, only of %s", name, strings.Join(named, ", "))
	}
	return "", fmt.Errorf("no sha256 checksum there")
}
