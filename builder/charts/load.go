package charts

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	archivefiles "helm.sh/helm/v4/pkg/chart/loader/archive"
	helm "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"

	"airlift/internal/fault"
)

const ociScheme = "oci://"

// A source is a loaded chart and where it came from.
type source struct {
	chart  *helm.Chart
	digest string // of the archive, or empty
	url    string // or empty
	dir    string // or empty
}

// source loads the chart and its dependencies.
func (c *Client) source(want Chart) (source, error) {
	s, err := c.load(want)
	if err != nil {
		return s, err
	}
	if kind := s.chart.Metadata.Type; kind != "" && kind != "application" {
		return s, fault.New(fault.Usage, "chart %q is a %s chart, which has no objects of its own", s.chart.Name(), kind).Hint("give a chart that uses it")
	}
	if err := c.complete(s.chart, s.dir, 0); err != nil {
		return s, err
	}
	return s, checkFiles(s.chart)
}

// load reads a chart, without its dependencies.
func (c *Client) load(want Chart) (source, error) {
	var s source
	var a archive
	var err error
	switch {
	case want.Name == "":
		return s, fault.New(fault.Usage, "the chart has no name").Hint("name a directory, a .tgz file, an oci:// URL, or a chart and its repository")
	case want.Repository != "":
		a, err = c.archive(wanted{want.Repository, want.Name, want.Version})
	case strings.HasPrefix(want.Name, ociScheme):
		a, err = c.archive(wanted{Chart: want.Name, Version: want.Version})
	case strings.Contains(want.Name, "://"):
		return s, fault.New(fault.Usage, "chart %q is not an oci:// URL", want.Name).Hint("give the URL of the repository (the directory of its index.yaml), the chart's name and its version")
	case want.Version != "":
		return s, fault.New(fault.Usage, "chart %q is on this machine, but a version (%q) is given", want.Name, want.Version).Hint("remove the version: the chart's own is used")
	default:
		info, statErr := os.Stat(want.Name)
		if statErr != nil {
			return s, fault.Wrap(statErr, fault.Usage, "name a directory or a .tgz file, or add the repository of the chart")
		}
		if info.IsDir() {
			return c.loadDirectory(want)
		}
		a.Content, err = os.ReadFile(want.Name)
	}
	if err != nil {
		return s, err
	}
	s.url, s.digest = a.URL, digestOf(a.Content)
	if want.Digest != "" && want.Digest != s.digest {
		return s, fault.New(fault.Failure, "chart %q has digest %s, but %s is required", want.Name, s.digest, want.Digest).
			Hint("if the change is intended, update the lock file; otherwise ask the publisher of the chart")
	}
	s.chart, err = loadArchive(a.Content)
	return s, broken(err, want.Name)
}

func loadArchive(content []byte) (*helm.Chart, error) {
	left := archivefiles.MaxDecompressedChartSize
	if err := checkArchive(content, &left, 0); err != nil {
		return nil, err
	}
	return loader.LoadArchive(bytes.NewReader(content))
}

func (c *Client) loadDirectory(want Chart) (s source, err error) {
	if want.Digest != "" {
		return s, fault.New(fault.Usage, "chart %q is a directory, which has no digest", want.Name).Hint(`give an archive instead: "helm package DIRECTORY" creates one`)
	}
	if _, err := os.Stat(filepath.Join(want.Name, "Chart.yaml")); err != nil {
		return s, fault.New(fault.Usage, "%q is not a Helm chart: %w", want.Name, err).Hint("give the directory that contains Chart.yaml")
	}
	if err := checkDirectory(want.Name); err != nil {
		return s, broken(err, want.Name)
	}
	s.dir = want.Name
	s.chart, err = loader.LoadDir(want.Name)
	return s, broken(err, want.Name)
}

func broken(err error, name string) error {
	if err == nil || fault.Hint(err) != "" {
		return err
	}
	return fault.New(fault.Usage, "chart %q: %w", name, err).Hint(`see what Helm reports: "helm lint CHART"`)
}

func described(c *helm.Chart) string { return fmt.Sprintf("%s %s", c.Name(), c.Metadata.Version) }

// digestOf returns the sha256 of an archive: "sha256:<hex>".
func digestOf(content []byte) string {
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:])
}
