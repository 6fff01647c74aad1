package manifests

// A Change is a pull policy that SetPullPolicy changed.
type Change struct {
	Object *Object
	// Field is the path of the policy: spec.template.spec.containers[0].imagePullPolicy.
	Field string
	// Image is the image as written.
	Image string
	// Default is set if the object did not write the policy, and Always was the default.
	Default bool
}

// SetPullPolicy changes the pull policy of images in workloads from Always to IfNotPresent,
// also where Always is only the default, and returns what it changed. A second call changes
// nothing. Other objects stay as they are: Check finds their policies.
func SetPullPolicy(objects []*Object) (changes []Change) {
	for _, o := range objects {
		for _, s := range slots(o) {
			image, err := s.imageOf(o)
			if err != nil || image.PullPolicy != Always {
				continue
			}
			s.holder[s.policy] = IfNotPresent
			field := s.field[:len(s.field)-1].with(s.policy)
			changes = append(changes, Change{o, field.String(), image.Written, image.Default})
		}
	}
	return changes
}
