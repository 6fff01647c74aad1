package manifests

import (
	"regexp"
	"slices"
)

// policyFlag matches an argument that sets a pull policy.
var policyFlag = regexp.MustCompile(`(?i)^--?[a-z0-9.-]*pull-?policy=always$`)

// maybePolicies returns pull policies that a controller may use for pods.
func maybePolicies(objects []*Object) (problems []Problem) {
	for _, o := range objects {
		if o.Kind == "CustomResourceDefinition" {
			continue
		}
		own := map[string]bool{}
		for _, s := range slots(o) {
			own[s.field[:len(s.field)-1].with(s.policy).String()] = true
		}
		walk(nil, o.Content, func(p path, value any) bool {
			s, ok := value.(string)
			field := p.String()
			key := p.key()
			switch {
			case !ok || own[field]:
			case s == Always && slices.Contains([]string{"imagePullPolicy", "pullPolicy"}, key):
				problems = append(problems, Problem{o, field, "it is Always: pods that a controller creates from it contact the registry",
					"write IfNotPresent", true, false})
			case policyFlag.MatchString(s):
				problems = append(problems, Problem{o, field, s + ": pods that the container creates contact the registry",
					"write IfNotPresent", true, false})
			}
			return true
		})
	}
	return problems
}
