package charts

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	helm "helm.sh/helm/v4/pkg/chart/v2"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/engine"
	release "helm.sh/helm/v4/pkg/release/v1"
	releaseutil "helm.sh/helm/v4/pkg/release/v1/util"

	"airlift/builder/manifests"
	"airlift/internal/fault"
)

// A Chart is a chart to render, with its values and API versions.
type Chart struct {
	// Name is a directory, an archive (.tgz), oci://registry.example.com/charts/app, or the
	// name of a chart in Repository.
	Name string
	// Repository is the URL of a chart repository: the directory of its index.yaml. It is
	// empty for the other forms of Name.
	Repository string
	// Version is a version, or a range as in Helm: "~1.2". Empty means the newest release.
	// It must be empty for a directory and an archive.
	Version string
	// Digest, if not empty, is the required sha256 of the archive: "sha256:<hex>".
	Digest string

	// Release is the name of the release. Empty means the chart's name.
	Release string
	// Namespace is the namespace of the release. Empty means "default".
	Namespace string

	// ValueFiles are the paths of files with values. Later ones win over earlier ones, and Set
	// over ValueFiles.
	ValueFiles []string
	// Set are values as --set of Helm takes them: "controller.replicas=2,service.type=NodePort".
	Set []string

	// KubernetesVersion is the version of the cluster: "v1.37.1".
	KubernetesVersion string
	// APIVersions are the API versions that CustomResourceDefinitions of other charts add to
	// Kubernetes' own, such as "monitoring.coreos.com/v1" or
	// "monitoring.coreos.com/v1/ServiceMonitor".
	APIVersions []string
}

// A Rendering is the result of rendering a chart.
type Rendering struct {
	Name, Version string // the chart's
	// Digest is the sha256 of the archive: "sha256:<hex>". It is empty for a directory.
	Digest string
	// URL is where the archive was downloaded, or empty.
	URL string
	// Objects are in the order in which a host applies them. File is the template. Line is 0,
	// because lines of the result do not match lines of the template.
	Objects []*manifests.Object
	// Notes report what is different from an installation with Helm.
	Notes []string
}

// renderAlike renders a chart several times and returns an error if the results differ.
func (c *Client) renderAlike(want Chart) (*Rendering, error) {
	var first *Rendering
	// Twice shows a random string or a time. The third rendering finds random values with few
	// possibilities, such as one digit.
	for pass := range 3 {
		r, err := c.render(want, pass)
		if err != nil {
			return nil, err
		}
		if first == nil {
			first = r
			continue
		}
		if err := sameObjects(first, r); err != nil {
			return nil, err
		}
	}
	return first, nil
}

func (c *Client) render(want Chart, pass int) (*Rendering, error) {
	s, err := c.source(want)
	if err != nil {
		return nil, err
	}
	chart := s.chart
	r := &Rendering{Name: chart.Name(), Version: chart.Metadata.Version, Digest: s.digest, URL: s.url}
	r.Notes = withoutRemoteSchemas(chart)
	if chart.Metadata.Deprecated {
		r.Notes = append(r.Notes, "chart "+described(chart)+" is deprecated")
	}
	values, err := want.renderValues(chart)
	if err != nil {
		return nil, err
	}
	looked := func(what string) {
		note := fmt.Sprintf("chart %s looks up %s in the cluster and finds nothing: it renders as for a new cluster", described(chart), what)
		if !slices.Contains(r.Notes, note) {
			r.Notes = append(r.Notes, note)
		}
	}
	e := engine.Engine{CustomTemplateFuncs: functions(pass, looked)}
	files, err := e.RenderWithContext(context.Background(), chart, values)
	if err != nil {
		return nil, fault.New(fault.Usage, "rendering chart %s: %w", described(chart), err).Hint(`set the values that the chart needs: "helm show values CHART" prints them`)
	}
	for name := range files {
		if strings.HasSuffix(name, "NOTES.txt") {
			delete(files, name)
		}
	}
	hooks, generic, err := releaseutil.SortManifests(files, nil, releaseutil.InstallOrder)
	if err != nil {
		return nil, fault.New(fault.Usage, "rendering chart %s: %w", described(chart), err).Hint("see what Helm renders: helm template --debug CHART")
	}
	r.Notes = append(r.Notes, leftOut(files, hooks, generic)...)
	return r, r.collect(chart, hooks, generic)
}

