package manifests

import (
	"fmt"
	"regexp"

	"airlift/internal/fault"
)

// helmAction matches what only a template of a chart has. Other strings with braces are
// ordinary: kubectl's --template, alerts, dashboards.
var helmAction = regexp.MustCompile(`\{\{-?\s*(\$?\.(Values|Release|Chart|Capabilities)\.|(include|template|tpl|required)\s)`)

// unrendered returns an error if a workload has a template that was not rendered.
func unrendered(o *Object) error {
	if podPath(o) == nil {
		return nil
	}
	var err error
	walk(nil, o.Content, func(p path, value any) bool {
		if s, ok := value.(string); ok && err == nil && helmAction.MatchString(s) {
			err = notRendered(o.Position(), fmt.Sprintf("%s of %s", p, o))
		}
		return err == nil
	})
	return err
}

func notRendered(at, what string) error {
	return fault.New(fault.Usage, "%s: %s is a template that was not rendered", at, what).
		Hint(`if this is a Helm chart, list it as a chart; otherwise render it: "helm template NAME CHART > app.yaml"`)
}
