package imagesfound

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"airlift/builder/manifests"
)

// A row is the result for one subject.
type row struct {
	subject
	commit, version string
	objects         int
	images, maybe   int
	missed          []string
	same            string
	without         []string
	problem         string
}

// count fills the row's numbers.
func (r *row) count(objects []*manifests.Object, text []byte) error {
	found, err := manifests.Images(objects)
	if err != nil {
		return err
	}
	have := map[string]bool{}
	for _, i := range found {
		have[i.Reference] = true
	}
	r.objects, r.images = len(objects), len(have)
	for _, i := range manifests.Maybe(objects) {
		if i.Reference != "" && !have[i.Reference] {
			have[i.Reference] = true
			r.maybe++
		}
	}
	for _, ref := range judged(text) {
		if !have[ref] {
			r.missed = append(r.missed, ref)
		}
	}
	return nil
}

func (r row) line() string {
	name := r.repository
	if r.path != "." {
		name += " " + path.Base(r.path)
	}
	version := r.version
	if version == "" {
		version = r.commit
	}
	missed := "0"
	if len(r.missed) > 0 {
		missed = fmt.Sprintf("%d: %s", len(r.missed), strings.Join(r.missed, ", "))
	}
	same := r.same
	if same == "" {
		same = "not compared"
	}
	if r.problem != "" {
		return fmt.Sprintf("| %s | %s | | | | | refused: %s |", name, version, r.problem)
	}
	if len(r.without) > 0 {
		name += " (without " + strings.Join(r.without, ", ") + ")"
	}
	return fmt.Sprintf("| %s | %s | %d | %d | %d | %s | %s |", name, version, r.objects, r.images, r.maybe, missed, same)
}

func document(rows []row) string {
	measured, missed := 0, 0
	var lines []string
	for _, r := range rows {
		lines = append(lines, r.line())
		if r.problem == "" {
			measured++
		}
		missed += len(r.missed)
	}
	slices.Sort(lines)
	return fmt.Sprintf(`# Images found in public charts and manifests

%d of %d public charts and manifests were rendered for Kubernetes %s. Images missed: %d.

"Images" are the images of the workloads. "Maybe" are others that a controller in the cluster may
use: arguments, environment variables, custom resources, ConfigMaps. "Missed" are those that
a search of the text finds and Airlift does not. The text is the output of "helm template" or
"kubectl kustomize", or the file itself. The search takes each line with a key that ends with
"image", and each name in a public registry. It joins a name without a registry with a
"repository" and a "version" of the same block. "Same" compares Airlift's objects with that output.

A chart is refused if it generates passwords or certificates: its values must set them. If
"same" is "no", the chart checks which API versions the cluster has: "helm template" does not know
policy/v1/PodDisruptionBudget and apiregistration.k8s.io/v1, which each supported version serves.

The search cannot find an image name that is compiled into an operator, or that an operator
creates from a version.

`+"`go run ./scripts/live images-found` writes this page."+`

| chart or manifest | version | objects | images | maybe | missed | same |
|---|---|---|---|---|---|---|
%s
`, measured, len(rows), kubernetes, missed, strings.Join(lines, "\n"))
}