// renderValues returns what templates see: Values, Release, Chart and Capabilities.
func (want Chart) renderValues(chart *helm.Chart) (common.Values, error) {
	user, err := want.values()
	if err != nil {
		return nil, err
	}
	capabilities, err := want.capabilities()
	if err != nil {
		return nil, err
	}
	if need := chart.Metadata.KubeVersion; need != "" && !chartutil.IsCompatibleRange(need, capabilities.KubeVersion.String()) {
		return nil, fault.New(fault.Usage, "chart %s requires Kubernetes %s, but the bundle has %s", described(chart), need, want.KubernetesVersion).
			Hint("use a version of the chart for this version of Kubernetes")
	}
	options := common.ReleaseOptions{Name: want.Release, Namespace: want.Namespace, Revision: 1, IsInstall: true}
	if options.Name == "" {
		options.Name = chart.Name()
	}
	if options.Namespace == "" {
		options.Namespace = "default"
	}
	if err := chartutil.ValidateReleaseName(options.Name); err != nil {
		return nil, fault.New(fault.Usage, "release %q: %w", options.Name, err).Hint("write a name of lower-case letters, digits and dashes, of at most 53 characters")
	}
	if err := chartutil.ProcessDependencies(chart, user); err != nil {
		return nil, broken(err, chart.Name())
	}
	values, err := util.ToRenderValues(chart, user, options, capabilities)
	if err != nil {
		return nil, fault.New(fault.Usage, "chart %s: %w", described(chart), err).Hint(`correct the values; to print the chart's default values: helm show values CHART`)
	}
	return values, nil
}

// collect decodes the objects and puts them in the order of an installation.
func (r *Rendering) collect(chart *helm.Chart, hooks []*release.Hook, generic []releaseutil.Manifest) error {
	for _, crd := range chart.CRDObjects() {
		if err := r.add(crd.Filename, string(crd.File.Data)); err != nil {
			return err
		}
	}
	own := map[string]bool{}
	for _, m := range generic {
		objects, err := decode(m.Name, m.Content)
		if err != nil {
			return err
		}
		for _, o := range objects {
			own[o.APIVersion+" "+o.String()] = true
		}
	}
	seen := map[*release.Hook]bool{}
	for i, events := range [][]release.HookEvent{before, after} {
		if i == 1 {
			for _, m := range generic {
				if err := r.add(m.Name, m.Content); err != nil {
					return err
				}
			}
		}
		for _, h := range hooksFor(hooks, events) {
			if seen[h] {
				continue
			}
			seen[h] = true
			objects, err := decode(h.Path, h.Manifest)
			if err != nil {
				return err
			}
			for _, o := range objects {
				// Helm creates an object that is a hook, too, twice, and deletes the hook's in between. It runs a
				// second hook of the same name for its own events.
				if key := o.APIVersion + " " + o.String(); !own[key] && !own[key+" "+manifests.Hook(o)] {
					own[key+" "+manifests.Hook(o)] = true
					r.Objects = append(r.Objects, o)
				}
			}
		}
	}
	if len(r.Objects) == 0 {
		return fault.New(fault.Usage, "chart %s renders no objects", described(chart)).Hint(`set the values that enable its parts: "helm show values CHART" prints them`)
	}
	if err := manifests.Unique(r.Objects); err != nil {
		return fmt.Errorf("chart %s: %w", described(chart), err)
	}
	return nil
}

func (r *Rendering) add(file, content string) error {
	objects, err := decode(file, content)
	r.Objects = append(r.Objects, objects...)
	return err
}

// decode returns the objects of a rendered template. Their line numbers are not the template's line
// numbers. Helm removes the last newline, and adds it again when it writes the objects. So a text
// at the end of a template ends with a newline.
func decode(file, content string) ([]*manifests.Object, error) {
	objects, err := manifests.Decode(file, []byte(content+"\n"))
	for _, o := range objects {
		o.Line = 0
	}
	return objects, err
}
