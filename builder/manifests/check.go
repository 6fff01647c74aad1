// Package manifests reads Kubernetes objects on the connected side, finds the images that
// they need, and checks that nothing will be pulled on an isolated host.
//
// The usual order of calls is Read (a file, a directory, a kustomization), Images (what the bundle
// must contain), SetPullPolicy, Check (nothing but problems with Maybe), and Encode (the entry of the
// bundle).
//
// Objects stay in the order in which they were read. No function uses the network.
package manifests

import (
	"fmt"
	"slices"
	"strings"

	"github.com/distribution/reference"

	"airlift/images/release"
	"airlift/internal/fault"
)

// A Problem is a reason why a host could try to pull an image, or why the API server refuses an object.
type Problem struct {
	Object *Object
	// Field is the path in the object. It may be empty.
	Field string
	// Why is the reason, Hint what to do.
	Why, Hint string
	// Maybe is set if something in the cluster decides what the field means, such as a controller.
	// Print such a problem as a warning.
	Maybe bool
	// Missing is set if the image is not in the set.
	Missing bool
}

// String returns the problem in one line, without the hint.
func (p Problem) String() string {
	field := p.Field
	if field != "" {
		field += ": "
	}
	return fmt.Sprintf("%s: %s: %s%s", p.Object.PositionOf(p.Field), p.Object, field, p.Why)
}

// Check returns the reasons why a pod of these objects could make a host contact a registry,
// if the hosts have exactly the images in set. The references in set are as Normalize
// returns them, or as a user writes them. No problem without Maybe means: nothing that the
// workloads name will be pulled.
//
// What is known from the source of Kubernetes 1.29 and 1.37 and containerd 2.4:
//
//   - For IfNotPresent and Never, the kubelet asks the runtime whether it has the image. It
//     pulls only for IfNotPresent, and only if the answer is no (imagePullPrecheck in
//     pkg/kubelet/images/image_manager.go).
//   - For Always it does not ask. It pulls at each start of a container, and a pull that
//     fails is an error, although the image is there.
//   - A pull in containerd begins with a HEAD request for the manifest, also for a reference
//     with a digest whose content is on the disk (dockerResolver.Resolve in
//     core/remotes/docker). So Always contacts a registry for tags and digests alike.
//   - containerd finds an image by the normalised reference only (LocalResolve in
//     internal/cri/server/images). For name:tag@digest that is name@digest. The set must have
//     that name, also if an import of name:tag records it.
//   - Since 1.35 the kubelet may verify again the credentials of an image that it pulled. By
//     default it does not for images that were imported (the policy
//     NeverVerifyPreloadedImages).
//
// The admission plugin AlwaysPullImages changes every policy in the cluster to Always. The
// objects do not show whether it is enabled.
func Check(objects []*Object, set []string) (problems []Problem) {
	have := newInventory(set)
	for _, o := range objects {
		for _, s := range slots(o) {
			if s.replacedLater(o) {
				continue
			}
			problems = append(problems, s.check(o, have)...)
		}
	}
	for _, image := range Maybe(objects) {
		if why, hint := have.missing(image.Written, image.Reference); why != "" {
			problems = append(problems, Problem{image.Object, image.Field, why, hint, true, true})
		}
	}
	return append(problems, maybePolicies(objects)...)
}

func (s slot) check(o *Object, have inventory) (problems []Problem) {
	image, err := s.imageOf(o)
	if err != nil {
		return []Problem{{o, s.field.String(), "the image is missing, not a string or cannot be parsed", fault.Hint(err), false, false}}
	}
	if why, hint := have.missing(image.Written, image.Reference); why != "" {
		problems = append(problems, Problem{o, image.Field, why, hint, false, true})
	}
	field := s.field[:len(s.field)-1].with(s.policy).String()
	switch image.PullPolicy {
	case IfNotPresent, Never:
	case Always:
		why := fmt.Sprintf("%s is Always: each start of the container contacts the registry of %q", s.policy, image.Written)
		if image.Default {
			why = fmt.Sprintf("%s is not set, and the default for %q is Always: each start of the container contacts the registry", s.policy, image.Written)
		}
		problems = append(problems, Problem{o, field, why, "write " + s.policy + ": IfNotPresent", false, false})
	default:
		problems = append(problems, Problem{o, field, fmt.Sprintf("%q is not a pull policy, so the API server rejects the object", image.PullPolicy),
			"write " + s.policy + ": IfNotPresent", false, false})
	}
	return problems
}

// An inventory is the set of images on the hosts: normalised references, and those by their
// repository and by the last part of it.
type inventory struct {
	all    map[string]bool
	byRepo map[string][]string
	byName map[string][]string
}

func newInventory(set []string) inventory {
	v := inventory{map[string]bool{}, map[string][]string{}, map[string][]string{}}
	for _, written := range set {
		ref, err := release.Normalize(written)
		if err != nil {
			continue // no image has this reference either
		}
		named, err := reference.ParseNormalizedNamed(ref)
		if err != nil || v.all[ref] {
			continue
		}
		v.all[ref] = true
		v.byRepo[named.Name()] = append(v.byRepo[named.Name()], ref)
		last := lastElement(reference.Path(named))
		v.byName[last] = append(v.byName[last], ref)
	}
	for _, m := range []map[string][]string{v.byRepo, v.byName} {
		for _, refs := range m {
			slices.Sort(refs)
		}
	}
	return v
}

func lastElement(p string) string { return p[strings.LastIndex(p, "/")+1:] }

// missing explains why an image is not in the inventory, or returns "".
func (v inventory) missing(written, ref string) (why, hint string) {
	if ref == "" {
		return fmt.Sprintf("%q is replaced with another image in the cluster", written), "list the image that replaces it in the bundle"
	}
	if v.all[ref] {
		return "", ""
	}
	add := "add the image to the bundle: --image " + ref
	named, err := reference.ParseNormalizedNamed(written)
	if err != nil {
		return fmt.Sprintf("image %q is not in the bundle", written), add
	}
	_, digested := named.(reference.Digested)
	tagged, hasTag := named.(reference.Tagged)
	if byTag := named.Name(); digested && hasTag && v.all[byTag+":"+tagged.Tag()] {
		return fmt.Sprintf("image %q is not in the bundle: containerd looks for %s, and the bundle has the image as %s:%s",
			written, ref, byTag, tagged.Tag()), fmt.Sprintf("remove the digest, or %s", add)
	}
	if others := v.byRepo[named.Name()]; len(others) > 0 {
		if digested {
			return fmt.Sprintf("image %q is not in the bundle by this digest: the bundle has %s", written, strings.Join(others, ", ")),
				fmt.Sprintf("write %s, or %s", others[0], add)
		}
		return fmt.Sprintf("image %q is not in the bundle: the bundle has %s", written, strings.Join(others, ", ")),
			fmt.Sprintf("write %s, or %s", others[0], add)
	}
	for _, other := range v.byName[lastElement(reference.Path(named))] {
		if strings.HasSuffix(other, strings.TrimPrefix(ref, named.Name())) {
			return fmt.Sprintf("image %q is %s and not in the bundle: the bundle has %s", written, ref, other),
				fmt.Sprintf("write %s, or %s", other, add)
		}
	}
	return fmt.Sprintf("image %q is not in the bundle", written), add
}
