package charts

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	helm "helm.sh/helm/v4/pkg/chart/v2"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"

	"airlift/internal/fault"
)

// maxDepth limits charts that depend on charts.
const maxDepth = 10

// complete adds the dependencies that are not in the chart's directory charts, and their
// dependencies. A version in Chart.lock takes precedence over the range in Chart.yaml.
func (c *Client) complete(chart *helm.Chart, dir string, depth int) error {
	if depth > maxDepth {
		return fault.New(fault.Usage, "chart %q: dependencies are nested more than %d deep", chart.Name(), maxDepth).Hint("correct the dependencies in Chart.yaml")
	}
	for _, d := range chart.Metadata.Dependencies {
		if has(chart, d) {
			continue
		}
		version := locked(chart, d)
		sub, subdir, err := c.dependency(d, version, dir)
		if err != nil {
			return fmt.Errorf("chart %q: dependency %q: %w", chart.Name(), d.Name, err)
		}
		if sub.Name() != d.Name {
			return fault.New(fault.Usage, "chart %q: dependency %q is the chart %q", chart.Name(), d.Name, sub.Name()).Hint("correct the dependencies in Chart.yaml")
		}
		if err := c.complete(sub, subdir, depth+1); err != nil {
			return err
		}
		chart.AddDependency(sub)
	}
	return nil
}

// has reports whether the chart has a dependency. Of several dependencies of one name, with aliases,
// each needs a chart of its own version.
func has(chart *helm.Chart, d *helm.Dependency) bool {
	return slices.ContainsFunc(chart.Dependencies(), func(have *helm.Chart) bool {
		return have.Name() == d.Name && (!severalOf(chart, d.Name) || chartutil.IsCompatibleRange(d.Version, have.Metadata.Version))
	})
}

// severalOf reports whether several dependencies have this name. For a single one, Helm also uses a
// version that is not in its range.
func severalOf(chart *helm.Chart, name string) bool {
	n := 0
	for _, d := range chart.Metadata.Dependencies {
		if d.Name == name {
			n++
		}
	}
	return n > 1
}

// locked returns the version in Chart.lock, or else that in Chart.yaml.
func locked(chart *helm.Chart, d *helm.Dependency) string {
	version := d.Version
	if chart.Lock == nil {
		return version
	}
	for _, l := range chart.Lock.Dependencies {
		if l.Name == d.Name && l.Repository == d.Repository && (!severalOf(chart, d.Name) || chartutil.IsCompatibleRange(d.Version, l.Version)) {
			version = l.Version
		}
	}
	return version
}

func (c *Client) dependency(d *helm.Dependency, version, dir string) (*helm.Chart, string, error) {
	switch {
	case strings.HasPrefix(d.Repository, "file://"):
		if dir == "" {
			return nil, "", fault.New(fault.Usage, "repository %q is a path, and the chart is an archive", d.Repository).
				Hint("give the chart's directory, or an archive with its dependencies: helm package --dependency-update")
		}
		at := filepath.Join(dir, strings.TrimPrefix(d.Repository, "file://"))
		s, err := c.loadDirectory(Chart{Name: at})
		return s.chart, at, err
	case strings.HasPrefix(d.Repository, ociScheme):
		a, err := c.archive(wanted{Chart: strings.TrimSuffix(d.Repository, "/") + "/" + d.Name, Version: version})
		return loaded(a, err)
	case strings.HasPrefix(d.Repository, "http://"), strings.HasPrefix(d.Repository, "https://"):
		a, err := c.archive(wanted{d.Repository, d.Name, version})
		return loaded(a, err)
	}
	return nil, "", fault.New(fault.Usage, "it is not in the directory charts, and repository %q is not a URL", d.Repository).Hint("run: helm dependency update CHART")
}

func loaded(a archive, err error) (*helm.Chart, string, error) {
	if err != nil {
		return nil, "", err
	}
	chart, err := loadArchive(a.Content)
	return chart, "", err
}
