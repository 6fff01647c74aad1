package builder

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"airlift/bundle/builder/charts"
	"airlift/bundle/builder/manifests"
	"airlift/internal/fault"
)

// An objectReader reads manifests and renders charts, in the order in which they are applied.
type objectReader struct {
	charts  *charts.Client
	version string // of Kubernetes
	// apis are the API versions of the CustomResourceDefinitions in the base and in what was read
	// so far.
	apis []string
}

// A reading is the result of an objectReader for one source. chart is nil for manifests.
type reading struct {
	objects []*manifests.Object
	chart   *ProvenanceChart
	notes   []string
}

func (r *objectReader) read(ctx context.Context, m Manifest) (got reading, err error) {
	switch {
	case m.AddOn != nil:
		got.objects, err = readAddOn(*m.AddOn)
	case m.Chart == nil:
		got.objects, err = manifests.Read(m.Path)
	default:
		got, err = r.render(ctx, m)
	}
	if err == nil {
		r.apis = append(r.apis, apisOf(got.objects)...)
	}
	return got, err
}

// readAny returns the objects of a path that is a chart or a manifest.
func (r *objectReader) readAny(ctx context.Context, path string) (reading, error) {
	if strings.Contains(path, "://") {
		return reading{}, fault.New(fault.Usage, "%q is not a file or a directory", path).Hint(`download it first, for example with "helm pull", and name the archive`)
	}
	m := Manifest{Path: path}
	if _, err := os.Stat(filepath.Join(path, "Chart.yaml")); err == nil || strings.HasSuffix(path, ".tgz") || strings.HasSuffix(path, ".tar.gz") {
		m.Chart = &Chart{Source: path}
	}
	return r.read(ctx, m)
}

func (r *objectReader) render(ctx context.Context, m Manifest) (reading, error) {
	c := m.Chart
	want := charts.Chart{Name: c.Source, Version: c.Version, Digest: c.Digest, Release: c.Release, Namespace: m.Namespace,
		ValueFiles: c.Values, Set: c.Set, KubernetesVersion: r.version, APIVersions: r.apis}
	if strings.HasPrefix(c.Source, "http://") || strings.HasPrefix(c.Source, "https://") {
		want.Repository, want.Name = c.Source, c.Name
	}
	made, err := r.charts.Render(ctx, want)
	if err != nil && fault.Hint(err) == "" {
		err = fault.Wrap(err, fault.ExitCode(err), `if the site of the chart cannot be reached, use a mirror, or download the archive elsewhere ("helm pull") and use it as the source`)
	}
	if err != nil {
		return reading{}, err
	}
	return reading{objects: made.Objects, notes: made.Notes,
		chart: &ProvenanceChart{Manifest: m.Name, Chart: made.Name, Version: made.Version, URL: made.URL, Digest: made.Digest}}, nil
}

// apisOf returns the API versions that a cluster serves after the CustomResourceDefinitions
// among the objects were applied, in both forms that charts look for.
func apisOf(objects []*manifests.Object) (apis []string) {
	for _, o := range objects {
		spec, _ := o.Content["spec"].(map[string]any)
		names, _ := spec["names"].(map[string]any)
		versions, _ := spec["versions"].([]any)
		group, _ := spec["group"].(string)
		kind, _ := names["kind"].(string)
		if o.Kind != "CustomResourceDefinition" || group == "" {
			continue
		}
		for _, v := range versions {
			version, _ := v.(map[string]any)
			name, _ := version["name"].(string)
			if served, _ := version["served"].(bool); served && name != "" {
				apis = append(apis, group+"/"+name, group+"/"+name+"/"+kind)
			}
		}
	}
	return apis
}
