package manifests

import (
	"fmt"

	"github.com/distribution/reference"

	"airlift/images/release"
	"airlift/internal/fault"
)

// Pull policies of Kubernetes.
const (
	Always       = "Always"
	IfNotPresent = "IfNotPresent"
	Never        = "Never"
)

// An Image is an image that an object names.
type Image struct {
	Object *Object
	// Field is the path in the object: spec.template.spec.containers[0].image.
	Field string
	// Written is the image as the object has it.
	Written string
	// Reference is Written as containerd normalises it: docker.io/library/nginx:1.27. For a
	// name with a tag and a digest it has only the digest. It is empty for a placeholder
	// that is replaced in the cluster (only Maybe returns such).
	Reference string
	// PullPolicy is the effective policy, or "" for an image that Maybe returns.
	PullPolicy string
	// Default is set if the object does not write the policy.
	Default bool
}

// Images returns the images of the workloads: Pod, PodTemplate, ReplicationController,
// ReplicaSet, Deployment, StatefulSet, DaemonSet, Job and CronJob, with init containers,
// ephemeral containers and image volumes. An image that cannot be parsed is an error.
//
// Images that a controller in the cluster uses later are not in the result: see Maybe.
func Images(objects []*Object) ([]Image, error) {
	var found []Image
	for _, o := range objects {
		for _, s := range slots(o) {
			if s.replacedLater(o) {
				continue
			}
			image, err := s.imageOf(o)
			if err != nil {
				return nil, err
			}
			found = append(found, image)
		}
	}
	return found, nil
}

func (s slot) imageOf(o *Object) (Image, error) {
	written, _ := s.holder[s.image].(string)
	if written == "" {
		hint := "write an image as registry.example.com/team/app:v1.2.3"
		if notText(s.holder[s.image]) {
			hint += ", and as a string" + o.written(s.field...)
		}
		return Image{}, fault.New(fault.Usage, "%s: %s: %s of %q is missing or not a string", o.Position(), o, s.field, s.name).
			Hint(hint)
	}
	ref, err := release.Normalize(written)
	if err != nil {
		return Image{}, fault.Wrap(fmt.Errorf("%s: %s: %s: %w", o.Position(), o, s.field, err), fault.Usage, fault.Hint(err))
	}
	policy, _ := s.holder[s.policy].(string)
	image := Image{o, s.field.String(), written, ref, policy, policy == ""}
	if image.Default {
		image.PullPolicy = defaultPolicy(written)
	}
	return image, nil
}

// defaultPolicy is the policy that the API server writes where there is none: Always for the
// tag "latest", also in front of a digest, and for an image without tag and digest.
// Source: pkg/apis/core/v1/defaults.go and pkg/util/parsers in Kubernetes 1.29 to 1.37.
func defaultPolicy(written string) string {
	named, err := reference.ParseNormalizedNamed(written)
	if err != nil {
		return IfNotPresent
	}
	if tagged, ok := named.(reference.Tagged); ok && tagged.Tag() == "latest" || reference.IsNameOnly(named) {
		return Always
	}
	return IfNotPresent
}

// SetPullPolicy changes the pull policy of images in workloads from Always to IfNotPresent,
// also where Always is only the default, and returns the fields that it changed. Other objects
// stay as they are: Check finds their policies.
func SetPullPolicy(objects []*Object) (fields []string) {
	for _, o := range objects {
		for _, s := range slots(o) {
			if image, err := s.imageOf(o); err == nil && image.PullPolicy == Always {
				s.holder[s.policy] = IfNotPresent
				fields = append(fields, s.field[:len(s.field)-1].with(s.policy).String())
			}
		}
	}
	return fields
}
